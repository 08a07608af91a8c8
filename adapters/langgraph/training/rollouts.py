"""Groups of episodes for a training: everything is opened once, then collected from as often as asked.

Graph, gate, buffer, experience models, checkers and worlds stay open while the policy's weights change.
The episodes of each collection are kept in a directory of their own below the rollouts', named after step
and seed (`step-000012-5f1d02c4`) and journalled as those of any run; one that was broken off is begun anew.

While a step is collected the process is guarded as in any dream: what may be written is the rollouts'
directory. Between steps the guard is down, so that a trainer in this process writes where it likes. Where
it works while the next step is collected, it does so inside of `aside`.
"""

import functools
import shutil
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import (
    AbstractContextManager,
    AsyncExitStack,
    asynccontextmanager,
    closing,
    contextmanager,
    nullcontext,
)
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dreamgym_kit.adapters.langgraph.analysis.locking import LockWatch
from dreamgym_kit.adapters.langgraph.analysis.references import episodes_at_once
from dreamgym_kit.adapters.langgraph.episode.runner import Run
from dreamgym_kit.adapters.langgraph.policy.capture import drawn_number
from dreamgym_kit.adapters.langgraph.run.directory import run_directory
from dreamgym_kit.adapters.langgraph.run.experiences import answer_sources
from dreamgym_kit.adapters.langgraph.run.request import RunRequest, tasks_of
from dreamgym_kit.adapters.langgraph.run.setup import gated_process, prepared
from dreamgym_kit.adapters.langgraph.run.workers import (
    check_worker_compatible,
    distributed,
    weights_of,
    worker_facts,
)
from dreamgym_kit.curriculum.makers import OfGiven
from dreamgym_kit.errors import EndpointError, RunDirectoryError, UnknownName, UserError
from dreamgym_kit.guard import egress
from dreamgym_kit.interfaces import ChatEndpoint, Checker, EpisodeRunner, EventSink, Group, Rollout
from dreamgym_kit.rollout.budgets import RunBudget
from dreamgym_kit.rollout.distributed import DistributedRunner
from dreamgym_kit.rollout.engine import append_executed, run_episodes
from dreamgym_kit.rollout.events import FanOut, NoEvents
from dreamgym_kit.rollout.jobs import Job, ended, jobs_for
from dreamgym_kit.rollout.journal import JournalReader
from dreamgym_kit.rollout.rundir import EPISODES, Manifest, RunDirectory, half_made
from dreamgym_kit.rollout.stop import StopSwitch
from dreamgym_kit.rollout.tasks import TASKS
from dreamgym_kit.routing.process import awake, holding
from dreamgym_kit.routing.router import Mode
from dreamgym_kit.turns import Turn
from dreamgym_kit.types import Episode, Task

MAX_AT_ONCE = 256  # episodes; each may hold a thread while it waits for the policy


@asynccontextmanager
async def open_rollouts(
    request: RunRequest, *, events: EventSink | None = None, stop: StopSwitch | None = None
) -> AsyncIterator["Rollouts"]:
    """Open what a request names, to collect from: `request.tasks`, and what is admitted later.

    `request.policy` answers; without one the graph's own models do, and there are no turns. In
    `Mode.RECORD` the tools are the real ones, in `Mode.S2R` those that are overseen.

    Raises:
        UserError: the graph, tasks, settings, buffer or directory cannot be used; nothing was run.
    """
    check_worker_compatible(request, learns=True)
    tasks, switch = tasks_of(request.tasks), stop or StopSwitch()
    budget = RunBudget(request.settings.budget.max_calls, request.settings.budget.max_usd)
    workers: DistributedRunner | None = None
    async with AsyncExitStack() as stack:
        directory = stack.enter_context(run_directory(request, tasks))
        if not request.mode.bare:
            stack.enter_context(holding())  # between its steps too, while a trainer works
        opened = AsyncExitStack()
        with gated_process(request, directory.path) as warnings:
            try:
                made = await prepared(opened, request, tasks, budget)
                lock = LockWatch(request.graph, request.settings, made.facts, request.store)
                made.sources = await answer_sources(opened, request, made.facts.specs(), budget, directory)
                if request.settings.workers.elsewhere:
                    given = worker_facts(
                        request, tasks, folder=directory.path, label="", seed=0, trials=made.sources.trials
                    )
                    running = distributed(
                        request,
                        given,
                        budget=budget,
                        events=NoEvents(),
                        stop=switch,
                        at_once=_at_once(made, {task.environment.name for task in tasks}),
                    )
                    workers = await opened.enter_async_context(running)
            except BaseException:
                await opened.aclose()
                raise
        rollouts = Rollouts(made, directory, tasks, events or NoEvents(), switch, lock, workers)
        rollouts.warnings.extend((*warnings, *lock.notes, *made.facts.warnings))
        try:
            yield rollouts
        finally:
            with gated_process(request, directory.path):
                await opened.aclose()


