"""Graphs as people build them: every turn of the policy is kept, in one order, whatever the timing."""

import asyncio
import random
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from capture.policy_server_double import PolicyServerDouble, calls, said_in, says, scripted, turn_number
from each_row import each_row
from langchain.agents import create_agent
from langchain.agents.middleware import (
    ModelFallbackMiddleware,
    ModelRetryMiddleware,
    SummarizationMiddleware,
    wrap_model_call,
)
from langchain.agents.structured_output import ProviderStrategy, ToolStrategy
from langchain_core.messages import AIMessageChunk, HumanMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Send
from pydantic import BaseModel
from shapes.agents import MAKES, STREAM_MODES
from shapes.models import ScriptedModelDouble, StreamingModelDouble
from shapes.stage import DREAMT, HELLO, dream, tool_messages
from shapes.tools import add_tool
from training.conversations import merged

from dreamgym_kit.adapters.langgraph.intercept.install import install, uninstall
from dreamgym_kit.adapters.langgraph.policy.capture import Capture, ModelPolicy, captured
from dreamgym_kit.chat import ChatReply, ChatRequest
from dreamgym_kit.errors import EndpointError, EpisodeStop
from dreamgym_kit.routing.process import entered
from dreamgym_kit.turns import Turn


@pytest.fixture(autouse=True)
def gate() -> Any:
    install()
    yield
    uninstall()


def run(
    server: PolicyServerDouble,
    work: Callable[[], Any],
    *,
    seed: int = 0,
    structured: frozenset[str] = frozenset(),
    **options: Any,
) -> tuple[Any, tuple[Turn, ...]]:
    """One episode; gives what it came to and its turns."""

    async def episode() -> tuple[Any, Capture]:
        session = dream(
            structured=structured,
            control=("transfer_to_maths", "transfer_to_words", "transfer_back_to_supervisor"),
        )
        policy = ModelPolicy(server=server, seed=seed, **options)
        with captured(policy, session, "t.1") as capture, entered(session):
            result = await work()
        assert capture is not None
        return result, capture

    result, capture = asyncio.run(episode())
    return result, capture.turns()


def own(name: str = "own") -> ScriptedModelDouble:
    """A model of the graph's own, which says its name."""
    return ScriptedModelDouble(script=[f"{name} spoke"])


def whoever(request: ChatRequest) -> ChatReply:
    """Says what it was asked last, and its seed."""
    return says(f"{request.messages[-1].content}:{request.seed}")


def waits(chance: random.Random) -> Callable[[ChatRequest], float]:
    return lambda _: chance.random() / 50


def side_by_side() -> Any:
    """Three nodes in one step: one fans out, one asks several at once and then again, one is a graph."""
    inner = StateGraph(MessagesState)
    inner.add_node("first", asking("inner first"))
    inner.add_node("second", asking("inner second"))
    inner.add_edge(START, "first")
    inner.add_edge("first", "second")
    graph = StateGraph(MessagesState)
    graph.add_node("left", asking("left"))
    graph.add_node("team", inner.compile())
    graph.add_node("batch", batching)
    graph.add_node("each", asking("each"))
    for name in ("left", "team", "batch"):
        graph.add_edge(START, name)
    sent = [Send("each", {"messages": [HumanMessage(str(number))]}) for number in range(3)]
    graph.add_conditional_edges("left", lambda state: sent, ["each"])
    return graph.compile()


def asking(name: str) -> Any:
    async def node(state: Any) -> Any:
        model = own(name)
        await model.ainvoke([*state["messages"], HumanMessage(name)])
        return {}

    return node


async def batching(state: Any) -> Any:
    model = own("batch")
    await model.abatch([[HumanMessage(word)] for word in ("one", "two", "three", "two")])
    await model.ainvoke([HumanMessage("after them all, with more words")])
    return {}


def told(turns: tuple[Turn, ...]) -> list[tuple[int, str | None, str]]:
    return [(turn.index, turn.node, said_in(turn.ids)) for turn in turns]


def test_what_runs_side_by_side_gives_the_same_turns_however_fast_the_answers_come() -> None:
    found = []
    for pace in range(6):
        server = PolicyServerDouble(whoever, wait_s=waits(random.Random(pace)))
        _, turns = run(server, lambda: side_by_side().ainvoke(HELLO), seed=3)
        found.append(told(turns))
    assert all(one == found[0] for one in found)
    nodes = [node for _, node, _ in found[0]]
    assert nodes == ["batch"] * 5 + ["left"] + ["team/first", "team/second"] + ["each"] * 3
    assert [said.partition(":")[0] for _, _, said in found[0]][-3:] == ["each"] * 3
    assert [index for index, _, _ in found[0]] == list(range(11))
    seeds = [said.partition(":")[2] for _, _, said in found[0]]
    assert len(set(seeds)) == len(seeds)


