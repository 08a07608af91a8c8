"""The engine: what becomes of each episode, whatever its runner does and whenever the run is stopped."""

import asyncio
import errno
import random
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dreamgym_kit.errors import DreamAbstained, GateRefused, RunDirectoryError
from dreamgym_kit.rollout import files
from dreamgym_kit.rollout.budgets import RunBudget
from dreamgym_kit.rollout.engine import Job, RunTotals, jobs_for, run_episodes
from dreamgym_kit.rollout.events import NoEvents
from dreamgym_kit.rollout.journal import Journal, JournalReader
from dreamgym_kit.rollout.stop import StopSwitch
from dreamgym_kit.vocabulary import Answer, Call, Effect, Episode, Task, Transition, Verdict, World


def ended(job: Job, verdict: Verdict = Verdict.SUCCESS, stop: str = "finished") -> Episode:
    step = Transition(Call("look_up", {}), Answer("x"), Effect.READ, job.episode, 1)
    return Episode(
        job.episode, job.task.id, job.sibling, World(), verdict, "ok", (step,), stop=stop, cost_usd=0.5
    )


class RunnerDouble:
    """Does in each episode what the test says."""

    def __init__(self, act: Callable[[Job], Awaitable[object]]) -> None:
        self._act = act
        self.begun: list[str] = []
        self.running = self.most = 0

    async def run(self, task: Task, *, sibling: int, attempt: int) -> Episode:
        job = Job(task, sibling, attempt)
        self.begun.append(job.episode)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            said = await self._act(job)
        finally:
            self.running -= 1
        return said if said is not None else ended(job)


class ListSink:
    """Keeps what it hears."""

    def __init__(self) -> None:
        self.heard: list[dict] = []

    def emit(self, kind: str, /, **facts: object) -> None:
        self.heard.append({"event": kind} | facts)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "episodes.jsonl"


def jobs(count: int) -> list[Job]:
    return jobs_for([Task(f"t{number}", {}) for number in range(count)], 1)


async def run(
    path: Path, act: Callable[[Job], Awaitable[object]], count: int = 8, **given: object
) -> RunTotals:
    settings = {"concurrency": 4, "events": NoEvents(), "stop": StopSwitch()} | given
    with Journal(path) as journal:
        return await run_episodes(jobs(count), RunnerDouble(act), journal=journal, **settings)


async def soon(_job: Job) -> None:
    await asyncio.sleep(random.uniform(0, 0.005))


def kept(path: Path) -> dict[str, Episode]:
    return {episode.id: episode for episode in JournalReader(path)}


def test_groups_are_siblings_of_one_task_in_order() -> None:
    assert [job.episode for job in jobs_for([Task("a", {}), Task("a.1", {})], 2)] == [
        *("a.1", "a.2", "a.1.1", "a.1.2")
    ]


async def test_every_job_is_run_once_and_journaled(path: Path) -> None:
    totals = await run(path, soon, 20)
    assert totals == RunTotals(20, 0, 20, 0, 0, 0, 0, calls=20, cost_usd=10.0)
    assert totals.finished == len(kept(path)) == 20


@pytest.mark.parametrize("lanes", [1, 3, 100])
async def test_at_most_so_many_run_at_once(path: Path, lanes: int) -> None:
    runner = RunnerDouble(soon)
    with Journal(path) as journal:
        await run_episodes(
            jobs(12), runner, journal=journal, concurrency=lanes, events=NoEvents(), stop=StopSwitch()
        )
    assert runner.most == min(lanes, 12)


async def test_a_resume_runs_what_the_journal_lacks(path: Path) -> None:
    with Journal(path) as journal:
        for job in jobs(8)[::2]:
            journal.append(ended(job, Verdict.FAILURE))
    begun: list[str] = []

    async def note(job: Job) -> None:
        begun.append(job.episode)

    totals = await run(path, note)
    assert begun == ["t1.1", "t3.1", "t5.1", "t7.1"]
    assert (totals.total, totals.earlier, totals.failure, totals.success) == (8, 4, 4, 4)


async def test_an_episode_is_in_the_journal_before_it_is_counted_or_told(path: Path) -> None:
    seen: list[bool] = []

    class Looks:
        def emit(self, kind: str, /, **facts: object) -> None:
            if kind == "episode_finished":
                seen.append(facts["episode"] in kept(path))

    await run(path, soon, events=Looks(), on_episode=lambda episode: seen.append(episode.id in kept(path)))
    assert seen == [True] * 16


async def test_the_result_does_not_depend_on_the_order_of_finishing(tmp_path: Path) -> None:
    runs = []
    for lanes in (1, 8):
        path = tmp_path / f"{lanes}.jsonl"
        await run(path, soon, concurrency=lanes)
        runs.append({name: episode.digest for name, episode in kept(path).items()})
    assert runs[0] == runs[1]


