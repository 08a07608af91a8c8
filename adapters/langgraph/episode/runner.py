"""One episode: the user's graph, unchanged, driven to its end under a session of the gate.

Everything that can happen to it becomes an `Episode`; only a cancelled run gets out as an exception.
What ended it is read from the session, not from the exception: an agent may have swallowed that.
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.pregel import Pregel

from dreamgym_kit.adapters.langgraph.analysis.inspection import GraphInspection
from dreamgym_kit.adapters.langgraph.analysis.nodes import runtime_context
from dreamgym_kit.adapters.langgraph.analysis.references import (
    check_tasks,
    checkers_of,
    environment_providers,
)
from dreamgym_kit.adapters.langgraph.episode.state import (
    EpisodeState,
    UsageCounter,
    classify_error,
    classify_stop,
    declares_context,
    say_model_down,
)
from dreamgym_kit.adapters.langgraph.episode.streaming import follow
from dreamgym_kit.adapters.langgraph.episode.transcript import final_state
from dreamgym_kit.adapters.langgraph.intercept.bound_names import HOLDINGS
from dreamgym_kit.adapters.langgraph.intercept.functions import hooked_names
from dreamgym_kit.adapters.langgraph.intercept.memory import own_graph
from dreamgym_kit.adapters.langgraph.policy.capture import ModelPolicy, captured
from dreamgym_kit.adapters.langgraph.run.experiences import AnswerSources
from dreamgym_kit.adapters.langgraph.run.request import RunRequest
from dreamgym_kit.dream.faults import FaultPlan, faults_of
from dreamgym_kit.dream.grading import judge_cut_off, judge_twice
from dreamgym_kit.dream.imagined.experience import SeedingFailed
from dreamgym_kit.dream.structured_output import CountedEndpoint
from dreamgym_kit.dream.user import user_of
from dreamgym_kit.errors import EpisodeStop, EpisodeTimeout
from dreamgym_kit.findings.case import Case
from dreamgym_kit.findings.detectors import Detectors
from dreamgym_kit.findings.text import leaves
from dreamgym_kit.guard import egress
from dreamgym_kit.guard.thread_owners import acting
from dreamgym_kit.interfaces import (
    Checker,
    EnvironmentProvider,
    EventSink,
    Judgement,
    Outcome,
    RunHook,
    config_values,
)
from dreamgym_kit.replay.masking import Masker, process_masker
from dreamgym_kit.rollout.budgets import RunBudget
from dreamgym_kit.rollout.engine import GRACE_S, LATE_WRITE_S
from dreamgym_kit.rollout.events import NoEvents
from dreamgym_kit.rollout.jobs import Job, ended, verdict_of
from dreamgym_kit.rollout.journal import masked_episode
from dreamgym_kit.routing.process import CONFIG_KEY, current, entered
from dreamgym_kit.routing.router import CallRouter, Mode
from dreamgym_kit.routing.session import Session
from dreamgym_kit.routing.transcript_check import reconcile
from dreamgym_kit.sandbox.confining import settle
from dreamgym_kit.settings.schema import Settings
from dreamgym_kit.threads import awaited
from dreamgym_kit.turns import Turn
from dreamgym_kit.types import Episode, Finding, Source, Task, Transition, Verdict, error_line

_Word = TypeVar("_Word")
REFUSED_S = 5.0  # what an episode gets to end by itself once something in it was refused


@dataclass(slots=True, kw_only=True)
class Run:
    """A run, made of parts: a graph that was loaded and read, and what runs around it.

    Implements `interfaces.EpisodeRunner`; runs any number of episodes at once. Made by `setup.prepared`.

    Attributes:
        request: what was asked for.
        graph: compiled; its memory is replaced, episode by episode.
        hooks: are called around each call and when an episode has ended; what they find stands in it. The
            budget is one of them always.
        masker: takes secrets out of what is kept of an episode.
        checkers: of all the tasks, by the name that tasks have for them.
        policy: answers in place of the graph's chat models; None: they answer for themselves.
        in_thread: run the graph synchronously (see `streaming`).
        sources: who answers in a dream, and plays users; unused while recording.
        label: put before the ids of recorded episodes, so that recordings of two runs stay apart.
        seed: of planned faults.
        on_turns: is given what the policy said, with the episode's id, before the episode is judged.
        on_executed: is given an episode as soon as a real call is noticed in it, before all else.
        lore: what detectors worked out of the tools, for all episodes alike.
        unended: sessions whose real writes were still running when last looked at.
    """

    request: RunRequest
    graph: Pregel[Any]
    facts: GraphInspection
    router: CallRouter
    detectors: Detectors
    budget: RunBudget
    hooks: Sequence[RunHook] = ()
    masker: Masker = field(default_factory=process_masker)
    checkers: dict[str, Checker] = field(default_factory=dict)
    environments: dict[str, EnvironmentProvider] = field(default_factory=dict)
    policy: ModelPolicy | None = None
    in_thread: bool = False
    sources: AnswerSources = field(default_factory=AnswerSources)
    events: EventSink = field(default_factory=NoEvents)
    label: str = ""
    seed: int = 0
    on_turns: Callable[[str, tuple[Turn, ...]], None] | None = None
    on_executed: Callable[[Episode], None] | None = None
    lore: dict[object, Any] = field(init=False, default_factory=dict)
    unended: list[Session] = field(init=False, default_factory=list)

    @property
    def settings(self) -> Settings:
        """Those of the request."""
        return self.request.settings

    @property
    def prefix(self) -> str:
        """What stands before an episode's id in its calls."""
        return f"{self.label}:" if self.request.mode is not Mode.DREAM else ""

    def admit(self, tasks: Sequence[Task], judges: Mapping[str, Checker] | None = None) -> None:
        """Let more tasks be run, held to what those that it was opened with are held to.

        `judges`: checkers that no setting names.

        Raises:
            UserError: one of them cannot be run; none is admitted.
        """
        own = judges or {}
        check_tasks(tasks, self.facts, self.settings, must_reset=self.request.must_reset)
        with egress.exempt():  # a worker's guard stands
            checkers = checkers_of(self.settings, [task for task in tasks if task.checker not in own])
            names = {task.environment.name for task in tasks} - set(self.environments)
            self.environments.update(environment_providers(self.settings, names))
        self.checkers.update({**checkers, **own})

    async def run(self, task: Task, *, repeat: int, attempt: int) -> Episode:
        """See `EpisodeRunner.run`."""
        episode = f"{task.id}.{repeat}"
        environment = self.environments.get(task.environment.name)
        if self.router.writes_are_real and (unended := self._unended(environment)):
            return ended(Job(task, repeat, attempt), unended, "error")
        session = self._session(task, episode)
        if self.router.writes_are_real:
            self.unended.append(session)
        usage = UsageCounter(session, self.settings.model, self.budget)
        state = EpisodeState(task=task, repeat=repeat, attempt=attempt, session=session, usage=usage)
        session.on_executed = lambda: self._keep_executed(state)
        place = self.prefix + episode
        real = self.router.mode is not Mode.DREAM
        not_closed = ""
        try:
            configurable, failed = await _set_up(environment, state, place, real=real)
            failed = failed or await self._seeded(state)
            if failed:
                state.stop, state.reason = "error", failed
            else:
                await self._driven(state, episode, configurable)
                await self._real_writes_ended(state)
                self._reconcile(state)
                session.keep_unreplied()
            if session.executed:
                return self._keep_executed(state)
            detected = self._look(state)
            judgement, alarms = await self._judge(state, configurable)
        finally:
            session.close()
            if real and environment is not None:
                not_closed = await _closed(environment, task, place)
        if not_closed:
            state.stop = "error"
            reason = f"{not_closed}; before that the episode was {judgement.verdict}: {judgement.reason}"
            judgement = Judgement(Verdict.ERROR, reason)
        judgement = _under_faults(judgement, session)
        findings = (*detected, *alarms)
        if session.executed:
            return self._keep_executed(state)
        self._tell(episode, session, findings)
        return masked_episode(state.record(judgement, findings), self.masker)

    async def _seeded(self, state: EpisodeState) -> str:
        """Make the entities of the task where its environment is imagined; why that failed, or ""."""
        if self.sources.imagined is None:
            return ""
        texts = tuple(map(str, leaves(dict(state.task.input))))
        try:
            await self.sources.imagined.seed(state.task, texts, state.session)
        except SeedingFailed as error:
            return f"the entities of the task could not be made: {error}"
        except EpisodeStop as stop:
            return str(stop)
        return ""

    def _unended(self, environment: EnvironmentProvider | None) -> str:
        """Why no episode may begin on a system that an earlier one still writes to, or ""."""
        self.unended[:] = [session for session in self.unended if session.running]
        if not self.unended or getattr(environment, "isolated", False):
            return ""
        writes = [f"{tool} of {earlier.episode}" for earlier in self.unended for tool in earlier.running[:1]]
        return f"not begun: a real write of an earlier episode is still running ({'; '.join(writes)})"

    async def _real_writes_ended(self, state: EpisodeState) -> None:
        """Wait for real writes that outlive their episode in threads: the next one has the same system."""
        session = state.session
        if not session.running:
            return
        session.stopped = session.stopped or EpisodeTimeout(
            "the next call", limit=self.settings.limits.max_seconds
        )
        loop = asyncio.get_running_loop()
        until = loop.time() + LATE_WRITE_S
        while session.running and loop.time() < until:  # noqa: ASYNC110  it ends in a thread, with no word to a loop
            await asyncio.sleep(0.02)
        if session.running:
            tools = ", ".join(sorted(set(session.running)))
            state.reason = (
                f"a real call of {tools} was still running {LATE_WRITE_S:g} s after its episode had ended; "
                "it is cut short where it still runs when this process ends"
            )
            state.stop = "error"

    def _keep_executed(self, state: EpisodeState) -> Episode:
        """Have it written down that something real ran; gives the episode, which is over."""
        episode = masked_episode(state.executed_record(), self.masker)
        if self.on_executed is not None:
            self.on_executed(episode)
        return episode

    def _tell(self, episode: str, session: Session, findings: Sequence[Finding]) -> None:
        """Say at once what a person should not have to wait for."""
        for why in session.violations:
            self.events.emit("violation", episode=episode, text=why)
        for finding in findings:
            self.events.emit(
                "finding", episode=episode, finding=finding.kind, text=finding.text, steps=list(finding.steps)
            )

    def _look(self, state: EpisodeState) -> tuple[Finding, ...]:
        """What the hooks find; a call that a detector makes is refused, and this episode's."""
        case = Case(
            task=state.task,
            steps=state.session.ledger.transitions(),
            messages=tuple(state.transcript.records),
            specs=self.router.specs,
            policy=state.usage.prompts,
            interrupts=tuple(state.replies),
            approval=self.settings.findings.approval,
            stop=state.stop,
            shared=self.lore,
        )
        with _beside_the_agent("a detector", state):
            return tuple(finding for hook in self.hooks for finding in hook.episode_done(case))
        return ()

    def _session(self, task: Task, episode: str) -> Session:
        return Session(
            self.router,
            experience=self.sources.model,
            episode=self.prefix + episode,
            task=task.id,
            environment=task.environment,
            tenant=self.settings.tenant,
            split=task.split,
            hooks=[*self.hooks, self.budget],
            emit=partial(self.events.emit, episode=episode),
            step_limit=self.settings.limits.max_tool_calls,
            lasts_s=self.settings.limits.max_seconds
            + GRACE_S,  # then the engine has ended it, or given it up
            abstain=self.settings.simulate.on_unanswered,
            whole_turns=True,
            faults=FaultPlan(
                self.settings.faults,
                self.seed,
                real=self.request.real_faults,
                prefix=self.prefix,
            ),
            masker=self.masker,
            overseer=self.request.overseer,
        )

    async def _driven(self, state: EpisodeState, episode: str, configurable: dict[str, Any]) -> None:
        """Drive the graph, its models answered by the policy where there is one."""
        if self.policy is None:
            await self._drive(state, configurable)
            return
        async with self.policy.lives(episode):
            with captured(self.policy, state.session, episode) as capture:
                await self._drive(state, configurable)
        if self.on_turns is not None:
            self.on_turns(episode, capture.turns())

    async def _drive(self, state: EpisodeState, configurable: dict[str, Any]) -> None:
        task, session = state.task, state.session
        session.hear(map(str, leaves(dict(task.input))))
        state.transcript.start(task)
        needs_saver = bool(task.replies or task.meta.get("user"))
        graph = own_graph(session, self.graph, needs_saver=needs_saver)
        config: RunnableConfig = {
            "configurable": {
                **self.settings.configurable,
                **configurable,
                CONFIG_KEY: session.id,
                "thread_id": uuid.uuid4().hex,
            },
            "recursion_limit": self.settings.limits.recursion_limit,
            "callbacks": [state.usage],
        }
        given = {**self.settings.context, **task.context}
        limit = asyncio.timeout(self.settings.limits.max_seconds)
        context = None
        try:
            with entered(session):
                async with limit:
                    context = runtime_context(graph, given)  # its defaults may be the user's code
                    session.on_refusal = _soon_over(limit)
                    chat = CountedEndpoint(self.sources.user, session, "user") if self.sources.user else None
                    user = user_of(task, chat)
                    await follow(graph, config, state, user, in_thread=self.in_thread, context=context)
        except asyncio.CancelledError:
            if session.stopped is None:
                self._reconcile(state)  # what ran has run, though its episode is dropped
                raise
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            wants_context = declares_context(self.graph) and context is None
            classify_error(
                state,
                error,
                wants_context=wants_context,
                timed_out=limit.expired(),
                fields=self.graph.channels,
            )
        if session.stopped is not None:
            classify_stop(state, session.stopped)

    def _reconcile(self, state: EpisodeState) -> None:
        session = state.session
        settle()  # what the kernel stopped in it
        reconciled = reconcile(
            state.transcript.records,
            session,
            known_tools=HOLDINGS.names | hooked_names(),
            structured=HOLDINGS.structured | self.router.structured,
        )
        if reconciled.bad_arguments:
            session.count("bad_arguments", reconciled.bad_arguments)
        if reconciled.executed and not self.router.mode.bare:
            session.ran(reconciled.executed)
        if not self.router.mode.bare:
            session.violations.extend(reconciled.violations)
        if state.stop == "finished" and reconciled.errors:
            session.violations.extend(reconciled.errors)
        if session.violations:
            state.stop, state.reason = "violation", session.violations[0]

    async def _judge(
        self, state: EpisodeState, configurable: Mapping[str, Any]
    ) -> tuple[Judgement, Sequence[Finding]]:
        task, session = state.task, state.session
        if session.model_errors and state.stop in ("finished", "limit", "interrupted", "crashed"):
            session.count("model_errors", len(session.model_errors))
            say_model_down(state)
        if state.stop in ("finished", "crashed", "abstained") and (unanswered := _unanswered(session)):
            crash = f"; then {state.reason}" if state.stop == "crashed" else ""
            state.stop, state.reason = "abstained", unanswered + crash
        if state.stop == "crashed":
            state.stop = "error"
            return Judgement(Verdict.FAILED, state.reason, 0.0), ()
        if state.stop == "limit" and state.ran_on and self.policy is not None:
            return Judgement(Verdict.FAILED, state.reason, 0.0), ()  # else going in circles costs nothing
        if state.stop not in ("finished", "abstained"):
            return Judgement(verdict_of(state.stop), state.reason), ()
        outcome = Outcome(
            task=task,
            transitions=session.ledger.transitions(),
            messages=state.transcript.records,
            final=final_state(state.values),
            real=self.router.writes_are_real,
            configurable=configurable,
        )
        rests = any(entry.answer.source is Source.IMAGINED for entry in outcome.transitions)
        checker = self._checker(task, imagined=rests)
        if state.stop == "abstained":
            # what an agent does after an answer that nobody gave proves nothing
            cut = replace(outcome, transitions=_to_the_unanswered(session))
            judged = await _judge_gated(judge_cut_off(cut, checker, state.reason), cut, state)
            return self._counted(judged or Judgement(Verdict.ERROR, state.reason), state, rests=rests), ()
        both = await _judge_gated(judge_twice(outcome, checker, self.sources.second, session), outcome, state)
        if both is None:
            return Judgement(Verdict.ERROR, state.reason), ()
        if both.agree is not None:
            session.count("judges_agree" if both.agree else "judges_disagree")
        settled = self._counted(both.settled, state, rests=rests)
        return settled, () if both.alarm is None else (both.alarm,)

    def _checker(self, task: Task, *, imagined: bool) -> Checker | None:
        """Who judges; an imagined environment only where nothing else is looked at, else the second judge."""
        own = self.request.judge
        checker: Checker | None = own or (self.checkers.get(task.checker) if task.checker else None)
        if not imagined or checker is own or getattr(checker, "pure", checker is None):
            return checker
        return _not_pure if self.sources.second is None else None

    def _counted(self, judgement: Judgement, state: EpisodeState, *, rests: bool) -> Judgement:
        """What a judgement counts for: where it rests on imagined answers, nothing unless settings say so."""
        settings = self.settings
        counts = settings.gate.imagined == "count" or (self.request.measures and settings.train.imagined)
        if not rests or counts or not judgement.verdict.conclusive:
            return judgement
        state.would = judgement.verdict
        would = "pass" if judgement.verdict is Verdict.PASSED else "fail"
        return Judgement(Verdict.INCONCLUSIVE, f"answers were imagined; it would {would}: {judgement.reason}")


