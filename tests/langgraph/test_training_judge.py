"""A training's judge: named in its manifest, made of recorded work where settings ask for it."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from dreamgym_kit.adapters.langgraph import training
from dreamgym_kit.adapters.langgraph.goal_free import goal_free, judged_without_goals
from dreamgym_kit.adapters.langgraph.run_request import name_of_part
from dreamgym_kit.adapters.langgraph.training_directory import training_directory
from dreamgym_kit.adapters.langgraph.training_request import TrainRequest
from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.dream.checklist.imagined import ImaginedExperience
from dreamgym_kit.dream.checklist.verdict import ChecklistJudge
from dreamgym_kit.errors import RunDirectoryError, UserError
from dreamgym_kit.gate.policy import Mode
from dreamgym_kit.ports import Outcome
from dreamgym_kit.settings.load import parse_settings
from dreamgym_kit.settings.model import Settings
from dreamgym_kit.vocabulary import Task

TASK = Task("a", {"messages": "?"})


def strict(outcome: Outcome) -> bool:
    return bool(outcome.messages)


def kind(outcome: Outcome) -> bool:
    return True


def begun(folder: Path, **parts) -> TrainRequest:
    """A training's directory, made with these parts."""
    settings = Settings(path=folder / "dreamgym.toml")
    request = TrainRequest(
        graph="agent.py:graph", tasks=[TASK], settings=settings, directory=folder / "run", **parts
    )
    with training_directory(request, [TASK], [], folder / "model") as directory:
        directory.write_report({})
    return replace(request, resume=True)


def taken_up(request: TrainRequest, **parts) -> None:
    with training_directory(replace(request, **parts), [TASK], [], Path(request.settings.folder) / "model"):
        pass


def test_a_resume_with_another_judge_is_refused(tmp_path: Path) -> None:
    request = begun(tmp_path, judge=strict)
    taken_up(request)
    for other in (kind, None, ChecklistJudge.__new__(ChecklistJudge)):
        with pytest.raises(RunDirectoryError, match=r"was begun with other settings: judge: "):
            taken_up(request, judge=other)


def test_a_resume_with_other_worlds_is_refused(tmp_path: Path) -> None:
    one, other = (ImaginedExperience.__new__(ImaginedExperience) for _ in range(2))
    one.name, other.name = "imagined 1", "imagined 2"
    request = begun(tmp_path, experience=one)
    taken_up(request)
    with pytest.raises(RunDirectoryError, match=r'experience: "imagined 1" there, "imagined 2" here'):
        taken_up(request, experience=other)


def test_a_part_is_called_by_its_name_or_by_its_code() -> None:
    assert name_of_part(strict).endswith("test_training_judge:strict")
    assert name_of_part(MemoryStore()) == "dreamgym_kit.adapters.stores.memory:MemoryStore"


@pytest.mark.parametrize(
    ("toml", "store", "says"),
    [
        ("", None, "dreamgym.toml:1: a judge without goals learns from recordings, and there are none"),
        ("", MemoryStore(), "dreamgym.toml:1: the tasks of the recorded runs are not named; set judge.tasks"),
        ('tasks = "tasks.jsonl"\n', MemoryStore(), "runs/r: holds no episodes; name the run directory"),
        ("least = 0\n", MemoryStore(), "dreamgym.toml:3: judge.least must be at least 1"),
    ],
)
def test_what_a_judge_cannot_be_made_of_is_said(
    tmp_path: Path, toml: str, store: MemoryStore | None, says: str
) -> None:
    (tmp_path / "tasks.jsonl").write_text('{"id": "a", "input": "?"}\n')
    with pytest.raises(UserError, match=says):
        settings = parse_settings(f'[judge]\nrecorded = ["runs/r"]\n{toml}', path=tmp_path / "dreamgym.toml")
        judged_without_goals(settings, [TASK], [], store)


def test_runs_of_other_tasks_teach_a_judge_nothing_and_that_is_said(tmp_path: Path) -> None:
    (tmp_path / "episodes.jsonl").write_text("")
    with pytest.raises(UserError, match=r"no judged episode of these runs .* is of a task that is said to"):
        goal_free([TASK], [tmp_path], recorded_tasks=[TASK], store=MemoryStore(), settings=Settings())


def test_settings_alone_make_a_training_learn_without_goals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Sequence[Task]] = []

    class Made:
        experience, judge, tasks, found = "worlds", kind, (TASK,), "what it is worth"

    def making(settings: Settings, tasks: Sequence[Task], *_: object) -> type[Made]:
        asked.append(tasks)
        return Made

    monkeypatch.setattr(training, "judged_without_goals", making)
    settings = Settings().with_overrides({"judge.recorded": ("runs/r",)})
    request = TrainRequest(graph="g", tasks=[], settings=settings)
    both = [TASK, Task("b", {"messages": "?"})]
    changed, learn, found = training._judged(request, both, [])
    assert (changed.experience, changed.judge, learn, found) == ("worlds", kind, [TASK], Made.found)
    for untouched in (
        replace(request, judge=strict),
        replace(request, mode=Mode.S2R),
        replace(request, settings=Settings()),
    ):
        assert training._judged(untouched, both, []) == (untouched, both, None)
    assert asked == [both]
    with pytest.raises(UserError, match="a judge without goals comes with worlds of its own"):
        training._judged(replace(request, experience=object()), both, [])
