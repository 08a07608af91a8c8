"""What the gate costs: CPU time of `tool.invoke` on a trivial tool, against the same without the kit.

Bare, idle (gate in, no session), recorded (record session) and simulated (answered from a recording)
are measured in turn, many short rounds, and compared by their medians: only ratios mean anything on a
shared machine. A ratio below 1 is no mistake: the gate's wrapper of StructuredTool's leaf carries its type
hints as types, which the framework otherwise evaluates from strings on every call.

`start_ms` is what opening the desk takes before its first episode: loading, hooks, inventory, lock.
"""

import asyncio
import gc
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from contextvars import copy_context
from pathlib import Path
from typing import Any

from fresh import forget_dreams
from langchain_core.tools import BaseTool, tool

from dreamgym_kit.adapters.langgraph.intercept.install import install, uninstall
from dreamgym_kit.dream.recorded import RecordedExperience
from dreamgym_kit.routing.process import entered
from dreamgym_kit.routing.router import CallRouter, Mode
from dreamgym_kit.routing.session import Session
from dreamgym_kit.types import Answer, Call, Effect, Environment, Source, ToolSpec, Transition

WAYS = ("simulated", "recorded", "idle")
ROUNDS = 25
CALLS = 200
STARTS = 15
GIVEN = {"a": 1, "b": 2}
SPECS = {"add": ToolSpec("add", Effect.READ)}
RECORDED = Transition(
    Call("add", GIVEN), Answer(3, Source.REAL), Effect.READ, "e", 1, environment=Environment()
)


def measure(seed: int) -> list[tuple[str, float, str]]:
    """Figures for the bench runner."""
    cost, by_class = costs(ROUNDS, CALLS), costs(ROUNDS, CALLS, AddTool())
    figures = [(f"{name}_ratio", cost[name] / cost["bare"], "x bare") for name in WAYS]
    figures += [(f"{name}_class_ratio", by_class[name] / by_class["bare"], "x bare") for name in WAYS]
    figures += [(f"{name}_class_extra", by_class[name] - by_class["bare"], "us") for name in WAYS]
    figures.append(("start_ms", start_ms(STARTS), "ms"))
    for prefix, begun in (("", dreaming), ("writes_", writing)):
        p99, growth = long_session(10_000, begun)
        figures += [(f"{prefix}p99_ms", p99, "ms"), (f"{prefix}growth", growth, "x a young session")]
    return [(name, round(value, 3), unit) for name, value, unit in figures]


def costs(rounds: int, calls: int, made: BaseTool | None = None) -> dict[str, float]:
    """Median CPU microseconds of one call of a tool (else of one made by `@tool`), by way."""
    add = made or decorated()
    ways: dict[str, Callable[[], Any]] = {
        "bare": _bare,
        "idle": _idle,
        "recorded": lambda: _in_session(Session(CallRouter(Mode.RECORD, SPECS))),
        "simulated": lambda: _in_session(dreaming()),
    }
    found: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, around in ways.items():
            with around():
                spent = _timed(add, calls)
            if number:  # the first round warms everything up
                found[name].append(spent)
    return {name: statistics.median(spent) for name, spent in found.items()}


def long_session(calls: int, begun: Callable[[], Session]) -> tuple[float, float]:
    """CPU of a dreamt answer: its 99th percentile in ms, and that of late calls beside a young session's.

    The last tenth is called in turn with a young session: what else the machine does slows both.
    """
    add, young, inside = decorated(), copy_context(), entered(begun())
    with _in_session(begun()):
        young.run(inside.__enter__)  # in a context of its own: both sessions stay open
        spent = [_timed_once(add) for _ in range(calls - calls // 10)]
        pairs = [(_timed_once(add), young.run(_timed_once, add)) for _ in range(calls // 10)]
        young.run(inside.__exit__, None, None, None)
    late, early = zip(*pairs, strict=True)
    spent.extend(late)
    return statistics.quantiles(spent, n=100)[98] / 1e3, statistics.median(late) / statistics.median(early)


def start_ms(starts: int) -> float:
    """The median time of opening the desk for a dream, in a process that has it imported."""
    import dreamgym_kit.recipes.desk as desk
    from dreamgym_kit.adapters.langgraph.analysis.locking import LockWatch
    from dreamgym_kit.adapters.langgraph.run.request import RunRequest
    from dreamgym_kit.adapters.langgraph.run.setup import prepared
    from dreamgym_kit.rollout.budgets import RunBudget
    from dreamgym_kit.settings.load import load_settings

    settings = load_settings(file=Path(desk.__file__).parent / "dreamgym.toml", environ={})
    request = RunRequest(graph=settings.graph, tasks=(), settings=settings)

    async def opened() -> float:
        async with AsyncExitStack() as stack:
            started = time.perf_counter()
            ready = await prepared(stack, request, (), RunBudget(None, None))
            LockWatch(request.graph, settings, ready.facts, None)
            return (time.perf_counter() - started) * 1e3

    install()
    took = [asyncio.run(opened()) for _ in range(starts + 1)][1:]  # the first one imports the desk
    uninstall()
    return statistics.median(took)


def _timed_once(made: BaseTool) -> float:
    started = time.thread_time()
    made.invoke(GIVEN)
    return (time.thread_time() - started) * 1e6


def decorated() -> BaseTool:
    """The usual tool."""

    @tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    return add


class AddTool(BaseTool):
    """A tool class of its own: the framework does the least for it, so the gate weighs the most."""

    name: str = "add"
    description: str = "Add two numbers."

    def _run(self, a: int, b: int) -> int:
        return a + b


def dreaming() -> Session:
    """A session that answers from one recording."""
    return Session(CallRouter(Mode.DREAM, SPECS), experience=RecordedExperience(lambda *_: [RECORDED]))


class KnownDouble(RecordedExperience):
    """Answers writes too, so that a session has a long history of them."""

    async def answer(self, call: Call, situation: Any) -> Answer:
        """The recorded answer, whatever was written before."""
        return RECORDED.answer


def writing() -> Session:
    """A session whose every call is a write, each in the state that the one before left."""
    policy = CallRouter(Mode.DREAM, {"add": ToolSpec("add", Effect.WRITE)})
    return Session(policy, experience=KnownDouble(lambda *_: [RECORDED]), abstain="error")


def _timed(made: Any, calls: int) -> float:
    gc.collect()
    gc.disable()  # a collection that falls into one round says nothing about it
    try:
        started = time.process_time()
        for _ in range(calls):
            made.invoke(GIVEN)
        return (time.process_time() - started) / calls * 1e6
    finally:
        gc.enable()


@contextmanager
def _bare() -> Iterator[None]:
    yield


@contextmanager
def _idle() -> Iterator[None]:
    install()
    yield
    uninstall()


@contextmanager
def _in_session(session: Session) -> Iterator[None]:
    install()
    with entered(session):
        yield
    forget_dreams()  # what is idle must not be slow because of it
    uninstall()