def _not_pure(outcome: Outcome) -> Judgement:  # noqa: ARG001  a checker's form
    """Stands for a checker that may look at a real system, which an imagined environment has not."""
    return Judgement(
        Verdict.INCONCLUSIVE,
        "answers were imagined, and the checker is not marked `pure = True`: it may look at a real system",
    )


async def _judge_gated(judging: Awaitable[_Word], outcome: Outcome, state: EpisodeState) -> _Word | None:
    """Run a checker inside the gate; return None if it did something that a dream forbids."""
    if outcome.real:
        return await judging
    judgement: _Word | None = None
    with _beside_the_agent("the checker", state) as refused:
        judgement = await judging
    return None if refused else judgement


def _unanswered(session: Session) -> str:
    """Which call nobody could answer, and why; empty if each was answered."""
    open_calls = [entry for entry in session.ledger.transitions() if entry.answer.unanswered]
    if not open_calls:
        return ""
    first = open_calls[0]
    others = len(open_calls) - 1
    more = f" (and {others} more call{'s'[: others > 1]})" if others else ""
    tool, why = first.call.tool, first.answer.why or "not known"
    return f"unanswered call {first.step}{more}: {why if why.startswith(f'{tool} ') else f'{tool}, {why}'}"


def _to_the_unanswered(session: Session) -> tuple[Transition, ...]:
    """The calls up to the first that nobody answered, and those that the model asked for in the same turn."""
    entries, turn = session.ledger.transitions(), session.ledger.turn
    at = next((place for place, entry in enumerate(entries) if entry.answer.unanswered), len(entries))
    turns = {turn(entry.call.call_id)[0] for entry in entries[at : at + 1]} - {0}  # 0: no model asked for it
    beside = [entry for entry in entries[at + 1 :] if turn(entry.call.call_id)[0] in turns]
    return (*entries[: at + 1], *beside)


