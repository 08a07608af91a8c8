"""A whole run: graph, tasks and recordings in; a run directory, a summary and an answer out.

`simulate`, `record` and `evaluate` are the same path with another gate policy; its parts are made in `setup`.
"""

import asyncio
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, AsyncExitStack, closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from dreamgym_kit.adapters.langgraph.analysis.inspection import GraphInspection
from dreamgym_kit.adapters.langgraph.analysis.locking import LockWatch
from dreamgym_kit.adapters.langgraph.analysis.references import episodes_at_once
from dreamgym_kit.adapters.langgraph.episode.runner import Run
from dreamgym_kit.adapters.langgraph.intercept.install import latch_unowned
from dreamgym_kit.adapters.langgraph.intercept.registration import refuse_left_behind
from dreamgym_kit.adapters.langgraph.run.directory import (
    SPENT,
    blocked_outside,
    count_earlier,
    run_directory,
    spent,
)
from dreamgym_kit.adapters.langgraph.run.experiences import answer_sources, servers_watched
from dreamgym_kit.adapters.langgraph.run.request import RunRequest, name_of, tasks_of
from dreamgym_kit.adapters.langgraph.run.setup import gated_process, prepared
from dreamgym_kit.dream.chain import ChainedExperience
from dreamgym_kit.dream.grading import DISAGREE
from dreamgym_kit.dream.imagined.experience import ImaginedExperience
from dreamgym_kit.errors import ExitCode, RunDirectoryError
from dreamgym_kit.findings.detectors import FAILED, Detectors
from dreamgym_kit.guard import egress
from dreamgym_kit.interfaces import EventSink, ExperienceModel
from dreamgym_kit.replay.masking import Masker
from dreamgym_kit.report.gate_rules import gate_to_record, unmatched
from dreamgym_kit.report.headline import EVALUATES
from dreamgym_kit.report.metrics import CRITICAL, TrustPoint
from dreamgym_kit.report.summary import RunMetrics, Tally
from dreamgym_kit.rollout.budgets import RunBudget
from dreamgym_kit.rollout.engine import GRACE_S, LATE_WRITE_S, RunTotals, append_executed, run_episodes
from dreamgym_kit.rollout.events import EventLog, FanOut, NoEvents, unaccounted
from dreamgym_kit.rollout.jobs import WorkerReports, jobs_for
from dreamgym_kit.rollout.journal import Journal
from dreamgym_kit.rollout.rundir import EVENTS, RunDirectory
from dreamgym_kit.rollout.stop import StopSwitch
from dreamgym_kit.routing.process import PROCESS, strays_heard
from dreamgym_kit.routing.router import Mode, writes_are_real
from dreamgym_kit.sandbox.broker import NOTED
from dreamgym_kit.sandbox.confining import listen, settle, stands_for
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.settings.schema import ExperienceSettings, GateSettings, Settings, WorkersSettings
from dreamgym_kit.types import Episode, Task, Verdict, format_executed

_LONG_S = 5.0  # of mining, from which on its progress is shown


@dataclass(frozen=True, slots=True)
class RunResult:
    """What came of a run."""

    directory: Path
    summary: RunMetrics
    totals: RunTotals
    facts: GraphInspection
    strays: tuple[str, ...]  # refused calls that belonged to no episode
    warnings: tuple[str, ...]
    stopped_by: int | None = None  # signal number

    @property
    def verdict(self) -> Verdict:
        """Of the run, by its gate."""
        return self.summary.verdict

    @property
    def passed(self) -> bool:
        """Whether the run passed."""
        return self.verdict is Verdict.PASSED

    @property
    def exit_code(self) -> int:
        """As the command line gives it: 0 passed, 1 failed, 3 inconclusive, 4 error, 6 a real call ran.

        130 or 143 where a signal kept episodes from being run; one that found them all done changes nothing.
        """
        if self.stopped_by is not None and self.summary.not_run and not self.summary.executed:
            return 128 + self.stopped_by
        return self.summary.exit_code

    def check(self, *, fail_on: Sequence[str] = ()) -> bool:
        """Whether the run passed, also if findings of these kinds fail it; see `Summary.check`."""
        return self.summary.check(fail_on=fail_on)

    def __str__(self) -> str:
        """The run as `simulate` prints it."""
        from dreamgym_kit.report.terminal import render_run

        return render_run(self.summary)

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        """The report page, for notebooks."""
        from dreamgym_kit.report.page.writing import inline

        return inline(self.directory, str(self))


