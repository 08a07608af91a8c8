"""Workers that are lost: what they ran is run again once, by whoever is left, or never where it was real."""

import asyncio
import os
import queue
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from contracts.engine_acts import OPENER, ended
from contracts.engines import jobs, run, tasks
from waiting import gone, wait_until_async

from dreamgym_kit.adapters.engines import processes
from dreamgym_kit.adapters.engines.processes import ProcessChannel, Processes
from dreamgym_kit.errors import BudgetExceeded, UserError, WorkerDetached, WorkerLost
from dreamgym_kit.rollout.budgets import RunBudget
from dreamgym_kit.rollout.distributed import DistributedRunner
from dreamgym_kit.rollout.events import NoEvents
from dreamgym_kit.rollout.jobs import Job
from dreamgym_kit.rollout.journal import JournalReader
from dreamgym_kit.rollout.stop import StopSwitch
from dreamgym_kit.rollout.worker import EpisodeWorker, kit_version
from dreamgym_kit.rollout.worker_protocol import (
    JOBS,
    REQUEST,
    RESULT,
    SPECS,
    BudgetServer,
    EpisodeResult,
    RemoteBudget,
    WorkerLink,
    WorkerSpec,
    episode_request,
    framed,
    open_request,
    read,
    request,
    result_from_bytes,
    result_to_bytes,
    unframed,
)
from dreamgym_kit.turns import Turn
from dreamgym_kit.types import Call, Effect, Environment, Episode, Task, ToolSpec, Verdict