@contextmanager
def _beside_the_agent(part: str, state: EpisodeState) -> Iterator[list[str]]:
    """Run a user's own part of the set-up in a dream; what it is refused makes the episode an error.

    It is no call of the agent's, so it is not counted as blocked. The refusals are in the list afterwards.
    """
    session, refused = state.session, list[str]()
    before = len(session.beside)
    tokens = current.set(session), acting.set(part)
    try:
        yield refused
    except EpisodeStop as stop:
        refused.append(str(stop))
    finally:
        current.reset(tokens[0])
        acting.reset(tokens[1])
        refused += [why for why in session.beside[before:] if why not in refused]
        if refused and state.stop != "violation":  # what the agent was refused weighs more
            state.stop, state.reason = "error", f"{part} was refused: {refused[0]}"


async def _set_up(
    environment: EnvironmentProvider | None, state: EpisodeState, place: str, *, real: bool
) -> tuple[dict[str, Any], str]:
    """Set an episode's environment up; gives what the graph is configured with, and why that failed or ""."""
    task = state.task
    if environment is None:
        return {}, ""
    try:
        if real:
            configurable = config_values(environment, task.environment, place)
            await awaited(environment.reset(task.environment, place))
            return configurable, ""
        part = f'the environment "{task.environment.name}"'
        configurable = {}
        with _beside_the_agent(part, state) as refused:
            configurable = config_values(environment, task.environment, place)
        return configurable, f"{part} was refused: {refused[0]}" if refused else ""
    except (Exception, SystemExit) as error:  # noqa: BLE001  a user's class may raise anything
        return {}, f'environment "{task.environment.name}" could not be set up: {error_line(error)}'


