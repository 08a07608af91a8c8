"""In record mode the real tools run, once each, and every call is kept with what it answered."""

import asyncio
from typing import Any

import pytest
from each_row import each_row
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.prebuilt import ToolNode
from langgraph.types import Command
from shapes.agents import ADD, MAKES, with_tool_node
from shapes.canary import Canary
from shapes.everything import rows
from shapes.middleware import THREAD, asking_tool, one_node_graph
from shapes.models import asks
from shapes.stage import HELLO, Shape, tool_messages
from shapes.tools import KINDS, add_tool

from dreamgym_kit.adapters.langgraph.intercept.functions import hook
from dreamgym_kit.dream.recorded import RecordedExperience
from dreamgym_kit.interfaces import RunHook
from dreamgym_kit.routing.process import entered
from dreamgym_kit.routing.router import CallRouter, Mode
from dreamgym_kit.routing.session import Session
from dreamgym_kit.types import Effect, Source, ToolSpec, Transition

pytestmark = [pytest.mark.usefixtures("gate"), pytest.mark.filterwarnings("ignore")]
BYPASS = ("overridden", "entry from a mixin")  # what such a tool does before its leaf is its own affair
RECORDED = [
    (shape, kind)
    for shape, kind in rows()
    if not any(name in shape.name for name in BYPASS) and "rejects" not in shape.name
]


def recording(**settings: Any) -> Session:
    return Session(CallRouter(Mode.RECORD), **settings)


@each_row(("shape", "kind"), RECORDED[::7], ids=[f"{s.name}, {k}" for s, k in RECORDED[::7]])
def test_every_body_that_runs_is_kept(shape: Shape, kind: str, canary: Canary) -> None:
    runs = shape.build()
    session = recording()
    with entered(session):
        try:
            runs.sync() if kind == "sync" else asyncio.run(_awaited(runs.anync))
        except NotImplementedError:
            pytest.skip("async-only tool")
    kept = [entry for entry in session.ledger.transitions() if entry.answer.source is Source.REAL]
    assert len(kept) >= min(1, shape.dreamt)
    assert len(kept) == session.real_calls


async def _awaited(run: Any) -> Any:
    return await run()


@each_row("make", MAKES)
def test_arguments_answer_node_and_call_id_are_kept(make: str, canary: Canary) -> None:
    session = recording(task="t1", episode="t1.1")
    with entered(session):
        MAKES[make]([add_tool()], [[asks("add", {"a": 1, "b": 2}, "c1")], "done"]).invoke(HELLO)
    (entry,) = session.ledger.transitions()
    assert (entry.call.tool, dict(entry.call.args), entry.call.call_id, entry.call.node) == (
        "add", {"a": 1, "b": 2}, "c1", "tools",
    )  # fmt: skip
    assert (entry.answer.content, entry.answer.source) == (3, Source.REAL)
    assert (entry.task, entry.episode, entry.step, entry.effect) == ("t1", "t1.1", 1, Effect.DESTRUCTIVE)
    assert entry.elapsed_s >= 0.0
    assert canary.written() == ["add"]


def test_a_failure_is_kept_and_still_raised() -> None:
    @tool
    def fails(a: int) -> str:
        """Fail."""
        raise ValueError("no such order")

    session = recording()
    with entered(session), pytest.raises(ValueError, match="no such order"):
        fails.invoke({"a": 1})
    (entry,) = session.ledger.transitions()
    assert (entry.answer.error, entry.answer.error_type) == ("no such order", "ValueError")


@each_row("kind", ["tool", "hooked function"])
def test_a_body_that_ends_in_stop_iteration_fails_with_just_that(kind: str) -> None:
    """What an empty `next(...)` raises: no generator of ours may turn it into another exception."""

    def fails(a: int) -> str:
        """Fail."""
        return str(next(item for item in [] if item == a))

    made = tool(fails)
    session = recording()
    if kind == "hooked function":
        hook(fails, "fails")
    with entered(session), pytest.raises(StopIteration) as raised:
        made.invoke({"a": 1}) if kind == "tool" else fails(1)
    assert raised.value.__context__ is None
    assert [entry.answer.error_type for entry in session.ledger.transitions()] == ["StopIteration"]


def test_an_interrupt_is_no_failure_and_the_resumed_body_is_kept_once(canary: Canary) -> None:
    script = [[asks("add", ADD, "A"), asks("ask_user", {"question": "?"}, "B")], "done"]
    session = recording()
    with entered(session):
        graph = one_node_graph(script, [add_tool(), asking_tool()])
        graph.invoke(HELLO, THREAD)
        graph.invoke(Command(resume="yes"), THREAD)
    kept = [(entry.call.tool, entry.answer.content) for entry in session.ledger.transitions()]
    assert kept.count(("ask_user", "user: yes")) == 1
    assert all(error is None for error in (e.answer.error for e in session.ledger.transitions()))


def test_a_tool_that_calls_a_tool_is_kept_with_both(canary: Canary) -> None:
    inner = add_tool()

    @tool
    def outer(a: int) -> str:
        """Call another."""
        return str(inner.invoke({"a": a}))

    session = recording()
    with entered(session):
        outer.invoke({"a": 1})
    assert sorted(entry.call.tool for entry in session.ledger.transitions()) == ["add", "outer"]


def test_recording_uses_the_real_checkpointer() -> None:
    saver = InMemorySaver()
    with entered(recording()):
        MAKES["create_agent"]([add_tool()], ["done"], checkpointer=saver).invoke(HELLO, THREAD)
    assert len(list(saver.list(None))) > 0


def test_each_kept_call_is_heard_before_the_agent_goes_on(canary: Canary) -> None:
    heard: list[Transition] = []

    class Listens(RunHook):
        def after_call(self, entry: Transition) -> None:
            heard.append(entry)

    with entered(recording(hooks=[Listens()])):
        add_tool().invoke(ADD)
        assert [entry.call.tool for entry in heard] == ["add"]


@each_row("kind", [name for name in KINDS if not name.startswith(BYPASS)])
def test_what_was_recorded_is_what_is_dreamt(kind: str, canary: Canary) -> None:
    made, given = KINDS[kind]
    real = recording()

    async def once_real() -> Any:
        return await made().ainvoke(given)

    with entered(real):
        said = asyncio.run(once_real())
    recorded = real.ledger.transitions()
    canary.clear()
    policy = CallRouter(Mode.DREAM, {recorded[0].call.tool: ToolSpec(recorded[0].call.tool, Effect.READ)})
    with entered(Session(policy, experience=RecordedExperience(lambda world, tenant: recorded))):
        assert asyncio.run(once_real()) == said
    assert canary.written() == []


@each_row("handled", [True, False])
def test_a_recorded_failure_takes_the_same_way_through_the_agent(handled: bool) -> None:
    @tool
    def fails(a: int) -> str:
        """Fail."""
        raise KeyError("o1")

    def graph() -> Any:
        node = ToolNode([fails], handle_tool_errors=handled)
        return with_tool_node([fails], [[asks("fails", {"a": 1}, "c1")], "done"], node=node)

    def outcome() -> Any:
        try:
            return [message.content for message in tool_messages(graph().invoke(HELLO))]
        except KeyError as error:
            return str(error)

    real = recording()
    with entered(real):
        said = outcome()
    recorded = real.ledger.transitions()
    policy = CallRouter(Mode.DREAM)
    with entered(Session(policy, experience=RecordedExperience(lambda world, tenant: recorded))):
        assert outcome() == said
