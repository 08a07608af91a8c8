"""Reads a world from end to end on its real tools, and keeps every answer; writes nothing.

Only tools whose effect is `read`, said by a person or by the tool's author; a guess counts where the person
who starts the crawl says so. The gate of the crawl lets nothing else through: a read that calls a write
underneath is refused before the write. What was crawled before is in the store, so a crawl that was stopped
goes on where it was. Calls go one by one, so many a second, up to a budget.
"""

import asyncio
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import AIMessage, ToolCall
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode

from dreamgym_kit.adapters.langgraph.analysis.inspection import GraphInspection, own_tools
from dreamgym_kit.adapters.langgraph.analysis.loading import open_graph
from dreamgym_kit.adapters.langgraph.analysis.locking import LockWatch
from dreamgym_kit.adapters.langgraph.analysis.references import environment_providers
from dreamgym_kit.adapters.langgraph.intercept.bound_names import HOLDINGS
from dreamgym_kit.adapters.langgraph.intercept.install import install
from dreamgym_kit.adapters.langgraph.run.request import RunRequest
from dreamgym_kit.adapters.langgraph.run.setup import ready, router_of
from dreamgym_kit.adapters.stores.factory import salt_of
from dreamgym_kit.dream.crawl_queue import Frontier, words_of
from dreamgym_kit.dream.faults import is_transient
from dreamgym_kit.dream.observed import failed, observation
from dreamgym_kit.errors import EpisodeStop, UserError
from dreamgym_kit.interfaces import EnvironmentProvider, EventSink, RunHook, TransitionStore, config_values
from dreamgym_kit.replay.masking import process_masker
from dreamgym_kit.rollout.events import NoEvents
from dreamgym_kit.rollout.stop import StopSwitch
from dreamgym_kit.routing.process import CONFIG_KEY, entered
from dreamgym_kit.routing.router import Mode
from dreamgym_kit.routing.session import Session
from dreamgym_kit.settings.schema import Settings
from dreamgym_kit.threads import awaited
from dreamgym_kit.types import Call, Effect, Environment, Source, Split, Task, ToolSpec, Transition

EPISODE = "crawl:"
"""What the ids of crawled episodes begin with."""

_CALL_S = 60.0  # the longest that one read may take


@dataclass(frozen=True, slots=True)
class Crawled:
    """A world to crawl, with the words that its tasks give to begin with."""

    environment: Environment
    words: tuple[str, ...] = ()
    split: Split = Split.TRAIN


@dataclass(frozen=True, slots=True, kw_only=True)
class CrawlRequest:
    """What to crawl.

    Attributes:
        graph: a spec or a live graph, StateGraph or factory.
        most: calls at most, over all worlds, with those of this run only.
        per_second: calls a second at most; 0 for no pause.
        trust_guesses: whether a tool that was only guessed to read may be called.
    """

    graph: object
    environments: Sequence[Crawled]
    settings: Settings
    store: TransitionStore
    most: int = 1_000
    per_second: float = 5.0
    trust_guesses: bool = False


@dataclass(frozen=True, slots=True)
class CrawlPlan:
    """What a crawl will call, and what it leaves alone and why."""

    reads: tuple[ToolSpec, ...]
    left_out: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class CrawlResult:
    """What came of a crawl."""

    calls: Counter[str] = field(default_factory=Counter)  # by tool
    failures: int = 0  # reads that the tool refused
    passing: int = 0  # reads that met a failure that passes: not kept, made again by the next crawl
    before: int = 0  # calls that an earlier crawl had made
    environments: int = 0  # that were read to their end
    stopped: str = ""  # why it ended early
    refused: tuple[str, ...] = ()  # what was about to run that is no read


@dataclass(frozen=True, slots=True)
class ReadsOnly(RunHook):
    """Lets the reads of a plan run, and nothing else; not even where one of them calls it."""

    reads: frozenset[str]

    def forbids(self, call: Call, tool: ToolSpec) -> str:
        """See `RunHook.forbids`."""
        if tool.effect.runs_in_dream or (tool.effect is Effect.READ and call.tool in self.reads):
            return ""
        return f"{call.tool} ({tool.effect}) was about to run in a crawl, which only reads; it did not run"