async def test_each_episode_has_a_context_of_its_own(path: Path) -> None:
    from contextvars import ContextVar

    mine: ContextVar[str] = ContextVar("mine", default="")
    seen: list[str] = []

    async def act(job: Job) -> None:
        seen.append(mine.get())
        mine.set(job.episode)
        await asyncio.sleep(0)
        assert mine.get() == job.episode

    await run(path, act)
    assert seen == [""] * 8


@pytest.mark.parametrize(
    ("error", "stop", "reason"),
    [
        (TypeError("no\nway"), "error", "its runner failed: TypeError: no way"),
        (SystemExit(3), "error", "its runner failed: SystemExit: 3"),
        (MemoryError(), "error", "its runner failed: MemoryError"),
        (GateRefused("mail was about to run"), "violation", "mail was about to run"),
        (DreamAbstained("never seen"), "abstained", "never seen"),
        (asyncio.CancelledError(), "error", "its runner failed: it cancelled itself"),
    ],
)
async def test_what_a_runner_raises_ends_its_episode_only(
    path: Path, error: BaseException, stop: str, reason: str
) -> None:
    async def act(job: Job) -> None:
        if job.task.id == "t2":
            raise error

    totals = await run(path, act)
    assert (totals.success, totals.undetermined) == (7, 1)
    episode = kept(path)["t2.1"]
    assert (episode.verdict, episode.stop, episode.reason) == (Verdict.UNDETERMINED, stop, reason)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("an episode", "its runner failed: TypeError: the runner gave str instead of an episode"),
        (ended(Job(Task("x", {}), 1)),
         "its runner failed: ValueError: the runner gave episode 'x.1' instead of 't0.1'"),
    ],
)  # fmt: skip
async def test_a_runner_that_gives_something_else_is_named(path: Path, said: object, reason: str) -> None:
    async def act(_job: Job) -> object:
        return said

    await run(path, act, 1)
    assert kept(path)["t0.1"].reason == reason


async def test_an_error_whose_text_fails_is_still_recorded(path: Path) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    async def act(_job: Job) -> None:
        raise Mute

    await run(path, act, 1)
    assert kept(path)["t0.1"].reason == "its runner failed: Mute"


async def test_an_episode_that_cannot_be_written_is_undetermined(path: Path) -> None:
    async def act(job: Job) -> Episode:
        return replace(ended(job), final=float("nan"))

    totals = await run(path, act, 1)
    assert totals.undetermined == 1
    assert kept(path)["t0.1"].reason.startswith("its record cannot be kept: ")


async def stubborn(_job: Job) -> None:
    """Takes its cancellation for an error, for a while."""
    until = time.monotonic() + 1.5
    while (left := until - time.monotonic()) > 0:
        try:
            await asyncio.sleep(left)
        except asyncio.CancelledError:
            continue


async def hangs(_job: Job) -> None:
    await asyncio.sleep(60)


@pytest.mark.parametrize("way", [hangs, stubborn])
async def test_a_runner_that_passes_its_limit_is_ended_and_the_rest_go_on(path: Path, way) -> None:
    async def act(job: Job) -> None:
        if job.task.id == "t0":
            await way(job)

    began = time.monotonic()
    totals = await run(path, act, concurrency=1, limit_s=0.1, grace_s=0.1)
    assert time.monotonic() - began < 1.2
    assert (totals.success, totals.undetermined) == (7, 1)
    episode = kept(path)["t0.1"]
    assert (episode.stop, episode.reason) == ("limit", "did not end within 0.2 s, its limit and some grace")
    assert episode.elapsed_s >= 0.2


async def test_asked_to_stop_it_finishes_what_runs_and_begins_nothing(path: Path) -> None:
    stop, sink = StopSwitch(), ListSink()

    async def act(job: Job) -> None:
        await asyncio.sleep(0.02)
        if job.task.id == "t1":
            stop.request("enough")
        await asyncio.sleep(0.02)

    totals = await run(path, act, stop=stop, events=sink)
    assert totals == RunTotals(8, 0, 4, 0, 0, 0, 4, calls=4, cost_usd=2.0, stopped="enough")
    assert {"event": "run_stopping", "reason": "enough"} in sink.heard
    assert (await run(path, soon)).success == 8


@pytest.mark.parametrize("way", [hangs, stubborn])
async def test_cancelled_from_another_thread_it_drops_what_runs(path: Path, way) -> None:
    stop, sink = StopSwitch(), ListSink()

    async def act(job: Job) -> None:
        if int(job.task.id[1:]) >= 4:
            await way(job)

    threading.Timer(0.1, stop.cancel, ["SIGINT"]).start()
    began = time.monotonic()
    totals = await run(path, act, 12, stop=stop, events=sink)
    assert time.monotonic() - began < 1.0
    assert totals == RunTotals(12, 0, 4, 0, 0, 4, 4, calls=4, cost_usd=2.0, stopped="SIGINT")
    assert set(kept(path)) == {"t0.1", "t1.1", "t2.1", "t3.1"}
    dropped = [heard for heard in sink.heard if heard.get("reason") == "dropped when the run was stopped"]
    assert len(dropped) == 4


