"""The engine by itself; what all engines promise alike stands in `contracts/test_engine.py`."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dreamgym_kit.rollout.engine import RunTotals, append_executed, run_episodes
from dreamgym_kit.rollout.events import NoEvents
from dreamgym_kit.rollout.jobs import Job, jobs_for
from dreamgym_kit.rollout.journal import Journal, JournalReader
from dreamgym_kit.rollout.stop import StopSwitch
from dreamgym_kit.types import Answer, Call, Effect, Environment, Episode, Executed, Task, Transition, Verdict


def ended(job: Job, verdict: Verdict = Verdict.PASSED, stop: str = "finished") -> Episode:
    step = Transition(Call("look_up", {}), Answer("x"), Effect.READ, job.episode, 1)
    return Episode(
        job.episode, job.task.id, job.repeat, Environment(), verdict, "ok", (step,), stop=stop, cost_usd=0.5
    )


class RunnerDouble:
    """Does in each episode what the test says."""

    def __init__(self, act: Callable[[Job], Awaitable[object]]) -> None:
        self._act = act
        self.begun: list[str] = []
        self.running = self.most = 0

    async def run(self, task: Task, *, repeat: int, attempt: int) -> Episode:
        job = Job(task, repeat, attempt)
        self.begun.append(job.episode)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            said = await self._act(job)
        finally:
            self.running -= 1
        return said if said is not None else ended(job)


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


def kept(path: Path) -> dict[str, Episode]:
    return {episode.id: episode for episode in JournalReader(path)}


async def test_a_real_call_is_in_the_journal_at_once_and_drops_what_else_runs(path: Path) -> None:
    stop, told, heard = StopSwitch(), [], []

    class Events:
        def emit(self, kind: str, /, **facts: object) -> None:
            heard.append((kind, facts.get("episode"), facts.get("reason")))

    async def act(job: Job) -> Episode | None:
        if job.task.id == "t1":
            ran = replace(ended(job, Verdict.FAILED, "executed"), executed=(Executed("refund"),))
            keep(ran)
            assert kept(path) == {"t1.1": ran}
            await asyncio.sleep(0)  # where the run's end meets it
            return ran
        return await asyncio.sleep(3600)

    with Journal(path) as journal:
        keep = append_executed(journal, stop, Events())
        given = {"concurrency": 4, "events": Events(), "stop": stop, "on_episode": told.append}
        totals = await run_episodes(jobs(8), RunnerDouble(act), journal=journal, **given)
    assert [episode.id for episode in told] == ["t1.1"]
    assert (totals.failed, totals.cut, totals.not_run, stop.exit_code) == (1, 3, 4, 6)
    assert ("executed", "t1.1", None) in heard
    assert [kind for kind, episode, _ in heard if episode == "t1.1"].count("episode_finished") == 1


def test_no_signal_takes_back_the_exit_code_of_a_real_call() -> None:
    stop = StopSwitch()
    stop.press(2)
    stop.cancel("1 real call executed: refund()", code=6)
    stop.press(15)
    assert (stop.exit_code, stop.reason) == (6, "1 real call executed: refund()")


def test_groups_are_siblings_of_one_task_in_order() -> None:
    assert [job.episode for job in jobs_for([Task("a", {}), Task("a.1", {})], 2)] == [
        *("a.1", "a.2", "a.1.1", "a.1.2")
    ]


async def test_it_can_be_used_again_on_the_same_loop(path: Path) -> None:
    async def act(_job: Job) -> None:
        await asyncio.to_thread(time.sleep, 0)

    await run(path, act)
    await asyncio.to_thread(time.sleep, 0)
    assert (await run(path, act, 9)).passed == 9


async def test_wrong_arguments_are_refused_before_anything_runs(path: Path) -> None:
    runner = RunnerDouble(lambda _: asyncio.sleep(0))
    with Journal(path) as journal:
        given = {"journal": journal, "events": NoEvents(), "stop": StopSwitch()}
        with pytest.raises(ValueError, match="concurrency must be 1 or more"):
            await run_episodes(jobs(1), runner, concurrency=0, **given)
        with pytest.raises(ValueError, match="same episode id"):
            await run_episodes(jobs(1) * 2, runner, concurrency=1, **given)
        assert (await run_episodes([], runner, concurrency=1, **given)).total == 0