async def run(
    request: RunRequest, *, events: EventSink | None = None, stop: StopSwitch | None = None
) -> RunResult:
    """Run every task n times and return the results.

    Raises:
        UserError: the graph, tasks, settings, buffer or run directory cannot be used; nothing was run.
    """
    switch = stop or StopSwitch()
    _load_early(request)
    whole = tasks_of(request.tasks)
    tasks = request.shard.part(whole) if request.shard is not None else whole
    settings = request.settings
    async with AsyncExitStack() as stack:
        directory = stack.enter_context(run_directory(request, whole))
        warnings = stack.enter_context(gated_process(request, directory.path))
        noted = _watch_sandbox(request.mode)
        budget, tally = RunBudget(settings.budget.max_calls, settings.budget.max_usd), Tally()
        made = await prepared(stack, request, tasks, budget)
        lock = LockWatch(request.graph, settings, made.facts, request.store)
        warnings = [*warnings, *lock.notes]
        lanes = episodes_at_once(request, made.environments, (task.environment.name for task in tasks))
        journal = stack.enter_context(closing(directory.journal()))
        log = stack.enter_context(closing(directory.events()))
        sink = FanOut([log, events or NoEvents()], made.masker)
        stack.enter_context(_reporting_strays(sink, directory.path, made.masker))
        errors = count_earlier(directory, budget, tally)
        if tally.executed:  # in an earlier leg: no episode begins, and this leg reports it again
            switch.cancel(format_executed([call for _, call in tally.executed]), code=ExitCode.EXECUTED)
        at_once = append_executed(journal, switch, sink)
        sources = await answer_sources(stack, request, made.facts.specs(), budget, directory)
        _watch_mined(sources.recorded, request, sink, switch)
        made.sources, seed = sources, settings.simulate.seed
        tally.charge("calibration", sources.spend)
        label = request.label if request.label is not None else directory.manifest.run
        _tell_start(sink, request, tasks, directory, journal, sources.imagined)
        work = partial(
            run_episodes,
            jobs_for(tasks, settings.simulate.repeats),
            journal=journal,
            concurrency=lanes,
            events=sink,
            stop=switch,
            on_episode=partial(_count, tally, lock, switch),
        )
        reports = WorkerReports()
        watch = await stack.enter_async_context(
            servers_watched(settings, request.mode, chat=sources.chat, policy=request.policy is not None)
        )
        if settings.workers.elsewhere:
            from dreamgym_kit.adapters.langgraph.run.workers import distributed, take_added, worker_facts

            given = worker_facts(
                request, tasks, folder=directory.path, label=label, seed=seed, trials=sources.trials
            )
            async with distributed(
                request, given, budget=budget, events=sink, stop=switch, at_once=lanes, on_executed=at_once
            ) as workers:
                reports = workers.reports
                totals = await work(workers)
            take_added(request.store, reports)
        else:
            runner = replace(made, events=sink, label=label, seed=seed, on_executed=at_once)
            late_s = LATE_WRITE_S if writes_are_real(request.mode, request.stage) else 0.0
            totals = await work(runner, limit_s=settings.limits.max_seconds, grace_s=GRACE_S + late_s)
        servers = await watch.table() if watch is not None else ()
        tally.add_missing(errors)
        summary, slips = _finish(made, directory, totals, tally, reports, servers)
        sink.emit("run_finished", directory=str(directory.path))
        lock.check(directory.path)
        notes = (*reports.notes, *(made.policy.notes if made.policy is not None else ()))
        warned = (
            *warnings,
            *noted,
            *(warning for warning in reports.warnings if warning not in warnings),
            *made.facts.warnings,
            *_unreset(request, tasks, made.facts),
            *slips,
            *notes,
        )
        return RunResult(
            directory=directory.path,
            summary=summary,
            totals=totals,
            facts=made.facts,
            strays=tuple(made.masker.text(stray) for stray in PROCESS.stray_calls()),
            warnings=tuple(made.masker.text(warning) for warning in warned),
            stopped_by=switch.signal,
        )


