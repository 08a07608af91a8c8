import pytest

pytest.importorskip("torch", reason="the extra train is not installed")

from dreamgym_kit.errors import UserError
from dreamgym_kit.recipes.nano.build import Lessons, Progress, Shape
from dreamgym_kit.recipes.nano.episodes import record
from dreamgym_kit.recipes.nano.learn import learn
from dreamgym_kit.recipes.nano.start import new_model
from dreamgym_kit.recipes.nano.tokens import Stream, build_tokenizer

stream = Stream(build_tokenizer())
TINY = Shape(width=64, layers=2, inner=64)
ROWS = [stream.row(worked) for worked in record(24, seed=1)]


def taught(lessons: Lessons, seed: int = 0) -> tuple[list[Progress], float]:
    """A tiny model's way through the lessons, and a fingerprint of what it became."""
    model = new_model(stream.tokenizer, seed=1, shape=TINY)
    heard: list[Progress] = []
    learn(model, stream, ROWS, first=ROWS[:8], lessons=lessons, seed=seed, tell=heard.append)
    assert not model.training
    return heard, float(sum(weight.double().abs().sum() for weight in model.state_dict().values()))


@pytest.mark.slow
def test_lessons_lower_the_loss_and_equal_ones_end_equal() -> None:
    lessons = Lessons(steps=25, rows=6, warm_up=3)
    (heard, end), (_, same), (_, other) = taught(lessons), taught(lessons), taught(lessons, seed=1)
    assert [each.step for each in heard] == list(range(1, 26))
    assert heard[-1].loss < 0.8 * heard[0].loss
    assert end == same != other


def test_fewer_rows_than_a_step_reads_are_refused_not_waited_for() -> None:
    with pytest.raises(UserError, match="8 episodes are too few: a step reads 34"):
        taught(Lessons(rows=40))