def plan_crawl(facts: GraphInspection, *, trust_guesses: bool) -> CrawlPlan:
    """Choose the tools that a crawl calls."""
    reads, left_out = [], []
    for spec in facts.tools:
        if spec.effect is not Effect.READ:
            continue
        if facts.own and spec.name not in facts.own and spec.kind == "tool":
            left_out.append((spec.name, "in no tool node of this graph"))
        elif spec.kind != "tool":
            left_out.append((spec.name, "a function or node, which cannot be called by itself"))
        elif spec.source == "guessed" and not trust_guesses:
            left_out.append((spec.name, f"that it reads is only a guess ({spec.reason})"))
        else:
            reads.append(spec)
    return CrawlPlan(tuple(reads), tuple(left_out))


async def crawl(
    request: CrawlRequest, *, events: EventSink | None = None, stop: StopSwitch | None = None
) -> CrawlResult:
    """Crawl every environment of the request.

    Raises:
        UserError: there is nothing to call, or the graph or an environment cannot be used.
    """
    switch, sink, result = stop or StopSwitch(), events or NoEvents(), CrawlResult()
    install()
    async with AsyncExitStack() as stack:
        graph = await stack.enter_async_context(open_graph(request.graph, folder=request.settings.folder))
        run_request = RunRequest(
            graph=request.graph, tasks=(), settings=request.settings, mode=Mode.RECORD, store=request.store
        )
        facts = ready(graph, run_request)
        LockWatch(request.graph, request.settings, facts, request.store)
        plan = plan_crawl(facts, trust_guesses=request.trust_guesses)
        if not plan.reads:
            raise UserError(nothing_to_read(plan))
        # of two tools of one name the graph's own is meant
        tools = {**{tool.name: tool for tool in HOLDINGS.tools()}, **own_tools(graph)}
        caller = _caller([tools[spec.name] for spec in plan.reads])
        environments = environment_providers(
            request.settings, {environment.environment.name for environment in request.environments}
        )
        for target in request.environments:
            if result.stopped:
                break
            await _Environment(
                request, plan, facts, caller, environments.get(target.environment.name), target, result, sink
            ).read(switch)
    return result


