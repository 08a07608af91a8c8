"""The policy at the leaf of a graph's chat models: every turn kept, the graph unchanged."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from capture.policy_server_double import PolicyServerDouble, calls, said_in, says, scripted
from each_row import each_row
from shapes.agents import MAKES, STREAM_MODES
from shapes.stage import DREAMT, HELLO, dream, tool_messages
from shapes.tools import add_tool
from training.conversations import merged

from dreamgym_kit.adapters.langgraph.intercept.install import install, uninstall
from dreamgym_kit.adapters.langgraph.policy.capture import Capture, ModelPolicy, captured
from dreamgym_kit.errors import EndpointError, EpisodeStop
from dreamgym_kit.routing.process import entered


@pytest.fixture(autouse=True)
def gate() -> Any:
    install()
    yield
    uninstall()


ADD = ("add", '{"a": 1, "b":2}')  # spelled as nobody else would
SCRIPT = (calls(ADD), calls(("add", '{"a":3, "b": 4}'), ADD), says("It is 42."))


def told_of_nothing(*_: Any) -> Any:
    raise AssertionError("the graph's own model was asked")


async def episode(
    server: PolicyServerDouble, run: Callable[[], Any], *, session: Any = None, **options: Any
) -> tuple[Any, Capture]:
    """One episode under a policy; gives what came of it and the capture."""
    session = session or dream()
    with captured(ModelPolicy(server=server, **options), session) as capture, entered(session):
        result = await run()
    assert capture is not None
    return result, capture


def make(kind: str, tools: Any = None) -> Any:
    return MAKES[kind](tools or [add_tool()], ["the own model spoke"])


@each_row("kind", MAKES)
def test_every_turn_of_an_unchanged_graph_is_kept_and_extends_the_last(kind: str) -> None:
    server = PolicyServerDouble(scripted(*SCRIPT))
    graph = make(kind)
    result, capture = asyncio.run(episode(server, lambda: graph.ainvoke(HELLO)))
    turns = capture.turns()
    assert [said_in(turn.ids) for turn in turns] == [
        '[add {"a": 1, "b":2}]', '[add {"a":3, "b": 4}][add {"a": 1, "b":2}]', "It is 42."
    ]  # fmt: skip
    assert [turn.index for turn in turns] == [0, 1, 2]
    assert [message.content for message in tool_messages(result)] == [DREAMT] * 3
    assert result["messages"][-1].content == "It is 42."
    samples, counts = merged(turns)
    assert (len(samples), counts.merged, counts.forks) == (1, 2, 0)


@each_row("mode", STREAM_MODES, ids=str)
@each_row("kind", ["create_agent", "create_agent, streaming model"])
def test_a_streamed_graph_gives_the_same_turns(kind: str, mode: Any) -> None:
    server, graph = PolicyServerDouble(scripted(*SCRIPT)), make(kind)

    async def drained() -> list[Any]:
        return [part async for part in graph.astream(HELLO, stream_mode=mode)]

    _, capture = asyncio.run(episode(server, drained))
    assert [said_in(turn.ids) for turn in capture.turns()][-1] == "It is 42."
    assert len(capture.turns()) == 3


def test_the_dream_answers_the_policys_calls_and_the_gate_hears_them() -> None:
    session = dream()
    asyncio.run(
        episode(
            PolicyServerDouble(scripted(*SCRIPT)),
            lambda: make("create_agent").ainvoke(HELLO),
            session=session,
        )
    )
    assert session.asked_tools == ["add", "add", "add"]
    assert [entry.call.args["a"] for entry in session.ledger.transitions()] == [1, 3, 1]


def test_a_sync_graph_in_a_thread_asks_on_the_episodes_loop() -> None:
    server, graph = PolicyServerDouble(scripted(*SCRIPT)), make("StateGraph and ToolNode")

    async def in_thread() -> Any:
        await asyncio.to_thread(graph.invoke, HELLO)
        return __import__("threading").get_ident()

    mine, capture = asyncio.run(episode(server, in_thread))
    assert len(capture.turns()) == 3
    assert server.threads == {mine}


def test_a_sync_call_on_the_running_loop_is_answered_too() -> None:
    server, graph = PolicyServerDouble(scripted(*SCRIPT)), make("create_agent")

    async def blocking() -> Any:
        return graph.invoke(HELLO)

    result, capture = asyncio.run(episode(server, blocking))
    assert result["messages"][-1].content == "It is 42."
    assert {request.affinity for request in server.asked} == {f"{capture.episode}#alone"}
    assert "is called synchronously on the event loop" in next(iter(capture.policy.notes))


def test_a_policy_that_does_not_answer_ends_the_episode_whatever_the_graph_would_catch() -> None:
    def down(_: Any) -> Any:
        raise EndpointError("connection", "nobody there", retryable=True)

    session = dream()
    with pytest.raises(EpisodeStop, match="the policy did not answer: nobody there"):
        asyncio.run(
            episode(PolicyServerDouble(down), lambda: make("create_agent").ainvoke(HELLO), session=session)
        )
    assert session.stopped is not None
