"""`workers.count` and `shard` as a person meets them: the same run, in other processes or in parts."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dreamgym_kit.rollout.journal import JournalReader

Run = Callable[..., subprocess.CompletedProcess[str]]
pytestmark = pytest.mark.slow


def digests(directory: Path) -> dict[str, str]:
    return {episode.id: episode.digest for episode in JournalReader(directory / "episodes.jsonl")}


def told(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode in (0, 1, 3), done.stderr  # whatever became of its episodes
    return json.loads(done.stdout)


def without_its_name(report: dict[str, Any]) -> dict[str, Any]:
    """A report but for what no two runs share: its run's name, times, and what was typed."""
    spent = {**report["manifest"]["spent"], "seconds": 0}
    report = {
        **report,
        "manifest": {**report["manifest"], "run": "", "directory": "", "record": "", "spent": spent},
    }
    return {**report, "cost": {**report["cost"], "seconds": 0}}


SIMULATE = ("simulate", "agent:graph", "--tasks", "tasks.jsonl", "--repeats", "2", "--json")


def test_workers_give_the_episodes_and_the_report_of_one_process(recorded: Path, run: Run) -> None:
    alone = told(run(*SIMULATE))
    spread = told(run(*SIMULATE, "--set", "workers.count=2"))
    assert without_its_name(spread) == without_its_name(alone)
    places = [Path(report["manifest"]["directory"]) for report in (alone, spread)]
    assert digests(places[0]) == digests(places[1])
    events = [json.loads(line)["event"] for line in (places[1] / "events.jsonl").read_text().splitlines()]
    assert events.count("call") == 12
    assert not (recorded / "REAL").exists()


@pytest.mark.nightly
def test_shards_are_merged_into_the_run_that_they_are(recorded: Path, run: Run) -> None:
    alone = told(run(*SIMULATE))
    parts = [told(run(*SIMULATE, "--set", f"shard={number}/2")) for number in (1, 2)]
    places = [part["manifest"]["directory"] for part in parts]
    merge = ("runs", "merge", *places, "--into", "merged", "--json")
    merged = told(run(*merge))
    assert without_its_name(merged) == without_its_name(alone)
    assert digests(recorded / "merged") == digests(Path(alone["manifest"]["directory"]))
    before = {path.name: path.read_bytes() for path in (recorded / "merged").iterdir()}
    assert told(run(*merge)) == merged
    assert {path.name: path.read_bytes() for path in (recorded / "merged").iterdir()} == before
    missing = run("runs", "merge", places[0], "--into", "other")
    assert (missing.returncode, "shard 2 of 2: not among" in missing.stderr) == (2, True)
    twice = run("runs", "merge", places[0], *places, "--into", "other")
    assert (twice.returncode, "are both shard 1/2" in twice.stderr) == (2, True)
    in_the_way = run("runs", "merge", *reversed(places), "--into", places[0])
    assert (in_the_way.returncode, "already exists" in in_the_way.stderr) == (2, True)
    no_shard = run("runs", "merge", alone["manifest"]["directory"], "--into", "other")
    assert (no_shard.returncode, "is not a shard" in no_shard.stderr) == (2, True)
    odd = run(*SIMULATE[:-3], "--repeats", "1", "--set", "shard=2/2", "--json")
    others = run("runs", "merge", places[0], told(odd)["manifest"]["directory"], "--into", "other")
    assert (others.returncode, "is from another run" in others.stderr, "n: 2 in" in others.stderr) == (
        2,
        True,
        True,
    )
    assert not (recorded / "other").exists()


@pytest.mark.parametrize(
    ("said", "why"), [("3/2", "write I/N"), ("0/2", "write I/N"), ("3/3", "only 2 tasks")]
)
def test_a_shard_that_there_cannot_be_is_refused(recorded: Path, run: Run, said: str, why: str) -> None:
    done = run(*SIMULATE, "--set", f"shard={said}")
    assert (done.returncode, why in done.stderr) == (2, True)


@pytest.mark.nightly
def test_recording_in_workers_keeps_what_one_process_keeps(
    project: Path, run: Run, refusal, own_systems: Callable[[], None]
) -> None:
    arguments = ("record", "agent:graph", "--tasks", "tasks.jsonl", "--yes", "--set", "workers.count=2")
    assert "isolated = True" in refusal(*arguments)
    own_systems()
    done = run(*arguments)
    assert done.returncode == 0, done.stderr
    assert "  Real calls    6 of 6 tool calls, as asked\n" in done.stdout
    assert (project / "REAL").read_text() == "xxxx"


def test_a_refused_call_of_no_episode_is_told_also_from_a_worker(recorded: Path, run: Run) -> None:
    """A thread that the agent's module starts calls a real tool by itself, in each worker."""
    agent = recorded / "agent.py"
    agent.write_text(agent.read_text() + STRAYS)
    done = run(*SIMULATE, "--set", "workers.count=2")
    assert not (recorded / "REAL").exists()
    told = json.loads(done.stdout)
    assert done.returncode == 1, done.stderr
    assert any("refund_payment" in stray for stray in told["manifest"]["strays"])


STRAYS = """

import threading

THINKING, TRIED = threading.Event(), threading.Event()


def held():  # episodes wait for the thread and it for them: it tries while the run runs
    THINKING.set()
    TRIED.wait(600)


def _by_itself():
    THINKING.wait(600)
    for _ in range(20):
        try:
            refund_payment.invoke({"order_id": "A-1"})
        except BaseException:
            pass
        TRIED.set()


if "engines.processes" in " ".join(__import__("sys").orig_argv):
    threading.Thread(target=_by_itself, daemon=True).start()
"""


@pytest.mark.nightly
def test_workers_that_would_have_nothing_to_do_are_told_of(recorded: Path, run: Run) -> None:
    done = run(*SIMULATE, "--set", "workers.count=3", "--set", "simulate.concurrency=1")
    assert told(done)["schema"]
    assert "only 1 of 3 workers ran: at most 1 episodes run at once" in " ".join(done.stderr.split())


@pytest.mark.nightly
def test_what_is_printed_in_workers_is_not_in_the_result(recorded: Path, run: Run) -> None:
    agent = recorded / "agent.py"
    thinks = agent.read_text().replace("        time.sleep(", '        print("thinks")\n        time.sleep(')
    agent.write_text('print("imported")\n' + thinks)
    done = run(*SIMULATE, "--set", "workers.count=2", PYTHONUNBUFFERED="")  # as it is where nobody set it
    assert told(done)["schema"]
    assert "thinks" in done.stderr