def _at_once(made: Run, environments: Collection[str]) -> int:
    """Episodes at once: as settings have it where tools or an endpoint are asked, else all.

    One, where they write to a real system that they share.
    """
    request = made.request
    if request.mode is Mode.DREAM and request.policy is not None and made.sources.chat is None:
        return MAX_AT_ONCE
    return min(MAX_AT_ONCE, episodes_at_once(request, made.environments, environments))


@dataclass(slots=True)
class _Step:
    """What came of one step so far."""

    episodes: dict[str, Episode] = field(default_factory=dict)  # by id
    turns: dict[str, tuple[Turn, ...]] = field(default_factory=dict)  # by episode
    gone: list[EndpointError] = field(default_factory=list)

    def keep(self, episode: Episode) -> None:
        self.episodes[episode.id] = episode

    def keep_turns(self, episode: str, turns: Sequence[Turn], served: Mapping[str, Any] | None) -> None:
        """Keep what a worker's policy said; nothing is learned from weights other than `served`."""
        self.turns[episode] = tuple(turns)
        if served is None:
            return
        others = sorted({turn.version for turn in turns} - {served["version"]})
        if others:
            why = f"a worker was answered by {others[0]!a} where {served['version']!a} was to answer"
            self.gone.append(EndpointError("stale_weights", why))