class _Environment(RunHook):
    """One environment while it is read."""

    def __init__(
        self,
        request: CrawlRequest,
        plan: CrawlPlan,
        facts: GraphInspection,
        caller: CompiledStateGraph[Any, Any, Any, Any],
        real: EnvironmentProvider | None,
        crawled: Crawled,
        result: CrawlResult,
        events: EventSink,
    ) -> None:
        self._request, self._caller, self._real, self._result = request, caller, real, result
        self._environment, self._events, self._recorded = crawled.environment, events, False
        self._frontier = Frontier(plan.reads, crawled.words)
        leg = self._look_back()
        self._episode = f"{EPISODE}{self._environment}:{leg}"
        settings = request.settings
        reads = frozenset(spec.name for spec in plan.reads)
        self._session = Session(
            router_of(Mode.RECORD, settings, facts.specs(), facts.judge),
            episode=self._episode,
            environment=self._environment,
            tenant=settings.tenant,
            split=crawled.split,
            hooks=[ReadsOnly(reads), self],
            masker=process_masker(settings.experience.key_env, salt=salt_of(request.store, settings)),
        )

    def _look_back(self) -> int:
        """Take over what was recorded of this world; gives the number of this leg of its crawl."""
        legs = set()
        for entry in self._request.store.scan(
            tenant=self._request.settings.tenant, environment=self._environment
        ):
            if entry.answer.source is not Source.REAL:
                continue
            seen = observation(entry.answer)
            if entry.episode.startswith(EPISODE):
                legs.add(entry.episode)
                self._result.before += 1
                self._frontier.record_answer(entry.call, seen)
            elif not failed(seen):
                self._frontier.record_ids(entry.call, seen)
        return len(legs) + 1

    def after_call(self, entry: Transition) -> None:
        """See `RunHook.after_call`."""
        if self._session.violated():
            return  # what a read said that was about to write is not believed
        if is_transient(entry.answer):
            self._result.passing += 1
            return
        self._recorded = True
        if entry.answer.source is Source.REAL:
            self._request.store.put([entry])
        self._result.failures += entry.answer.error is not None
        self._frontier.record_answer(entry.call, observation(entry.answer))
        self._events.emit(
            "call",
            episode=self._episode,
            step=entry.step,
            tool=entry.call.tool,
            effect=entry.effect.value,
            source=entry.answer.source.value,
        )

    async def read(self, stop: StopSwitch) -> None:
        """Make every read that is left, as far as budget and switch allow."""
        configurable = config_values(self._real, self._environment, self._episode) if self._real else {}
        try:
            if self._real is not None:
                await awaited(self._real.reset(self._environment, self._episode))
            with entered(self._session):
                await self._calls(configurable, stop)
        finally:
            if self._real is not None:
                await awaited(self._real.close(self._episode))
        if not self._result.stopped:
            self._result.environments += 1

    async def _calls(self, configurable: Mapping[str, object], stop: StopSwitch) -> None:
        pause = 1 / self._request.per_second if self._request.per_second > 0 else 0.0
        while True:
            call = self._frontier.next()
            if call is None:
                return
            if stop.requested:
                self._result.stopped = stop.reason
            elif self._result.calls.total() >= self._request.most:
                self._result.stopped = f"the budget of {self._request.most} calls"
            if self._result.stopped:
                return
            began = asyncio.get_running_loop().time()
            if not await self._call(call, configurable):
                return
            await asyncio.sleep(max(0.0, pause - (asyncio.get_running_loop().time() - began)))

    async def _call(self, call: Call, configurable: Mapping[str, object]) -> bool:
        """Make one call as an agent would; False when the gate had to refuse something."""
        config: RunnableConfig = {
            "configurable": {**configurable, CONFIG_KEY: self._session.id, "thread_id": uuid.uuid4().hex}
        }
        tool_call: ToolCall = {
            "name": call.tool,
            "args": dict(call.args),
            "id": uuid.uuid4().hex,
            "type": "tool_call",
        }
        message = AIMessage("", tool_calls=[tool_call])
        self._result.calls[call.tool] += 1
        self._recorded, why = False, ""
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(_CALL_S):
                    await self._caller.ainvoke({"messages": [message]}, config)
        except EpisodeStop as stopped:
            why = str(stopped)
        why = next(iter(self._session.violations), why)  # the tool may have swallowed it
        if why:
            self._result.refused = (*self._result.refused, *self._session.violations)
            self._result.stopped = why
            return False
        if not self._recorded:  # too late, or its arguments were refused before it ran
            self._frontier.refused(call)
        return True


def _caller(
    tools: Sequence[BaseTool],
) -> CompiledStateGraph[Any, Any, Any, Any]:
    """A graph that runs the calls of a message as an agent's own would: tools get config and state."""
    builder = StateGraph(MessagesState)
    builder.add_node("tools", ToolNode(list(tools), handle_tool_errors=True))
    builder.add_edge(START, "tools")
    builder.add_edge("tools", END)
    return builder.compile()


def crawl_targets(tasks: Sequence[Task]) -> list[Crawled]:
    """Return the environments of tasks, in order, each with the words of its tasks."""
    words: dict[Environment, dict[str, None]] = {}
    trained = {task.environment for task in tasks if task.split is Split.TRAIN}
    for task in tasks:
        environment_words = words.setdefault(task.environment, {})
        environment_words.update(dict.fromkeys(words_of(" ".join(_texts(task.input)))))
    return [
        Crawled(environment, tuple(word), Split.TRAIN if environment in trained else Split.HELD_OUT)
        for environment, word in words.items()
    ]


def _texts(value: object) -> Iterator[str]:
    """What a task says; roles and types of messages are no words of it."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if key not in ("role", "type"):
                yield from _texts(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts(item)


def nothing_to_read(plan: CrawlPlan) -> str:
    """Why there is nothing to crawl, and what to do."""
    if not plan.left_out:
        return "no tool of this graph is a read: there is nothing to crawl."
    names = "; ".join(f"{name}: {why}" for name, why in plan.left_out)
    return (
        f"no tool of this graph is known to be a read ({names}). Confirm them in dreamgym.toml "
        '([tools.NAME] effect = "read"), or agree to the guesses with --allow-guessed. Nothing was run.'
    )
