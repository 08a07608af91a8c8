import subprocess
import sys
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from dreamgym_kit.recipes.desk.cases import make_case
from dreamgym_kit.recipes.desk.database import OPERATIONS, DeskError, scratch_desk
from dreamgym_kit.recipes.desk.record import COLLEAGUES, RECORDINGS_FILE
from dreamgym_kit.recipes.desk.tasks import TASKS_FILE
from dreamgym_kit.replay.transfer import TransitionLine, read_lines
from dreamgym_kit.rollout.tasks import read_tasks
from dreamgym_kit.types import Source, Transition


def rows(path: Path) -> list[Transition]:
    with path.open("rb") as stream:
        read = list(read_lines(stream))
    assert all(isinstance(row, TransitionLine) for row in read)
    return [row.transition for row in read if isinstance(row, TransitionLine)]


SHIPPED = rows(RECORDINGS_FILE)


def by_episode(recorded: list[Transition]) -> dict[str, list[Transition]]:
    episodes: dict[str, list[Transition]] = defaultdict(list)
    for row in recorded:
        episodes[row.episode].append(row)
    return episodes


def told(row: Transition) -> Any:
    """What the agent was told, whatever form the tool has."""
    if row.answer.error is not None:
        return f"error: {row.answer.error}"
    if row.answer.update is not None:
        return {"target_id": row.call.args["target_id"], "escalated": "yes"}
    artifact = row.answer.artifact
    return artifact["structured_content"] if artifact else row.answer.content


def test_the_shipped_recordings_cover_every_task_by_every_colleague() -> None:
    tasks = {task.id for task in read_tasks(TASKS_FILE)}
    labels = {name.replace(":", "-") for name in COLLEAGUES}
    assert {*by_episode(SHIPPED)} == {f"{label}:{task}.1" for label in labels for task in tasks}
    assert RECORDINGS_FILE.stat().st_size < 1_500_000


def test_the_shipped_answers_are_what_the_real_desk_says() -> None:
    """Replayed call by call on a fresh desk, in the order recorded."""
    compared = 0
    for episode in by_episode(SHIPPED).values():
        with scratch_desk(make_case(episode[0].environment.variant).rows) as desk:
            for row in sorted(episode, key=lambda entry: entry.step):
                assert row.answer.source is Source.REAL
                if row.call.tool not in OPERATIONS:
                    continue
                try:
                    said: Any = desk.call(row.call.tool, row.call.args)
                except DeskError as error:
                    said = f"error: {error}"
                assert told(row) == said
                compared += 1
    assert compared > 1_000


def test_the_recordings_hold_the_timeout_and_what_came_after_it_both_ways() -> None:
    after = set()
    for episode in by_episode(SHIPPED).values():
        for row, following in pairwise(episode):
            if row.answer.error and "TimeoutError" in row.answer.error:
                after.add((episode[0].episode.partition(":")[0], following.call.tool))
    assert ("scripted", "refund_payment") in after
    assert ("scripted-fixed", "list_payments") in after


def said_in(row: Transition) -> tuple[str, ...]:
    """A row without what differs each time: clock times, and which of two calls made at once came first."""
    return (row.episode, row.call.call_id or "", row.call.key, row.after, str(told(row)))


@pytest.mark.nightly
def test_recording_again_gives_the_same_rows_but_for_the_clock(tmp_path: Path) -> None:
    out = tmp_path / "again.jsonl"
    command = [sys.executable, "-m", "dreamgym_kit.recipes.desk.record", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "scripted:fixed solved 100% of the tasks" in done.stdout
    assert sorted(map(said_in, rows(out))) == sorted(map(said_in, SHIPPED))
    assert [path.name for path in tmp_path.iterdir()] == ["again.jsonl"]


@pytest.mark.slow
def test_a_file_that_is_there_is_not_recorded_over(tmp_path: Path) -> None:
    out = tmp_path / "mine.jsonl"
    out.write_text("mine")
    command = [sys.executable, "-m", "dreamgym_kit.recipes.desk.record", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert done.stderr == f"error: {out}: is there already; name another file, or delete it first\n"
    assert out.read_text() == "mine"