async def test_stopped_before_it_begins_it_runs_nothing(path: Path) -> None:
    stop = StopSwitch()
    stop.request("no")
    assert (await run(path, soon, stop=stop)).not_run == 8


async def test_the_callers_own_cancellation_drops_what_runs(path: Path) -> None:
    going = asyncio.create_task(run(path, hangs))
    await asyncio.sleep(0.05)
    going.cancel()
    with pytest.raises(asyncio.CancelledError):
        await going
    assert kept(path) == {}
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []


async def test_a_spent_budget_stops_the_run_and_its_cut_episodes_run_again(path: Path) -> None:
    budget, stop = RunBudget(calls=5), StopSwitch()

    async def two_calls(_job: Job) -> None:
        for _ in range(2):
            budget.charge(Call("pay", {}))
            await asyncio.sleep(0)

    totals = await run(path, two_calls, 8, stop=stop, concurrency=1)
    assert (totals.success, totals.cut, totals.not_run) == (2, 1, 5)
    assert totals.stopped == "budget spent: calls (limit 5)"
    assert set(kept(path)) == {"t0.1", "t1.1"}
    assert (await run(path, soon)).success == 8


async def test_a_runner_that_says_budget_or_cancelled_itself_is_not_finished(path: Path) -> None:
    async def act(job: Job) -> Episode:
        return ended(job, Verdict.UNDETERMINED, "cancelled" if job.task.id == "t0" else "finished")

    totals = await run(path, act, 2)
    assert (totals.cut, totals.undetermined, list(kept(path))) == (1, 1, ["t1.1"])


@pytest.mark.parametrize("lanes", [1, 4])
async def test_a_full_disk_ends_the_run_with_its_name_and_keeps_what_was_finished(
    path: Path, monkeypatch, lanes: int
) -> None:
    async def act(job: Job) -> None:
        await asyncio.sleep(0.01 * int(job.task.id[1:]))
        if job.task.id == "t3":
            monkeypatch.setattr(files.os, "write", full)

    def full(_descriptor: int, _data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(RunDirectoryError, match=r"episodes\.jsonl: cannot be written \(No space left"):
        await run(path, act, concurrency=lanes)
    monkeypatch.undo()
    assert set(kept(path)) == {"t0.1", "t1.1", "t2.1"}
    assert (await run(path, soon)).success == 8


async def test_a_full_disk_drops_the_episodes_that_still_run(path: Path, monkeypatch) -> None:
    def full(_descriptor: int, _data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    async def act(job: Job) -> None:
        await asyncio.sleep(60 if job.task.id == "t0" else 0)

    monkeypatch.setattr(files.os, "write", full)
    with pytest.raises(RunDirectoryError):
        await asyncio.wait_for(run(path, act), 5)


async def test_events_tell_of_each_beginning_and_end(path: Path) -> None:
    sink = ListSink()
    await run(path, soon, 1, events=sink)
    assert sink.heard == [
        {"event": "episode_started", "episode": "t0.1"},
        {"event": "episode_finished", "episode": "t0.1", "verdict": "success", "reason": "ok", "calls": 1,
         "done": 1, "total": 1},
    ]  # fmt: skip


async def test_sync_tools_of_all_lanes_sleep_at_the_same_time(path: Path) -> None:
    async def act(_job: Job) -> None:
        await asyncio.to_thread(time.sleep, 0.2)

    began = time.monotonic()
    await run(path, act, 32, concurrency=32)
    assert time.monotonic() - began < 1.0  # the loop's own pool would need 6 rounds or more


async def test_it_can_be_used_again_on_the_same_loop(path: Path) -> None:
    async def act(_job: Job) -> None:
        await asyncio.to_thread(time.sleep, 0)

    await run(path, act)
    await asyncio.to_thread(time.sleep, 0)
    assert (await run(path, act, 9)).success == 9


async def test_wrong_arguments_are_refused_before_anything_runs(path: Path) -> None:
    with Journal(path) as journal:
        given = {"journal": journal, "events": NoEvents(), "stop": StopSwitch()}
        with pytest.raises(ValueError, match="concurrency is 1 or more"):
            await run_episodes(jobs(1), RunnerDouble(soon), concurrency=0, **given)
        with pytest.raises(ValueError, match="same episode id"):
            await run_episodes(jobs(1) * 2, RunnerDouble(soon), concurrency=1, **given)
        assert (await run_episodes([], RunnerDouble(soon), concurrency=1, **given)).total == 0


def test_ctrl_c_without_a_handler_stops_the_run_and_keeps_what_was_finished(path: Path) -> None:
    async def act(job: Job) -> None:
        if job.task.id == "t2":
            raise KeyboardInterrupt

    stop = StopSwitch()
    totals = asyncio.run(run(path, act, stop=stop, concurrency=1))
    assert (totals.success, totals.cut, totals.stopped) == (2, 1, "SIGINT")