class Rollouts:
    """Implements `interfaces.Collector`. Made by `open_rollouts`; one collection at a time."""

    def __init__(
        self,
        made: Run,
        directory: RunDirectory,
        tasks: Sequence[Task],
        events: EventSink,
        stop: StopSwitch,
        lock: LockWatch,
        workers: DistributedRunner | None = None,
    ) -> None:
        self._lock = lock
        self._workers, self._admitted = workers, dict[str, Task]()
        self.warnings: list[str] = []
        self._made: set[str] = set()  # admitted later: who judges them is said by whoever made them
        request = made.request
        judge: Any = None if request.judge is None else OfGiven(request.judge, self._made, made.checkers)
        self._request = made.request = replace(request, judge=judge)
        self._parts, self._directory = made, directory
        self._task_ids = {task.id for task in tasks}
        self._environments = {task.environment.name for task in tasks}
        self._events, self._stop = events, stop
        self._sent = weights_of(request.policy) if workers is not None else None

    @property
    def path(self) -> Path:
        """The directory that the steps' directories lie in."""
        return self._directory.path

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person should know of how the policy stands in for the graph's models."""
        here = self._parts.policy.notes if self._parts.policy is not None else {}
        return (*here, *(self._workers.reports.notes if self._workers is not None else ()))

    @property
    def chat(self) -> ChatEndpoint | None:
        """The dream's own model, where settings name an endpoint; charged to the run's budget."""
        return self._parts.sources.chat

    def admit(self, tasks: Sequence[Task], judges: Mapping[str, Checker] | None = None) -> None:
        """Admit more tasks for collecting, under the same checks as the first ones.

        Their own checkers judge them, also where the request has a judge for those that it opened with.

        Args:
            tasks: whose ids may be known already.
            judges: checkers that no setting names, by the name that tasks have for them.

        Raises:
            UserError: one of them cannot be run; none is admitted.
        """
        own = judges or {}
        if own and self._workers is not None:
            raise UserError(
                f"checkers of made tasks ({', '.join(sorted(own))}) are objects of this process, and "
                "workers are processes of their own; leave workers out, or name the checker in settings."
            )
        self._parts.admit(tasks, own)
        self._environments |= {task.environment.name for task in tasks}
        if self._workers is not None:
            self._admitted |= {task.id: task for task in tasks}
        self._made.update({task.id for task in tasks} - self._task_ids)
        self._task_ids.update(task.id for task in tasks)

    async def collect(self, tasks: Sequence[Task], n: int, *, step: int, seed: int) -> list[Group]:
        """See `Collector.collect`.

        Raises:
            EndpointError: the policy's server is gone.
            LockDiffers: the graph made a tool that its lock does not have.
            UserError: a task is none of those that were opened.
        """
        self._check(tasks, n)
        drawn = drawn_number(seed, step)
        label = f"step-{step:06}-{drawn:08x}"
        jobs, came = jobs_for(tasks, n), _Step()
        if self._request.mode is Mode.S2R:  # the first of every task before the second of any: they say more
            jobs.sort(key=lambda job: job.repeat)
        with self._directory_of(label, tasks, n, step, seed) as directory:
            overseer = self._request.overseer  # a step that would break off half-way is not begun
            if overseer is None or overseer.affords(len(jobs)):
                await self._run(jobs, directory, label, drawn, came)
        self._lock.check(self.path)
        if came.gone:
            raise came.gone[0]
        return [_group(task, n, came, self._stop.reason) for task in tasks]

    def _keep(self, came: _Step, episode: Episode) -> None:
        came.keep(episode)
        if self._lock.add(episode):
            self._stop.request("a tool that dreamgym.lock does not have")

    def aside(self) -> AbstractContextManager[None]:
        """In the block, this context and the threads that it starts write and connect as they like.

        For a trainer that works while a step is collected; never around code of the agent's.
        """
        return egress.exempt(threads=True)

    async def _run(
        self, jobs: Sequence[Job], directory: RunDirectory, label: str, drawn: int, came: _Step
    ) -> None:
        request, settings = self._request, self._request.settings
        dreams = request.mode is Mode.DREAM
        with (
            closing(directory.journal()) as journal,
            closing(directory.events()) as log,
            gated_process(request, self._directory.path),
            awake() if request.mode.bare else nullcontext(),
        ):
            policy = self._parts.policy if self._workers is None else None
            if policy is not None:
                policy = replace(policy, seed=drawn, scope=label, announced={}, gone=came.gone.append)
            events = FanOut([log, self._events], self._parts.masker)
            at_once = append_executed(journal, self._stop, events)
            whole = f"{request.label or self._directory.manifest.run}:{label}"
            if self._workers is not None:
                self._workers.on_executed = at_once
                await self._prepare(self._workers, whole, drawn, label, events, came)
            runner: EpisodeRunner = self._workers or replace(
                self._parts,
                events=events,
                label=whole,
                seed=drawn,
                policy=policy,
                on_turns=came.turns.__setitem__,
                on_executed=at_once,
            )
            for wave in self._waves(jobs):
                try:
                    if policy is not None and dreams:
                        await policy.announce(job.episode for job in wave)
                    await run_episodes(
                        wave,
                        runner,
                        journal=journal,
                        concurrency=self._at_once,
                        events=events,
                        stop=self._stop,
                        on_episode=functools.partial(self._keep, came),
                        limit_s=settings.limits.max_seconds if self._workers is None else None,
                    )
                finally:
                    if policy is not None:
                        await policy.dismiss()

    async def _prepare(
        self,
        workers: DistributedRunner,
        label: str,
        drawn: int,
        scope: str,
        events: EventSink,
        came: _Step,
    ) -> None:
        """Let the workers begin this collection, under the weights that this process serves now."""
        workers.events, workers.gone = events, came.gone.append
        workers.on_turns = lambda episode, turns: came.keep_turns(episode, turns, self._sent)
        policy = self._request.policy
        if self._sent is not None and getattr(policy, "version", "") != self._sent["version"]:
            self._sent = weights_of(policy)
        tasks = [TASKS.write(task) for task in self._admitted.values()]
        await workers.prepare(label=label, seed=drawn, scope=scope, weights=self._sent, tasks=tasks)

    @property
    def _at_once(self) -> int:
        return _at_once(self._parts, self._environments)

    def _waves(self, jobs: Sequence[Job]) -> list[Sequence[Job]]:
        """Dreamt episodes begin together, so that who asks the policy beside whom does not depend on time."""
        if self._request.mode is not Mode.DREAM:
            return [jobs]
        return [jobs[first : first + self._at_once] for first in range(0, len(jobs), self._at_once)]

    def _check(self, tasks: Sequence[Task], n: int) -> None:
        if n < 1:
            raise ValueError("n is 1 or more")
        for task in tasks:
            if task.id not in self._task_ids:
                task_ids = sorted(self._task_ids)
                raise UnknownName("task", task.id, known=task_ids, source="collect", where="the opened tasks")

    @contextmanager
    def _directory_of(
        self, label: str, tasks: Sequence[Task], n: int, step: int, seed: int
    ) -> Iterator[RunDirectory]:
        """The step's directory, made anew."""
        with egress.exempt():
            there = self.path / label
            ours = (there / "manifest.json").is_file() or half_made(there)
            if there.is_symlink() or (there.exists() and not ours):
                raise UserError(f"{there}: is in the way of the step's episodes; move it, or remove it.")
            if ours and there.exists() and _executed_in(there):  # what ran stays told of
                there.rename(there.with_name(f"{label}-executed-{datetime.now(UTC):%Y%m%dT%H%M%S%f}"))
            shutil.rmtree(there, ignore_errors=True)
            mode = self._request.kind
            matters = {"mode": mode, "step": step, "n": n, "seed": seed, "tasks": [task.id for task in tasks]}
            at = datetime.now(UTC).timestamp()
            run = f"{self._directory.manifest.run}-{label}"
            directory = RunDirectory.create(self.path, label, Manifest(run, at, matters))
        with directory:
            yield directory


def _executed_in(step: Path) -> bool:
    try:
        return any(episode.executed for episode in JournalReader(step / EPISODES))
    except RunDirectoryError:
        return False  # damaged, and made anew as any step that was broken off


def _group(task: Task, n: int, came: _Step, why: str) -> Group:
    rollouts = []
    for job in jobs_for([task], n):
        unfinished = ended(job, why or "it was not finished", "cancelled")
        episode = came.episodes.get(job.episode, unfinished)
        rollouts.append(Rollout(episode, came.turns.get(job.episode, ())))
    return Group(task.id, tuple(rollouts))