class ListSink:
    def __init__(self, hear: Callable[[], None] = lambda: None) -> None:
        self.heard: list[tuple[str, dict[str, Any]]] = []
        self._hear = hear

    def emit(self, kind: str, /, **facts: object) -> None:
        self.heard.append((kind, facts))
        self._hear()

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [facts for heard, facts in self.heard if heard == kind]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is, it is heard how a worker ended."""
    monkeypatch.setattr(processes, "_EXIT_STATUS_S", 120.0)


@pytest.fixture
async def host() -> AsyncIterator[Processes]:
    host = Processes()
    yield host
    await host.close()


async def started(host: Processes, budget: BudgetServer | None = None) -> WorkerLink:
    return WorkerLink(await host.start(1), budget or BudgetServer(RunBudget()))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "episodes.jsonl"


@pytest.fixture
def folder(tmp_path: Path) -> str:
    (tmp_path / "marks").mkdir()
    return str(tmp_path / "marks")


def kept(path: Path) -> dict[str, Episode]:
    return {episode.id: episode for episode in JournalReader(path)}


def test_what_goes_over_the_wire_comes_back_as_it_was() -> None:
    task = Task(
        "a.1",
        {"messages": [{"role": "user", "content": "\ud83d\u200b é"}]},
        Environment("shop", 3),
        meta={"n": 1},
    )
    job = Job(task, 2, 3)
    assert JOBS.read(read(episode_request(job))["job"]) == job
    turn = Turn("a.1.2", 0, (1, 2), (3,), (-0.1234567890123456,), "v1", node="agent", unfit="grammar")
    result = EpisodeResult(
        ended(job), (("call", {"episode": "a.1.2", "step": 1}),), (turn,), ("stray",), ("note",), True
    )
    assert result_from_bytes(result_to_bytes(result)) == result
    spec = WorkerSpec("a:b", {"x": [1]}, 3, 1.5, ("/p",), "0.1", 5, 0.25)
    assert SPECS.read(read(open_request(spec))["spec"]) == spec
    assert unframed(framed(REQUEST, 7, b"{}")) == (REQUEST, 7, b"{}")


def test_a_distant_budget_is_the_drivers() -> None:
    budget = RunBudget(calls=3, usd=1.0)
    desk = BudgetServer(budget)
    far = RemoteBudget(desk.answer, calls=3, usd=1.0)
    held = far.reserve(2, usd=0.25)
    with pytest.raises(BudgetExceeded, match=r"budget spent: calls \(limit 3\)"):
        far.reserve(2)
    far.settle(held, usd=0.5)
    assert (budget.calls, budget.usd) == (2, 0.5)
    lost = far.reserve(1, usd=None)
    desk.close()  # its worker is gone
    assert budget.reserve(1).calls == 1
    far.refund(lost)  # too late, and harmless
    assert budget.usd == 0.5


def test_a_worker_that_was_given_up_makes_no_real_call_any_more() -> None:
    """Though there is no limit: it may live on behind a broken line, or wake up after it was frozen."""
    budget = RunBudget()
    desk = BudgetServer(budget)
    far = RemoteBudget(desk.answer, calls=None, usd=None, every_call=True)
    far.before_call(Call("pay", {}), ToolSpec("pay", Effect.WRITE))
    desk.close()
    with pytest.raises(WorkerDetached, match="this worker was given up"):
        far.before_call(Call("pay", {}), ToolSpec("pay", Effect.WRITE))
    assert budget.calls == 1


@pytest.mark.slow
async def test_a_worker_leaves_a_polite_kill_of_all_processes_to_the_driver(host: Processes) -> None:
    worker = await started(host)
    spec = WorkerSpec(OPENER, {}, paths=tuple(sys.path), kit=kit_version())
    assert "error" not in read(await worker.call(open_request(spec)))
    os.kill(worker.channel.pid, signal.SIGTERM)
    assert "error" not in read(await worker.call(request("prepare")))
    await worker.end()


@pytest.mark.slow
async def test_a_frozen_worker_that_wakes_after_it_was_given_up_calls_nothing_real(
    path: Path, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process is not ended here, as that of a machine that cannot be reached is not."""
    asked: list[WorkerLink] = []
    kept_alive: list[ProcessChannel] = []
    call, end = WorkerLink.call, ProcessChannel.end

    async def unreachable(self: ProcessChannel) -> None:
        kept_alive.append(self)

    async def frozen(self: WorkerLink, message: bytes) -> bytes:
        """No answer within the limit, which is over when the episode has paid and the worker stands."""
        if read(message)["do"] != "episode":
            return await call(self, message)
        asked.append(self)
        calling = asyncio.create_task(call(self, message))
        await wait_until_async(lambda: os.listdir(folder), "the first real call")
        os.kill(self.channel.pid, signal.SIGSTOP)
        process = psutil.Process(self.channel.pid)
        await wait_until_async(lambda: process.status() == psutil.STATUS_STOPPED, "the worker to stand")
        calling.cancel()
        raise TimeoutError

    monkeypatch.setattr(ProcessChannel, "end", unreachable)
    monkeypatch.setattr(WorkerLink, "call", frozen)
    given = tasks(1, "pays_on", folder=folder)
    try:
        ran = await run("workers", path, given, workers=1, concurrency=1, limit_s=600, repeatable=False)
        assert ran.totals.inconclusive == 1
        paid = len(os.listdir(folder))
        (given_up,) = asked
        worker = WorkerLink(given_up.channel, given_up.budget)  # it is heard again
        os.kill(worker.channel.pid, signal.SIGCONT)
        # answered once the episode lets go of the loop: it calls nothing any more
        await asyncio.wait_for(call(worker, request("prepare")), 120)
        assert len(os.listdir(folder)) <= paid + 1  # one that had been allowed before it was frozen
        await worker.end()
    finally:
        for one in set(kept_alive):
            await end(one)


def test_without_limits_nobody_is_asked() -> None:
    def ask(_: bytes) -> bytes:
        raise AssertionError

    far = RemoteBudget(ask, calls=None, usd=None)
    far.settle(far.reserve(1, usd=None), usd=0.5)
    far.refund(far.reserve(1))


async def test_a_lost_workers_episodes_run_again_once_and_are_counted_once(path: Path, folder: str) -> None:
    given = tasks(16, "takes", s=0.1)
    given[5] = Task("t5", {}, meta={"act": "dies", "folder": folder, "times": 1})
    sink = ListSink()
    totals = (await run("workers", path, given, events=sink)).totals
    assert (totals.passed, totals.cut, totals.inconclusive) == (16, 0, 0)
    assert Counter(episode.id for episode in JournalReader(path)) == Counter(
        job.episode for job in jobs(given)
    )
    lost = sink.of("lost")
    assert 1 <= len(lost) <= 2  # what one of two workers ran: two lanes each
    assert all(one["attempt"] == 1 and "signal 9" in one["error"] for one in lost)
    again = {one["episode"] for one in lost}
    assert {name: episode.attempt for name, episode in kept(path).items()} == {
        job.episode: 2 if job.episode in again else 1 for job in jobs(given)
    }


