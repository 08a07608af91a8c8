"""What every engine promises: in one process, in processes of this machine, in a cluster."""

import asyncio
import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from contracts.engine_acts import ended
from contracts.engines import jobs, run, tasks
from waiting import wait_until, wait_until_async

from dreamgym_kit.errors import RunDirectoryError
from dreamgym_kit.rollout import atomic_files
from dreamgym_kit.rollout.budgets import RunBudget
from dreamgym_kit.rollout.engine import RunTotals
from dreamgym_kit.rollout.journal import Journal, JournalReader
from dreamgym_kit.rollout.stop import StopSwitch
from dreamgym_kit.types import Episode, Task, Verdict

DISTANT = [
    pytest.param("workers", marks=pytest.mark.slow),
    pytest.param("ray", marks=pytest.mark.ray),
]
pytestmark = pytest.mark.parametrize("engine", ["local", *DISTANT])


class ListSink:
    """Keeps what it hears."""

    def __init__(self, hear: Callable[[dict[str, Any]], None] = lambda _: None) -> None:
        self.heard: list[dict[str, Any]] = []
        self._hear = hear

    def emit(self, kind: str, /, **facts: object) -> None:
        event = {"event": kind} | facts
        self.heard.append(event)
        self._hear(event)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "episodes.jsonl"


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """Where episodes leave a file each as they begin."""
    (tmp_path / "begun").mkdir()
    return tmp_path / "begun"


def kept(path: Path) -> dict[str, Episode]:
    return {episode.id: episode for episode in JournalReader(path)}


def one(act: str, **meta: Any) -> list[Task]:
    return tasks(1, act, **meta)


def with_one(odd: int, count: int, act: str, **meta: Any) -> list[Task]:
    """Tasks that end well but for one."""
    given = tasks(count)
    given[odd] = Task(f"t{odd}", {}, meta={"act": act, **meta})
    return given


async def test_every_job_is_run_once_and_journaled(engine: str, path: Path, begun: Path) -> None:
    ran = await run(engine, path, tasks(20, "counts_itself", folder=str(begun)))
    assert ran.totals == RunTotals(20, 0, 20, 0, 0, 0, 0, 0, calls=20, cost_usd=10.0)
    assert ran.totals.finished == len(kept(path)) == 20
    assert len(list(begun.iterdir())) == 20


@pytest.mark.parametrize("lanes", [1, 3, 100])
async def test_at_most_so_many_run_at_once(engine: str, path: Path, lanes: int) -> None:
    running: set[str] = set()
    most = 0

    def hear(event: dict[str, Any]) -> None:
        nonlocal most
        if event["event"] == "episode_started":
            running.add(event["episode"])
            most = max(most, len(running))
        elif event["event"] == "episode_finished":
            running.discard(event["episode"])

    ran = await run(engine, path, tasks(12, "takes", s=0.1), concurrency=lanes, events=ListSink(hear))
    assert most == min(lanes, 12)
    assert ran.seconds >= 0.1 * 12 / min(lanes, 12)


async def test_a_resume_runs_what_the_journal_lacks(engine: str, path: Path) -> None:
    given = tasks(8)
    with Journal(path) as journal:
        for job in jobs(given)[::2]:
            journal.append(ended(job, Verdict.FAILED))
    sink = ListSink()
    totals = (await run(engine, path, given, events=sink)).totals
    begun = [event["episode"] for event in sink.heard if event["event"] == "episode_started"]
    assert begun == ["t1.1", "t3.1", "t5.1", "t7.1"]
    assert (totals.total, totals.earlier, totals.failed, totals.passed) == (8, 4, 4, 4)


async def test_an_episode_is_in_the_journal_before_it_is_counted_or_told(engine: str, path: Path) -> None:
    seen: list[bool] = []

    def hear(event: dict[str, Any]) -> None:
        if event["event"] == "episode_finished":
            seen.append(event["episode"] in kept(path))

    def counted(episode: Episode) -> None:
        seen.append(episode.id in kept(path))

    await run(engine, path, tasks(8), events=ListSink(hear), on_episode=counted)
    assert seen == [True] * 16


async def test_the_result_does_not_depend_on_the_order_of_finishing(engine: str, tmp_path: Path) -> None:
    runs = []
    for lanes in (1, 8):
        path = tmp_path / f"{lanes}.jsonl"
        await run(engine, path, tasks(8), concurrency=lanes)
        runs.append({name: episode.digest for name, episode in kept(path).items()})
    assert runs[0] == runs[1]


async def test_each_episode_has_a_context_of_its_own(engine: str, path: Path) -> None:
    await run(engine, path, tasks(8, "context"))
    assert [(episode.verdict, episode.final) for episode in kept(path).values()] == [(Verdict.PASSED, "")] * 8