def test_another_seed_draws_other_answers() -> None:
    _, once = run(PolicyServerDouble(whoever), lambda: side_by_side().ainvoke(HELLO), seed=3)
    _, other = run(PolicyServerDouble(whoever), lambda: side_by_side().ainvoke(HELLO), seed=4)
    assert not {said for _, _, said in told(once)} & {said for _, _, said in told(other)}


@each_row(
    ("only", "own_words"),
    [
        (("team",), {"left", "batch", "each"}),
        (("team/second",), {"left", "batch", "each", "inner first"}),
        (("second",), {"left", "batch", "each", "inner first"}),
        (("t*", "l*"), {"batch", "each"}),
    ],
)
def test_only_the_named_nodes_are_answered_by_the_policy(only: tuple[str, ...], own_words: set[str]) -> None:
    spoke: set[str] = set()

    class Counted(ScriptedModelDouble):
        def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **more: Any) -> Any:
            spoke.add(self.script[0])
            return super()._generate(messages, stop, run_manager, **more)

    def noted(name: str = "own") -> ScriptedModelDouble:
        return Counted(script=[name])

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(globals(), "own", noted)
        _, turns = run(PolicyServerDouble(whoever), lambda: side_by_side().ainvoke(HELLO), only_nodes=only)
    assert spoke == own_words
    assert len(turns) == {"team": 2, "t*": 3}.get(only[0], 1)


class Broken(Exception):
    """What a parser of somebody's own raises."""


def test_a_retry_of_middleware_is_a_turn_of_its_own() -> None:
    tries: list[int] = []

    @wrap_model_call
    async def picky(request: Any, handler: Any) -> Any:
        response = await handler(request)
        tries.append(1)
        if len(tries) < 3:
            raise Broken("not good enough")
        return response

    graph = create_agent(
        own(), [], middleware=[ModelRetryMiddleware(max_retries=3, initial_delay=0, jitter=False), picky]
    )
    _, turns = run(PolicyServerDouble(whoever), lambda: graph.ainvoke(HELLO))
    assert [turn.prompt_ids for turn in turns] == [turns[0].prompt_ids] * 3
    assert len({said_in(turn.ids) for turn in turns}) == 3
    _, counts = merged(turns)
    assert (counts.turns, counts.forks) == (3, 2)


def test_a_fallback_to_another_model_is_the_policys_too() -> None:
    first: list[int] = []

    @wrap_model_call
    async def fails_once(request: Any, handler: Any) -> Any:
        if not first:
            first.append(1)
            await handler(request)
            raise Broken("no")
        return await handler(request)

    graph = create_agent(own("a"), [], middleware=[ModelFallbackMiddleware(own("b")), fails_once])
    _, turns = run(PolicyServerDouble(whoever), lambda: graph.ainvoke(HELLO))
    assert len(turns) == 2


def test_a_history_that_middleware_summarises_forks() -> None:
    def answer(request: ChatRequest) -> ChatReply:
        if "summar" in request.messages[0].content.lower():
            return says("They greeted.")
        return (
            calls(("add", '{"a": 1, "b": 2}'))
            if turn_number(request) < 3 and len(server.asked) < 8
            else says("done")
        )

    server = PolicyServerDouble(answer)
    middleware = SummarizationMiddleware(own(), trigger=("messages", 4), keep=("messages", 2))
    graph = create_agent(own(), [add_tool()], middleware=[middleware])
    _, turns = run(server, lambda: graph.ainvoke(HELLO))
    _, counts = merged(turns)
    assert counts.forks > 0
    assert counts.turns == len(server.asked) == counts.merged + counts.forks + 1
    assert any("Summarization" in (turn.node or "") for turn in turns)


class Verdict(BaseModel):
    """A verdict."""

    order: str
    fine: bool


JSON = '{"order": "o1", "fine": true}'


def test_structured_output_by_schema() -> None:
    graph = create_agent(own(), [add_tool()], response_format=ProviderStrategy(Verdict))
    server = PolicyServerDouble(scripted(calls(("add", '{"a": 1, "b": 2}')), says(JSON)))
    result, turns = run(server, lambda: graph.ainvoke(HELLO))
    assert result["structured_response"] == Verdict(order="o1", fine=True)
    assert len(turns) == 2
    assert all(request.schema is not None for request in server.asked)