@pytest.mark.slow
async def test_who_loses_three_workers_is_an_error_and_the_others_go_on(path: Path, folder: str) -> None:
    given = tasks(12, "takes", s=0.02)
    given[0] = Task("t0", {}, meta={"act": "dies", "folder": folder, "times": 99})
    totals = (await run("workers", path, given, concurrency=2)).totals
    assert (totals.passed, totals.errors) == (11, 1)
    episode = kept(path)["t0.1"]
    assert episode.verdict is Verdict.ERROR
    assert episode.reason.startswith("lost its worker 3 times, the last time: worker ")
    assert len(os.listdir(folder)) == 3


@pytest.mark.slow
async def test_what_ran_on_real_tools_is_never_given_out_again(path: Path, folder: str) -> None:
    given = tasks(6, "takes", s=0.02)
    given[1] = Task("t1", {}, meta={"act": "dies", "folder": folder, "times": 99})
    sink = ListSink()
    totals = (await run("workers", path, given, concurrency=2, repeatable=False, events=sink)).totals
    assert totals.errors == len(sink.of("lost")) == 1
    episode = kept(path)["t1.1"]
    assert "what it did there is unknown, and nothing runs it again but --resume" in episode.reason
    assert len(os.listdir(folder)) == 1


@pytest.mark.slow
async def test_where_no_worker_is_left_the_run_stops_and_can_be_resumed(path: Path, folder: str) -> None:
    given = tasks(8, "dies", folder=folder, times=99)
    stop = StopSwitch()
    totals = (await run("workers", path, given, workers=1, concurrency=1, stop=stop)).totals
    assert totals.not_run + totals.cut + totals.errors == 8
    assert "no worker is left: worker 1 was lost 3 times in a row" in totals.stopped
    assert (await run("workers", path, tasks(8))).totals.finished == 8