def _reporting_strays(sink: EventSink, directory: Path, masker: Masker) -> AbstractContextManager[None]:
    """Report calls blocked outside of episodes as events in the block; after it, print and log them.

    They may come long after the run: a thread that an episode began goes on.
    """

    def late(why: str) -> None:
        sys.stderr.write(f"dreamgym-kit: blocked after the run: {masker.text(why)}\n")
        with suppress(OSError, RunDirectoryError), closing(EventLog(directory / EVENTS)) as log:
            log.emit("violation", episode="", text=masker.text(why))

    return strays_heard(lambda why: sink.emit("violation", episode="", text=why), late)


def _load_early(request: RunRequest) -> None:
    """Import what some runs need while no module of the agent can be found in its place; check workers."""
    if request.settings.workers != WorkersSettings():
        from dreamgym_kit.adapters.langgraph.run.workers import check_worker_compatible

        check_worker_compatible(request)
    if request.settings.experience != ExperienceSettings():
        import dreamgym_kit.adapters.models.endpoint
        import dreamgym_kit.adapters.stores.sqlite_search  # noqa: F401


def _watch_sandbox(mode: Mode) -> list[str]:
    """Listen to the sandbox of a dream; return the list that collects refusals that do not fail the run."""
    noted: list[str] = []

    def take(level: str, text: str) -> None:
        if level == NOTED:  # libraries try such things by themselves
            noted.append(f"the sandbox refused to {text}")
        else:
            latch_unowned(f"the sandbox refused to {text}")

    if mode is Mode.DREAM:
        listen(take)
    return noted


def _watch_mined(
    recorded: ExperienceModel | None, request: RunRequest, events: EventSink, switch: StopSwitch
) -> None:
    """Watch the mining. With workers, mine before they begin: they read the stored result."""
    if isinstance(recorded, ChainedExperience):
        recorded.programs.watch = partial(_watch_mining, events, switch, [0])
        if request.settings.workers.elsewhere:
            with suppress(asyncio.CancelledError):  # the run is stopped then, and begins no episode
                recorded.prepare(request.settings.tenant)


def _watch_mining(
    events: EventSink, switch: StopSwitch, last_twentieth: list[int], share: float, seconds: float
) -> None:
    """Report each twentieth of a long mining; the first Ctrl-C ends it, and with it the run."""
    if switch.requested:
        switch.cancel(switch.reason)
        raise asyncio.CancelledError
    if seconds > _LONG_S and int(20 * share) != last_twentieth[0]:
        last_twentieth[0] = int(20 * share)
        events.emit("mining", share=share)


def _count(tally: Tally, lock: LockWatch, switch: StopSwitch, episode: Episode) -> None:
    tally.add(episode)
    if lock.add(episode):
        switch.request("a tool that dreamgym.lock does not have")


def _tell_start(
    events: EventSink,
    request: RunRequest,
    tasks: Sequence[Task],
    directory: RunDirectory,
    journal: Journal,
    imagined: ImaginedExperience | None,
) -> None:
    simulate, usd = request.settings.simulate, request.settings.budget.max_usd
    events.emit(
        "run_started",
        run=directory.manifest.run,
        graph=name_of(request.graph),
        tasks=len(tasks),
        episodes=len(tasks) * simulate.repeats,
        n=simulate.repeats,
        seed=simulate.seed,
        kept=Counter(
            str(done.verdict) for name, done in journal.done.items() if not journal.next_attempt(name)
        ),
        imagined=any(done.imagined for done in journal.done.values()),
        directory=str(directory.path),
    )
    if imagined is not None:
        questions, tokens = imagined.expected(tasks)
        bound = "no limit (budget.max_usd)" if usd is None else f"at most USD {usd:g} (budget.max_usd)"
        events.emit("imagines", questions=questions, tokens=tokens, bound=bound)