@pytest.mark.parametrize(
    ("error", "stop", "reason"),
    [
        ("type_error", "error", "its runner failed: TypeError: no way"),
        ("system_exit", "error", "its runner failed: SystemExit: 3"),
        ("memory_error", "error", "its runner failed: MemoryError"),
        ("gate_refused", "violation", "mail was about to run"),
        ("abstained", "abstained", "never seen"),
        ("cancelled", "error", "its runner failed: it cancelled itself"),
        ("mute", "error", "its runner failed: Mute"),
    ],
)
async def test_what_a_runner_raises_ends_its_episode_only(
    engine: str, path: Path, error: str, stop: str, reason: str
) -> None:
    totals = (await run(engine, path, with_one(2, 8, "raises", error=error))).totals
    verdict = Verdict.ERROR if stop == "error" else Verdict.INCONCLUSIVE
    assert (totals.passed, totals.errors + totals.inconclusive) == (7, 1)
    assert totals.errors == (verdict is Verdict.ERROR)
    episode = kept(path)["t2.1"]
    assert (episode.verdict, episode.stop, episode.reason) == (verdict, stop, reason)


async def test_a_resume_runs_errors_again_and_only_those(engine: str, path: Path) -> None:
    await run(engine, path, with_one(2, 8, "raises", error="type_error"))
    first = kept(path)["t2.1"]
    sink = ListSink()
    totals = (await run(engine, path, tasks(8), events=sink)).totals
    begun = [event["episode"] for event in sink.heard if event["event"] == "episode_started"]
    assert begun == ["t2.1"]
    assert (totals.earlier, totals.passed, totals.errors) == (7, 8, 0)
    again = kept(path)["t2.1"]
    assert (first.verdict, first.attempt, again.verdict, again.attempt) == (
        Verdict.ERROR,
        1,
        Verdict.PASSED,
        2,
    )


@pytest.mark.parametrize(
    ("act", "reason"),
    [
        ("something_else", "its runner failed: TypeError: the runner gave str instead of an episode"),
        ("another", "its runner failed: ValueError: the runner gave episode 'x.1' instead of 't0.1'"),
    ],
)
async def test_a_runner_that_gives_something_else_is_named(
    engine: str, path: Path, act: str, reason: str
) -> None:
    await run(engine, path, one(act))
    assert kept(path)["t0.1"].reason == reason


async def test_an_episode_that_cannot_be_written_is_an_error(engine: str, path: Path) -> None:
    totals = (await run(engine, path, one("not_json"))).totals
    assert totals.errors == 1
    assert kept(path)["t0.1"].reason.startswith("its record cannot be kept: ")


@pytest.mark.parametrize("way", ["hangs", "stubborn"])
async def test_a_runner_that_passes_its_limit_is_ended_and_the_rest_go_on(
    engine: str, path: Path, way: str
) -> None:
    """While it runs ten minutes pass at once: no other episode comes near the limit."""
    given = with_one(0, 8, way, passes_s=600)
    totals = (await run(engine, path, given, concurrency=1, limit_s=599, grace_s=1)).totals
    assert (totals.passed, totals.inconclusive) == (7, 1)
    episode = kept(path)["t0.1"]
    assert (episode.stop, episode.reason) == ("limit", "did not end within 600 s, its limit and some grace")
    assert episode.elapsed_s >= 0.09


async def test_asked_to_stop_it_finishes_what_runs_and_begins_nothing(engine: str, path: Path) -> None:
    stop = StopSwitch()

    def hear(event: dict[str, Any]) -> None:
        if event["event"] == "episode_started" and event["episode"] == "t3.1":
            stop.request("enough")

    sink = ListSink(hear)
    totals = (await run(engine, path, tasks(8, "takes", s=0.05), stop=stop, events=sink)).totals
    assert totals == RunTotals(8, 0, 4, 0, 0, 0, 0, 4, calls=4, cost_usd=2.0, stopped="enough")
    assert {"event": "run_stopping", "reason": "enough"} in sink.heard
    assert (await run(engine, path, tasks(8))).totals.passed == 8


@pytest.mark.parametrize("way", ["hangs", "stubborn"])
async def test_cancelled_from_another_thread_it_drops_what_runs(
    engine: str, path: Path, begun: Path, way: str
) -> None:
    """They would run for an hour, or for ever."""
    given = [*tasks(4), *tasks(12, way, begun=str(begun))[4:]]
    stop, sink = StopSwitch(), ListSink()

    def press() -> None:
        wait_until(lambda: len(os.listdir(begun)) == 4, "four that hang")
        stop.cancel("SIGINT")

    pressing = threading.Thread(target=press)
    pressing.start()
    ran = await run(engine, path, given, stop=stop, events=sink)
    pressing.join()
    assert ran.totals == RunTotals(12, 0, 4, 0, 0, 0, 4, 4, calls=4, cost_usd=2.0, stopped="SIGINT")
    assert set(kept(path)) == {"t0.1", "t1.1", "t2.1", "t3.1"}
    assert len([one for one in sink.heard if one.get("reason") == "dropped when the run was stopped"]) == 4


