"""A curriculum put together from settings: what cannot be is refused before anything is learned."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from curriculum.making_doubles import asking
from deciding_double import ScriptedChatDouble
from each_row import each_row

from dreamgym_kit.adapters.langgraph.training.curriculum import RecordedValues, curriculum_of
from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.curriculum.makers import AGREED
from dreamgym_kit.errors import UserError
from dreamgym_kit.settings.load import parse_settings
from dreamgym_kit.types import Answer, Call, Effect, Environment, Task, Transition

MAKER = """
from dataclasses import replace

def like(pattern, count, seed):
    text = {"messages": [{"role": "user", "content": "Cancel order O12."}]}
    return [replace(pattern.task, input=text, checker=None, expect={})]

def telling(pattern, count, seed):
    import os
    text = {"messages": [{"role": "user", "content": "Cancel it, please: " + os.environ["SHOP_API_KEY"]}]}
    return [replace(pattern.task, input=text, checker=None)]

def judge(outcome):
    return True

NOTHING = 3
"""
TASKS = [asking("a", "Cancel order O11.", checker="orders:judge")]
ROW = Transition(
    Call("get_order", {"order_id": "O12"}),
    Answer('{"order": {"id": "O12", "total": 21.5, "open": true}, "notes": ["a lamp"]}'),
    Effect.READ,
    "e",
    1,
    Environment("shop", 1),
)


class RolloutsDouble:
    def __init__(self, chat: object = None) -> None:
        self.chat = chat
        self.admitted: list[Task] = []
        self.judges: dict[str, object] = {}

    def admit(self, tasks: Sequence[Task], judges: dict[str, object]) -> None:
        self.admitted += tasks
        self.judges |= judges


def put_together(
    tmp_path: Path, said: str, chat: object = None, *, per_step: int = 4
) -> tuple[object, RolloutsDouble]:
    (tmp_path / "orders.py").write_text(MAKER)
    file = tmp_path / "dreamgym.toml"
    file.write_text(f"[train]\ntasks_per_step = {per_step}\n[curriculum]\nenabled = true\nevery = 1\n{said}")
    settings = parse_settings(file.read_text(), path=file)
    rollouts, store = RolloutsDouble(chat), MemoryStore()
    store.put([ROW])
    found = curriculum_of(settings, TASKS, [], rollouts, store=store, folder=tmp_path / "made")
    return found, rollouts


@each_row(
    ("said", "refusal"),
    [
        ('task_generator = "orders:lik"', "dreamgym.toml:6: "),
        (
            'task_generator = "orders:NOTHING"',
            "dreamgym.toml:6: maker 'orders:NOTHING' is of type int, not a function",
        ),
        (
            "llm_variations = true",
            "dreamgym.toml:6: curriculum.llm_variations has the endpoint's model make variations, and there",
        ),
        (
            'judges = ["orders:judge"]',
            "dreamgym.toml:6: curriculum.judges names one judge; a made task needs two",
        ),
        (
            'judges = ["one", "other"]\n[checkers]\none = "orders:judge"\nother = "orders:judge"',
            "dreamgym.toml:6: curriculum.judges names 'one' and 'other', which are the same judge",
        ),
        (
            'judges = ["experience", "orders:judge"]',
            "dreamgym.toml:6: 'experience' is to judge, and there is none",
        ),
    ],
)
def test_what_cannot_be_used_is_named_with_its_line(tmp_path: Path, said: str, refusal: str) -> None:
    with pytest.raises(UserError) as error:
        put_together(tmp_path, said)
    assert str(error.value).startswith(refusal)


def test_the_word_of_a_trainings_own_judge_may_be_wrong_whatever_checker_a_task_names(
    tmp_path: Path,
) -> None:
    for apart, error in ((False, 0.0), (True, 0.05)):
        settings = parse_settings("[curriculum]\nenabled = true\n", path=tmp_path / "dreamgym.toml")
        parts = {"store": None, "folder": tmp_path / "made", "judged_apart": apart}
        found = curriculum_of(settings, TASKS, [], RolloutsDouble(), **parts)
        assert found._plan.error(TASKS[0]) == error
        assert found._plan.error(asking("a~2.1", "Cancel O12.", checker="orders:judge")) == 0.0


def test_a_share_that_no_made_task_fits_into_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"0\.3 of the 3 tasks of a step \(train\.tasks_per_step\) is less than one"
    ):
        put_together(tmp_path, 'task_generator = "orders:like"', per_step=3)
    put_together(tmp_path, "", per_step=3)


def test_variations_that_nobody_may_judge_are_refused_from_the_start(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nobody may judge the variations that a model makes"):
        put_together(tmp_path, "llm_variations = true", ScriptedChatDouble("{}"))
    put_together(tmp_path, 'llm_variations = true\nchecker = "orders:judge"', ScriptedChatDouble("{}"))


async def made_by(curriculum: object) -> Sequence[str]:
    """Tasks of the second step, where one more is made."""
    await curriculum.tasks(1, 1)
    return [task.id for task in await curriculum.tasks(2, 1)]


async def test_made_tasks_get_the_judges_that_settings_name(tmp_path: Path) -> None:
    two = 'task_generator = "orders:like"\njudges = ["orders:judge", "experience"]'
    curriculum, rollouts = put_together(tmp_path, two, ScriptedChatDouble("{}"))
    await made_by(curriculum)
    assert [(task.id, task.checker) for task in rollouts.admitted] == [("a~2.1", AGREED)]
    assert AGREED in rollouts.judges
    other = tmp_path / "one"
    other.mkdir()
    one, rollouts = put_together(other, 'task_generator = "orders:like"\nchecker = "orders:judge"')
    await made_by(one)
    assert [task.checker for task in rollouts.admitted] == ["orders:judge"]


async def test_a_made_task_without_any_judge_never_trains(tmp_path: Path) -> None:
    curriculum, rollouts = put_together(tmp_path, 'task_generator = "orders:like"')
    await made_by(curriculum)
    assert rollouts.admitted == []
    assert curriculum.course(2)[0]["refused"] == {"unjudged": 1}


def test_what_a_world_was_seen_to_hold_is_read_from_its_answers() -> None:
    store = MemoryStore()
    store.put([ROW])
    worlds = RecordedValues(store, "default")
    assert worlds.values(Environment("shop", 1)) == ("O12", "21.5", "a lamp")
    assert worlds.recorded(Environment("shop", 1))
    assert not worlds.recorded(Environment("shop", 2))
    assert RecordedValues(None, "default").recorded(Environment("shop", 2))


async def test_a_secret_that_a_maker_puts_into_a_task_is_masked_before_it_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_API_KEY", "sk-live-HxqZkTbVnQwErTyU")
    curriculum, rollouts = put_together(
        tmp_path, 'task_generator = "orders:telling"\nchecker = "orders:judge"'
    )
    await made_by(curriculum)
    (made,) = rollouts.admitted
    told = (
        str(made.input)
        + str(curriculum.course(2))
        + "".join(path.read_text() for path in (tmp_path / "made").iterdir())
    )
    assert "HxqZkTbVnQwErTyU" not in told
    assert "please" in told


async def test_a_models_variation_joins_the_tasks_under_two_judges(tmp_path: Path) -> None:
    chat = ScriptedChatDouble(
        {"variations": ["Cancel order O12 and refund it.", "Cancel order O99."]},
        {"reasoning": "more specific", "selection": 1},
    )
    said = 'llm_variations = true\nsynthetic = 1.0\njudges = ["orders:judge", "experience"]'
    curriculum, rollouts = put_together(tmp_path, said, chat)
    await made_by(curriculum)
    (made,) = rollouts.admitted
    assert made.input["messages"][-1]["content"] == "Cancel order O12 and refund it."
    assert (made.checker, made.environment) == (AGREED, TASKS[0].environment)
    assert curriculum.course(2)[0]["made"][0]["how"] == "model"