async def _closed(environment: EnvironmentProvider, task: Task, place: str) -> str:
    """Close an episode's environment; why that failed, or ""."""
    try:
        await awaited(environment.close(place))
    except (Exception, SystemExit) as error:  # noqa: BLE001  as above; what the episode did stays known
        return f'environment "{task.environment.name}" could not be closed: {error_line(error)}'
    return ""


def _soon_over(limit: asyncio.Timeout) -> Callable[[], None]:
    """Cuts an episode short where the thread that was refused is one that its agent waits for in vain."""
    loop = asyncio.get_running_loop()

    def shorten() -> None:
        soon, when = loop.time() + REFUSED_S, limit.when()
        with suppress(RuntimeError):  # the episode has ended
            if when is None or soon < when:
                limit.reschedule(soon)

    def refused() -> None:
        with suppress(RuntimeError):  # its loop too
            loop.call_soon_threadsafe(shorten)

    return refused


def _under_faults(judgement: Judgement, session: Session) -> Judgement:
    """Say with the verdict that tools were made to fail: the agent's own failures are told apart from it."""
    faults = faults_of(session.ledger.transitions())
    if not faults:
        return judgement
    for kind, times in faults.items():
        session.count(f"fault_{kind}", times)
    count = sum(faults.values())
    return replace(judgement, reason=f"{judgement.reason} (with {count} injected fault{'s'[: count > 1]})")