class Choosing(ScriptedModelDouble):
    def bind_tools(self, tools: Any, *, tool_choice: Any = None, **more: Any) -> Any:
        return super().bind_tools(tools, **more).bind(tool_choice=tool_choice)


def test_structured_output_by_a_tool_is_tried_again_where_it_does_not_fit() -> None:
    graph = create_agent(Choosing(script=["own"]), [add_tool()], response_format=ToolStrategy(Verdict))
    script = (
        calls(("add", '{"a": 1, "b": 2}')),
        calls(("Verdict", '{"order": 7}')),
        calls(("Verdict", JSON)),
    )
    server = PolicyServerDouble(scripted(*script))
    result, turns = run(server, lambda: graph.ainvoke(HELLO), structured=frozenset({"Verdict"}))
    assert result["structured_response"] == Verdict(order="o1", fine=True)
    assert [request.tool_choice for request in server.asked] == ["required"] * 3
    samples, counts = merged(turns)
    assert (len(samples), counts.merged) == (1, 2)


def supervised() -> Any:
    from langgraph_supervisor import create_supervisor

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        maths = create_agent(own("maths"), [add_tool()], name="maths")
        words = create_agent(own("words"), [], name="words")
        return create_supervisor([maths, words], model=own("boss"), prompt="You lead.").compile()


def led(request: ChatRequest) -> ChatReply:
    names = [tool["function"]["name"] for tool in request.tools]  # type: ignore[index,call-overload]
    if "transfer_to_maths" in names:
        handed = sum(
            call.name.startswith("transfer_to") for one in request.messages for call in one.tool_calls
        )
        order = ("maths", "words")
        return calls((f"transfer_to_{order[handed]}", "{}")) if handed < 2 else says("All is done.")
    if "add" in names and request.messages[-1].name != "add":
        return calls(("add", '{"a": 1, "b": 2}'))
    return says("my part is done")


def test_a_supervisors_agents_are_told_apart_by_their_nodes() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result, turns = run(PolicyServerDouble(led), lambda: supervised().ainvoke(HELLO))
    assert result["messages"][-1].content == "All is done."
    assert [turn.node for turn in turns] == [
        *("supervisor/agent", "maths/model", "maths/model"),
        *("supervisor/agent", "words/model", "supervisor/agent"),
    ]


ANSWERS = [
    says("It is 42."),
    calls(("add", '{"a": 1, "b": 2}'), ("add", '{"a":3}')),
    calls(("add", "[1")),
    calls(("add", "[1]"), ("add", "{}")),
]


@each_row("answer", ANSWERS)
def test_chunks_add_up_to_the_whole_message(answer: ChatReply) -> None:
    model = StreamingModelDouble(script=["own"]).bind_tools([add_tool()])

    async def both() -> tuple[Any, Any]:
        whole = await model.ainvoke("hi")
        parts: AIMessageChunk | None = None
        async for part in model.astream("hi"):
            parts = part if parts is None else parts + part
        return whole, parts

    (whole, parts), _ = run(PolicyServerDouble(lambda _: answer), both)
    assert parts.content == whole.content
    assert [(one["name"], one["args"]) for one in parts.tool_calls] == [
        (one["name"], one["args"]) for one in whole.tool_calls
    ]
    assert [(one["name"], one["args"]) for one in parts.invalid_tool_calls] == [
        (one["name"], one["args"]) for one in whole.invalid_tool_calls
    ]
    assert parts.usage_metadata == whole.usage_metadata
    assert parts.response_metadata["finish_reason"] == whole.response_metadata["finish_reason"]


def test_a_model_that_streams_events_is_answered_in_events() -> None:
    class Events(StreamingModelDouble):
        def _stream_chat_model_events(
            self, messages: Any, stop: Any = None, run_manager: Any = None, **_: Any
        ) -> Any:
            raise AssertionError("the own model was asked")
            yield

    async def drained() -> str:
        stream = await asyncio.to_thread(lambda: Events(script=["own"]).stream_events("hi", version="v3"))
        return await asyncio.to_thread(
            lambda: str(stream.output.content if hasattr(stream, "output") else list(stream))
        )

    said, turns = run(PolicyServerDouble(lambda _: says("in events")), drained)
    assert "in events" in said
    assert len(turns) == 1


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
