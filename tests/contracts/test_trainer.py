"""What every `Trainer` promises, whatever changes the weights."""

import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from training.loop_doubles import TrainerDouble

from dreamgym_kit.interfaces import Trainer
from dreamgym_kit.turns import Batch, Sample, UpdateFacts

OpenTrainer = Callable[[str], Trainer]
IDS = [[1, 2, 3], [4], [0, 3, 3, 1]]


@pytest.fixture(params=["double", pytest.param("trl", marks=pytest.mark.slow)])
def open_trainer(request: pytest.FixtureRequest, tmp_path: Path) -> OpenTrainer:
    """Opens a trainer by the name of its folder; the same name goes on where the last one was."""

    def double(name: str) -> Trainer:
        (tmp_path / name).mkdir(exist_ok=True)
        return TrainerDouble(tmp_path / name)

    if request.param == "double":
        return double
    pytest.importorskip("trl", reason="the extra train is not installed", exc_type=ImportError)
    from trainers.tiny_model import write_tiny_model

    from dreamgym_kit.adapters.trainers.trainer import TrlTrainer

    base = write_tiny_model(tmp_path / "base", scale=2.0)
    return lambda name: TrlTrainer(base, tmp_path / name)


def batch_of(step: int) -> Batch:
    chance = random.Random(step)
    rows = tuple(
        Sample(
            episode=f"e{place}",
            ids=tuple(chance.randrange(5) for _ in range(6)),
            start=2,
            mask=(1, 1, 0, 1),
            logprobs=(-1.6, -1.6, 0.0, -1.6),
            turns=(0,),
            versions=(f"step-{step - 1:06d}",),
            advantage=chance.choice((-1.0, 1.0)),
        )
        for place in range(4)
    )
    return Batch(step, rows)


def nothing(_: UpdateFacts) -> None:
    """Hears a step and does nothing."""


def test_each_step_is_asked_for_once_in_order_and_heard_of_on_the_calling_thread(
    open_trainer: OpenTrainer,
) -> None:
    told: list[tuple[str, int, int]] = []

    def source(step: int) -> Batch:
        told.append(("asked", step, threading.get_ident()))
        return batch_of(step)

    trainer = open_trainer("run")
    assert trainer.step == 0
    trainer.fit(
        source, steps=3, after=lambda facts: told.append(("heard", facts.step, threading.get_ident()))
    )
    here = threading.get_ident()
    assert told == [(what, step, here) for step in (1, 2, 3) for what in ("asked", "heard")]
    assert trainer.step == 3


def test_another_leg_goes_on_from_the_last_checkpoint_and_is_the_unbroken_run(
    open_trainer: OpenTrainer,
) -> None:
    whole = open_trainer("whole")
    whole.fit(batch_of, steps=4, after=nothing)
    open_trainer("legs").fit(batch_of, steps=2, after=nothing)
    again, asked = open_trainer("legs"), []
    assert again.step == 2
    again.fit(lambda step: asked.append(step) or batch_of(step), steps=4, after=nothing)
    assert asked == [3, 4]
    assert again.score(IDS) == whole.score(IDS)
    again.fit(lambda step: asked.append(step) or batch_of(step), steps=4, after=nothing)
    assert asked == [3, 4]


@pytest.mark.parametrize("where", ["source", "after"])
def test_what_the_caller_raises_reaches_it_and_that_step_is_not_kept(
    open_trainer: OpenTrainer, where: str
) -> None:
    error = RuntimeError("mine")

    def source(step: int) -> Batch:
        if (where, step) == ("source", 2):
            raise error
        return batch_of(step)

    def after(facts: UpdateFacts) -> None:
        if (where, facts.step) == ("after", 2):
            raise error

    with pytest.raises(RuntimeError) as raised:
        open_trainer("run").fit(source, steps=3, after=after)
    assert raised.value is error
    kept, one = open_trainer("run"), open_trainer("one")
    one.fit(batch_of, steps=1, after=nothing)
    assert kept.step == 1
    assert kept.score(IDS) == one.score(IDS)


def test_scores_are_of_the_weights_as_they_are(open_trainer: OpenTrainer, tmp_path: Path) -> None:
    trainer = open_trainer("run")
    before = trainer.score(IDS)
    assert [len(row) for row in before] == [2, 0, 3]
    assert all(one <= 0 for row in before for one in row)
    during: list[list[list[float]]] = []
    trainer.fit(batch_of, steps=1, after=lambda _: during.append(trainer.score(IDS)))
    assert during == [trainer.score(IDS)]
    assert during != [before]
    trainer.write_weights(tmp_path / "weights")
    assert list((tmp_path / "weights").iterdir())
    assert during == [trainer.score(IDS)]
