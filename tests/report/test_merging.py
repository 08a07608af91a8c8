"""Shards that do not make one run are refused by name, and nothing of them is left where the run would be."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from each_row import each_row

from dreamgym_kit.errors import UserError
from dreamgym_kit.report.merging import merge_runs
from dreamgym_kit.rollout.journal import Journal
from dreamgym_kit.rollout.rundir import EPISODES, Manifest, RunDirectory
from dreamgym_kit.types import Environment, Episode, Verdict


def shard(
    root: Path, number: int, tasks: Sequence[str], *, lacks: int = 0, ended: Mapping[str, Any] | None = None
) -> Path:
    """A run directory of one of two shards, each task once; `ended`: what its end told."""
    matters = {"mode": "dream", "n": 1, "shard": {"number": number, "of": 2}}
    manifest = Manifest(f"run{number}", 1_795_271_485.0, matters, {"tasks": len(tasks) + lacks})
    with RunDirectory.create(root, f"shard-{number}", manifest) as directory:
        with directory.journal() as journal:
            for task in tasks:
                journal.append(Episode(f"{task}.1", task, 1, Environment("desk", 1), Verdict.PASSED, "done"))
        if ended is not None:
            directory.write_report({"manifest": dict(ended)})
        return directory.path


def merged_error(tmp_path: Path, *shards: Path) -> str:
    with pytest.raises(UserError) as refused:
        merge_runs(shards, tmp_path / "whole")
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {path.name for path in shards}, "something was left behind"
    return str(refused.value)


def test_whole_shards_become_one_run(tmp_path: Path) -> None:
    done = merge_runs([shard(tmp_path, 2, ["b"]), shard(tmp_path, 1, ["a", "c"])], tmp_path / "whole")
    assert (done.episodes, done.again) == (3, False)
    assert [one.id for one in RunDirectory.open(tmp_path / "whole").episodes()] == ["a.1", "c.1", "b.1"]


def test_shards_whose_errors_were_run_again_are_merged_anew(tmp_path: Path) -> None:
    shards = [shard(tmp_path, 1, ["a"]), shard(tmp_path, 2, ["b"], lacks=1)]
    lost = Episode("c.1", "c", 1, Environment("desk", 1), Verdict.ERROR, "lost", stop="lost")
    with Journal(shards[1] / EPISODES) as journal:
        journal.append(lost)
    assert merge_runs(shards, tmp_path / "whole").summary.errors == 1
    assert merge_runs(shards, tmp_path / "whole").again
    with Journal(shards[1] / EPISODES) as journal:
        journal.append(replace(lost, verdict=Verdict.PASSED, reason="done", stop="finished", attempt=2))
    anew = merge_runs(shards, tmp_path / "whole")
    assert (anew.again, anew.summary.errors, anew.summary.passed) == (False, 0, 3)
    assert [one.verdict for one in RunDirectory.open(tmp_path / "whole").episodes()] == [Verdict.PASSED] * 3
    assert merge_runs(shards, tmp_path / "whole").again
    assert {path.name for path in tmp_path.iterdir()} == {"shard-1", "shard-2", "whole"}


def test_a_merged_run_that_was_resumed_itself_is_not_merged_over(tmp_path: Path) -> None:
    shards = [shard(tmp_path, 1, ["a"]), shard(tmp_path, 2, [], lacks=1)]
    lost = Episode("c.1", "c", 1, Environment("desk", 1), Verdict.ERROR, "lost", stop="lost")
    with Journal(shards[1] / EPISODES) as journal:
        journal.append(lost)
    whole = merge_runs(shards, tmp_path / "whole").directory
    with Journal(whole / EPISODES) as journal:
        journal.append(replace(lost, verdict=Verdict.PASSED, reason="done", stop="finished", attempt=2))
    with pytest.raises(UserError, match="was resumed after the merge"):
        merge_runs(shards, whole)
    assert [one.verdict for one in RunDirectory.open(whole).episodes()] == [Verdict.PASSED] * 2


def test_spend_adds_up_and_what_a_shared_server_counted_does_not(tmp_path: Path) -> None:
    ended = {
        "spent": {"calls": 3, "usd": 0.5, "seconds": 4.0},
        "servers": [{"server": "http://h", "prompt_tokens": 9}],
    }
    shards = [shard(tmp_path, number, [name], ended=ended) for number, name in ((1, "a"), (2, "b"))]
    for path, begun in zip(shards, ([0, 100], [2]), strict=True):  # the first was resumed 90 s later
        with (path / "events.jsonl").open("w") as log:
            for at in begun:
                log.write(json.dumps({"at": at, "event": "run_started"}) + "\n")
                log.write(json.dumps({"at": at + 10, "event": "episode_finished", "episode": "a.1"}) + "\n")
    done = merge_runs(shards, tmp_path / "whole")
    assert done.summary.manifest["spent"] == {"calls": 6, "usd": 1.0, "seconds": 22.0}
    assert done.summary.elapsed_s == 22.0
    assert "servers" not in done.summary.manifest


def test_logs_of_any_length_are_merged_by_the_clock(tmp_path: Path) -> None:
    shards = [shard(tmp_path, number, [name]) for number, name in ((1, "a"), (2, "b"))]
    for number, path in enumerate(shards):
        with (path / "events.jsonl").open("w") as file:
            for at in range(70):
                file.write(json.dumps({"at": 2 * at + number, "event": "call", "text": "x" * 2**20}) + "\n")
    merge_runs(shards, tmp_path / "whole")
    with (tmp_path / "whole" / "events.jsonl").open() as told:
        assert [json.loads(line)["at"] for line in told] == list(range(140))


def test_a_name_that_no_run_directory_can_have_is_told(tmp_path: Path) -> None:
    shards = [shard(tmp_path, 1, ["a"]), shard(tmp_path, 2, ["b"])]
    with pytest.raises(UserError, match=r"v1\.2: not a name for a run directory; use letters"):
        merge_runs(shards, tmp_path / "v1.2")
    assert {path.name for path in tmp_path.iterdir()} == {"shard-1", "shard-2"}


@each_row(
    ("second", "lacks", "why"),
    [
        ("b", 2, "shard 2/2 has 2 of its 3 episodes left; finish it with --resume first"),
        ("a", 0, "has episode 'a.1', also in another shard"),
    ],
)
def test_shards_that_make_no_run_are_told_and_nothing_is_left(
    tmp_path: Path, second: str, lacks: int, why: str
) -> None:
    assert why in merged_error(tmp_path, shard(tmp_path, 1, ["a"]), shard(tmp_path, 2, [second], lacks=lacks))