@pytest.mark.slow
async def test_a_worker_that_is_held_up_is_ended_and_the_rest_go_on(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver's time is up once only the held-up worker's two episodes are left."""
    given = tasks(8, "takes", s=0.01)
    given[0] = Task("t0", {}, meta={"act": "blocks", "s": 3600})
    loop = asyncio.get_running_loop()
    now = loop.time

    def hear() -> None:
        if len(sink.of("episode_finished")) == 6:
            monkeypatch.setattr(loop, "time", lambda: now() + 700)

    sink = ListSink(hear)
    totals = (await run("workers", path, given, limit_s=599, grace_s=1, events=sink)).totals
    assert (totals.passed, totals.inconclusive) == (7, 1)
    assert kept(path)["t0.1"].reason == "did not end within 600 s, its limit and some grace"


@pytest.mark.slow
async def test_a_task_of_the_agents_that_exits_does_not_end_its_worker(path: Path) -> None:
    given = tasks(4, "takes", s=0.05)
    given[1] = Task("t1", {}, meta={"act": "exits_in_a_task"})
    sink = ListSink()
    totals = (await run("workers", path, given, workers=1, events=sink)).totals
    assert (totals.passed, totals.errors, sink.of("lost")) == (3, 1, [])


def a_runner(spec: WorkerSpec, stop: StopSwitch | None = None) -> DistributedRunner:
    return DistributedRunner(
        Processes(),
        spec,
        workers=1,
        budget=RunBudget(),
        events=NoEvents(),
        stop=stop or StopSwitch(),
        repeatable=True,
    )


@pytest.mark.slow
async def test_a_stop_is_heard_while_workers_are_started_and_nothing_begins(tmp_path: Path) -> None:
    opener, given = "contracts.engine_acts:opens_slowly", {"begun": str(tmp_path / "begun")}
    spec = WorkerSpec(opener, given, kit=kit_version())
    stop = StopSwitch()

    async def press() -> None:
        await wait_until_async((tmp_path / "begun").exists, "a worker that is opened")
        stop.request("SIGTERM")

    pressing = asyncio.create_task(press())
    async with a_runner(spec, stop) as runner:
        episode = await runner.run(Task("t0", {}), repeat=1, attempt=1)
    await pressing
    assert episode.verdict is Verdict.INCONCLUSIVE
    assert "the run was stopped (SIGTERM) while workers were started" in episode.reason


@pytest.mark.slow
@pytest.mark.parametrize(
    ("opener", "kit", "why"),
    [
        (OPENER, "0.0.0", "a worker runs dreamgym-kit .*, and the driver 0.0.0; install the same on both"),
        ("contracts.engine_acts:refuses", kit_version(), "no such buffer"),
        ("contracts.engine_acts:dies_at_once", kit_version(), "ended with code 7. Nothing was run."),
    ],
)
async def test_a_worker_that_cannot_be_opened_is_an_error_before_anything_runs(
    opener: str, kit: str, why: str
) -> None:
    spec = WorkerSpec(opener, {}, kit=kit)
    with pytest.raises(UserError, match=why):
        await a_runner(spec).__aenter__()


@pytest.mark.slow
def test_a_worker_ends_with_its_driver_however_that_ends(folder: str) -> None:
    """The driver is killed -9; a worker whose interpreter is held up by C code is ended too."""
    asked = [sys.executable, str(Path(__file__).parent / "killed_driver.py"), folder]
    workers: list[psutil.Process] = []
    with subprocess.Popen(asked, stdout=subprocess.PIPE, text=True) as driver:
        try:
            assert driver.stdout is not None
            workers += [psutil.Process(int(pid)) for pid in driver.stdout.readline().split()]
            assert [one.is_running() for one in workers] == [True, True]
            driver.kill()
            assert gone(workers)
        finally:
            for one in [driver, *workers]:
                with suppress(psutil.NoSuchProcess):
                    one.kill()


async def test_a_worker_says_what_it_cannot_do_and_that_its_task_was_cancelled() -> None:
    """By code of the agent's that cancels every task it finds, perhaps before it began."""
    answers: queue.Queue[bytes] = queue.Queue()
    worker = EpisodeWorker(answers.put)
    serving = threading.Thread(target=worker.run, daemon=True)
    serving.start()
    cancels = open_request(WorkerSpec("contracts.engine_acts:cancels_all"))
    for number, message in enumerate((request("nonsense"), request("episode"), b"not json", cancels)):
        worker.take(framed(REQUEST, number, message))
        kind, answered, told = unframed(await asyncio.to_thread(answers.get, timeout=60))
        assert (kind, answered) == (RESULT, number)
        assert read(told)["error"]
    assert read(told)["error"] == "its task in the worker was cancelled"


async def test_a_call_that_is_cancelled_cancels_its_episode_in_the_worker(
    host: Processes, tmp_path: Path
) -> None:
    worker = await started(host)
    spec = WorkerSpec(OPENER, {}, paths=tuple(sys.path), kit=kit_version())
    await worker.call(open_request(spec))
    meta = {"act": "hangs_and_tells", "begun": str(tmp_path)}
    calling = asyncio.create_task(worker.call(episode_request(Job(Task("t0", {}, meta=meta), 1))))
    await wait_until_async((tmp_path / "t0.1").exists, "the episode to begin")
    calling.cancel()
    await wait_until_async((tmp_path / "t0.1-ended").exists, "the episode to be cancelled")
    assert "error" not in read(await worker.call(request("prepare")))  # its worker lives on
    await worker.end()


async def test_a_worker_that_takes_no_frames_holds_up_no_timeout() -> None:
    class Deaf:
        name, pid, origin, lacks = "worker 1", 1, (), ()
        sent = 0

        async def send(self, _: object) -> None:
            self.sent += 1
            if self.sent > 1:  # the request was taken, and that it is cancelled is not
                await asyncio.Event().wait()

        async def receive(self) -> list[bytes]:
            return await asyncio.Event().wait() and []

        async def end(self) -> None:
            pass

    worker = WorkerLink(channel := Deaf(), BudgetServer(RunBudget()))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(worker.call(request("prepare")), 0.01)  # expires: no answer ever comes
    await asyncio.wait_for(worker.end(), 60)
    assert channel.sent == 2


async def test_a_question_that_nobody_answers_is_no_yes() -> None:
    worker = EpisodeWorker(lambda _: None, answer_s=0.01)
    budget = RemoteBudget(worker._ask, calls=3, usd=None)
    with pytest.raises(WorkerDetached):
        await asyncio.to_thread(budget.before_call, Call("pay", {}), ToolSpec("pay", Effect.WRITE))


async def test_a_lost_worker_is_told_to_whoever_waits(host: Processes) -> None:
    worker = await started(host)
    waiting = asyncio.create_task(worker.call(request("nonsense-that-is-never-read" * 10)))
    os.kill(worker.channel.pid, signal.SIGKILL)
    with pytest.raises(WorkerLost, match=r"worker 1, process .* ended by signal 9"):
        await waiting
    await host.close()
    await host.close()
    with pytest.raises(WorkerLost):
        await host.start(2)
    with pytest.raises(WorkerLost, match="ended by signal 9"):
        await worker.call(request("close"))
