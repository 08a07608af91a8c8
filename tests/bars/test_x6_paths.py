"""X6: whatever a run, task, episode or tool is called, every file lies in the run directory."""

import asyncio
import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from each_row import each_row
from hypothesis import given, settings
from hypothesis import strategies as st

from dreamgym_kit.errors import RunDirectoryError
from dreamgym_kit.rollout import rundir
from dreamgym_kit.rollout.engine import Job, run_episodes
from dreamgym_kit.rollout.rundir import Manifest, RunDirectory
from dreamgym_kit.rollout.stop import StopSwitch
from dreamgym_kit.types import Answer, Call, Effect, Environment, Episode, Task, Transition, Verdict

HOSTILE = [
    *("../x", "../../x", "/etc/x", "a/../../x", "..", ".", "", " ", "x\0y", "n" * 300, "\u00e4" * 200),
    *(
        "CON",
        "nul",
        "com1",
        "x.",
        "x ",
        "\u2024\u2024/x",
        "\uff0e\uff0e\uff0fx",
        "a\\..\\b",
        "C:\\x",
    ),
    *("x\ny", "\ud800", "\u202ex", "manifest.json", "lock", "$HOME", "~", "-rf", "%2e%2e%2f", "|touch x"),
]
FILES = {"manifest.json", "episodes.jsonl", "events.jsonl", "report.json", "lock"}
anything = st.one_of(st.sampled_from(HOSTILE), st.text(st.characters(), max_size=50))


class RunnerDouble:
    """Gives an episode whose names are those of its task."""

    async def run(self, task: Task, *, repeat: int, attempt: int) -> Episode:
        name = f"{task.id}.{repeat}"
        step = Transition(Call(task.id, {}), Answer("x"), Effect.READ, name, 1, tenant=task.id, task=task.id)
        return Episode(name, task.id, repeat, Environment(task.id), Verdict.PASSED, task.id, (step,))


def run(root: Path, name: str, ids: list[str]) -> list[str]:
    """Run a whole run with these names; give the ids that its journal holds."""
    with RunDirectory.create(root, name, Manifest(name, 0.0, {name: name})) as directory:
        with directory.journal() as journal, directory.events() as events:
            jobs = [Job(Task(task, {}), 1) for task in ids]
            going = run_episodes(
                jobs, RunnerDouble(), journal=journal, concurrency=2, events=events, stop=StopSwitch()
            )
            asyncio.run(going)
        directory.write_report({"run": "x"})
        return [episode.task for episode in directory.episodes()]


def outside(top: Path) -> list[str]:
    """Every file or folder below `top` that is not one of a run directory right below `top`/runs."""
    found = []
    for folder, folders, files in os.walk(top):
        depth = len(Path(folder).relative_to(top).parts)
        found += [name for name in files if depth != 2 or name not in FILES]
        found += [name for name in folders if (depth, name) != (0, "runs") and depth != 1]
    return found


@settings(max_examples=40, derandomize=True, deadline=None)
@given(name=anything, ids=st.lists(anything, min_size=1, max_size=4, unique=True))
def test_no_name_leads_out_of_the_run_directory(name: str, ids: list[str]) -> None:
    with TemporaryDirectory() as folder:
        top = Path(folder)
        assert sorted(run(top / "runs", name, ids)) == sorted(ids)
        assert outside(top) == []


def test_each_hostile_name(tmp_path: Path) -> None:
    for place, name in enumerate(HOSTILE):
        run(tmp_path / str(place) / "runs", name, HOSTILE)
    left = [found for place in range(len(HOSTILE)) for found in outside(tmp_path / str(place))]
    print(f"X6 names={len(HOSTILE)} outside={len(left)}")
    assert left == []


@each_row("name", ["episodes.jsonl", "events.jsonl", "lock", "report.json", "manifest.json"])
def test_a_link_in_the_run_directory_is_not_followed(tmp_path: Path, name: str) -> None:
    manifest = Manifest("7f3a", 0.0, {})
    RunDirectory.create(tmp_path / "runs", "a", manifest).close()
    (victim := tmp_path / "victim").write_text("{}")
    (link := tmp_path / "runs" / "a" / name).unlink(missing_ok=True)
    link.symlink_to(victim)
    try:
        with RunDirectory.resume(tmp_path / "runs" / "a", manifest) as directory:
            directory.write_report({"x": 1})
            directory.events().emit("x")
            directory.journal()
    except RunDirectoryError:
        pass  # a report takes the link's place, all others refuse it
    assert victim.read_text() == "{}"


def test_a_linked_run_directory_is_refused(tmp_path: Path) -> None:
    manifest = Manifest("7f3a", 0.0, {})
    RunDirectory.create(tmp_path / "elsewhere", "a", manifest).close()
    (tmp_path / "runs").mkdir()
    (link := tmp_path / "runs" / "a").symlink_to(tmp_path / "elsewhere" / "a")
    with pytest.raises(RunDirectoryError, match="is a link; give the run directory itself"):
        RunDirectory.resume(link, manifest)
    with pytest.raises(RunDirectoryError, match="already exists"):
        RunDirectory.create(tmp_path / "runs", "a", manifest)


def test_a_directory_named_as_it_is_asked_is_caught(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(rundir, "directory_name", lambda name: name)
    run(tmp_path / "runs", "../x", ["t"])
    assert outside(tmp_path) != []