async def test_stopped_before_it_begins_it_runs_nothing(engine: str, path: Path) -> None:
    stop = StopSwitch()
    stop.request("no")
    assert (await run(engine, path, tasks(8), stop=stop)).totals.not_run == 8


async def test_the_callers_own_cancellation_drops_what_runs(engine: str, path: Path, begun: Path) -> None:
    going = asyncio.create_task(run(engine, path, tasks(8, "hangs", begun=str(begun))))
    await wait_until_async(lambda: len(os.listdir(begun)) == 4, "four that hang")
    going.cancel()
    with pytest.raises(asyncio.CancelledError):
        await going
    assert kept(path) == {}
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []


async def test_a_spent_budget_stops_the_run_and_its_cut_episodes_run_again(engine: str, path: Path) -> None:
    ran = await run(engine, path, tasks(8, "two_calls"), budget=RunBudget(calls=5), concurrency=1)
    totals = ran.totals
    assert (totals.passed, totals.cut, totals.not_run) == (2, 1, 5)
    assert totals.stopped == "budget spent: calls (limit 5)"
    assert set(kept(path)) == {"t0.1", "t1.1"}
    assert (await run(engine, path, tasks(8))).totals.passed == 8


async def test_calls_are_never_passed_by_all_lanes_together(engine: str, path: Path) -> None:
    budget = RunBudget(calls=25)
    await run(engine, path, tasks(40, "two_calls"), budget=budget, concurrency=8)
    assert budget.calls == 25


async def test_dollars_are_passed_by_at_most_what_is_in_flight(engine: str, path: Path) -> None:
    budget = RunBudget(usd=0.5)
    await run(engine, path, tasks(20, "spends"), budget=budget, concurrency=8)
    assert 0.5 <= budget.usd <= 0.5 + 8 * 0.01


async def test_a_runner_that_says_cancelled_itself_is_not_finished(engine: str, path: Path) -> None:
    given = [*with_one(0, 1, "says_cancelled"), Task("t1", {}, meta={"act": "undecided"})]
    totals = (await run(engine, path, given)).totals
    assert (totals.cut, totals.inconclusive, list(kept(path))) == (1, 1, ["t1.1"])


@pytest.mark.parametrize("lanes", [1, 4])
async def test_a_full_disk_ends_the_run_with_its_name_and_keeps_what_was_finished(
    engine: str, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lanes: int
) -> None:
    """t2 ends after t0 and t1, and the others once the disk is full."""
    two, filled = tmp_path / "two", tmp_path / "filled"
    given = tasks(8, "after", file=str(filled))
    given[:3] = [*tasks(2), Task("t2", {}, meta={"act": "after", "file": str(two)})]
    finished: set[str] = set()

    def full(_descriptor: int, _data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    def hear(event: dict[str, Any]) -> None:
        if event["event"] != "episode_finished":
            return
        finished.add(event["episode"])
        if finished == {"t0.1", "t1.1"}:
            two.touch()
        elif event["episode"] == "t2.1":
            monkeypatch.setattr(atomic_files.os, "write", full)
            filled.touch()

    with pytest.raises(RunDirectoryError, match=r"episodes\.jsonl: cannot be written \(No space left"):
        await run(engine, path, given, concurrency=lanes, events=ListSink(hear))
    monkeypatch.undo()
    assert set(kept(path)) == {"t0.1", "t1.1", "t2.1"}
    assert (await run(engine, path, tasks(8))).totals.passed == 8


async def test_events_tell_of_each_beginning_call_and_end(engine: str, path: Path) -> None:
    sink = ListSink()
    await run(engine, path, one("tells"), events=sink)
    assert sink.heard == [
        {"event": "episode_started", "episode": "t0.1"},
        {"event": "call", "episode": "t0.1", "step": 1, "tool": "look_up"},
        {"event": "episode_finished", "episode": "t0.1", "verdict": "passed", "reason": "ok", "calls": 1,
         "done": 1, "total": 1, "finished": True, "imagined": False},
    ]  # fmt: skip


async def test_sync_tools_of_all_lanes_sleep_at_the_same_time(engine: str, path: Path) -> None:
    lanes = 32 if engine == "local" else 16  # of each process
    ran = await run(engine, path, tasks(32, "meets_in_a_thread", lanes=lanes), concurrency=32)
    assert ran.totals.passed == 32  # the loop's own pool has too few threads for them to meet


async def test_ctrl_c_without_a_handler_stops_the_run_and_keeps_what_was_finished(
    engine: str, path: Path
) -> None:
    totals = (await run(engine, path, with_one(2, 8, "raises", error="interrupted"), concurrency=1)).totals
    assert (totals.passed, totals.cut, totals.stopped) == (2, 1, "SIGINT")