def _unreset(request: RunRequest, tasks: Sequence[Task], facts: GraphInspection) -> list[str]:
    """Worlds that several recorded episodes write to one after the other, each starting from the last."""
    if request.mode is not Mode.RECORD or not any(spec.effect.changes_environment for spec in facts.tools):
        return []
    times = Counter(
        task.environment for task in tasks if task.environment.name not in request.settings.environments
    )
    return [
        f"environment {environment} is recorded by {count * request.settings.simulate.repeats} "
        f"episodes and nobody resets it: "
        "each begins where the last one ended, and calls on which they disagree are unanswered. Give tasks "
        "environments of their own, or name what resets this one: [environments.NAME] ref"
        for environment, count in times.items()
        if count * request.settings.simulate.repeats > 1
    ]


def gate_slips(
    gate: GateSettings, facts: GraphInspection, detectors: Detectors, summary: RunMetrics | None = None
) -> list[tuple[str, str]]:
    """Names in the gate of no tool and no kind of finding, neither known before nor met in the run."""
    tools = [*facts.specs(), *(tool.name for tool in (summary.tools if summary else ()))]
    met = (group.kind for group in (summary.findings if summary else ()))
    kinds = [*detectors.by_name, FAILED, DISAGREE, CRITICAL, *met]
    return unmatched(gate, dict.fromkeys(tools), dict.fromkeys(kinds))


def _curve(first: ExperienceModel | None, settings: Settings) -> list[TrustPoint]:
    """What each threshold gave on held-out recordings; nothing where nothing was mined in this run."""
    if not isinstance(first, ChainedExperience):
        return []
    return [
        TrustPoint(row.threshold, row.answered, row.exact) for row in first.programs.curve(settings.tenant)
    ]


def _reported_curve(reports: WorkerReports) -> list[TrustPoint]:
    """What each threshold gave on held-out recordings, as a worker that mined them has it."""
    curves = (last.get("curve") for last in reports.last)
    first: Sequence[Any] = next((curve for curve in curves if curve), ())
    return [TrustPoint(*point) for point in first]


def _finish(
    made: Run,
    directory: RunDirectory,
    totals: RunTotals,
    tally: Tally,
    reports: WorkerReports,
    servers: Sequence[JsonValue],
) -> tuple[RunMetrics, list[str]]:
    """The run's summary, kept in its directory; and a sentence for each slip in its gate."""
    request, sources = made.request, made.sources
    settle()
    if not request.mode.bare:
        refuse_left_behind()
    manifest: dict[str, Any] = {
        "mode": request.mode.value,
        "run": directory.manifest.run,
        "graph": name_of(request.graph),
        "directory": str(directory.path),
        "not_run": totals.total - totals.finished,
        SPENT: spent(directory, made.budget, totals, calibration=sources.spend),
        "stopped": totals.stopped,
        "strays": list(
            dict.fromkeys([*blocked_outside(directory), *map(made.masker.text, PROCESS.stray_calls())])
        ),
        "gate": gate_to_record(request.rules),
        "record": request.record,
        **({EVALUATES: request.evaluates} if request.evaluates else {}),
    }
    if request.mode is Mode.DREAM:
        stands = stands_for(request.settings.guard.sandbox)
        manifest["sandbox"] = {"kind": stands.kind, "why": stands.why}
    if outside := egress.reached_outside():
        manifest["reached"] = outside
    if request.mode.bare:
        lost = unaccounted(directory.path / EVENTS, directory.episodes())
        manifest |= {"unaccounted": lost.writes} if lost.writes else {}
        manifest |= {"unaccounted_calls": lost.calls} if lost.calls else {}
    if sources.support.rows:
        manifest["reasoned_support"] = sources.support.table()
    if sources.imagined is not None:
        manifest["environment_facts"] = sources.imagined.environments()
    if servers:
        manifest["servers"] = list(servers)
    curve = _curve(sources.recorded, request.settings) or _reported_curve(reports)
    summary = tally.summary(made.masker.plain(manifest), curve)
    slips = gate_slips(request.rules, made.facts, made.detectors, summary)
    if slips:
        names = made.masker.plain([pattern for pattern, _ in slips])
        summary = replace(summary, manifest={**summary.manifest, "unmatched": names})
    with egress.exempt():
        directory.write_report(summary.to_json())
    return summary, [sentence for _, sentence in slips]
