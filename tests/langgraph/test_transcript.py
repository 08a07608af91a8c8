"""The transcript of an episode does not depend on what was quicker; graphs in a graph are heard once."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from each_row import each_row
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

from dreamgym_kit.adapters.langgraph.episode.transcript import Transcript
from dreamgym_kit.adapters.langgraph.run.request import RunRequest
from dreamgym_kit.adapters.langgraph.run.run import run
from dreamgym_kit.rollout.events import NoEvents
from dreamgym_kit.rollout.rundir import RunDirectory
from dreamgym_kit.settings.schema import Settings
from dreamgym_kit.types import Task


def said(transcript: Transcript) -> list[Any]:
    return [record["content"] for record in transcript.records]


def asks(*calls: str) -> AIMessage:
    return AIMessage(f"asks {calls}", tool_calls=[{"name": "look", "args": {}, "id": one} for one in calls])


def answer(call: str) -> ToolMessage:
    return ToolMessage(f"answer {call}", tool_call_id=call)


@each_row("order", list(itertools.permutations("abc")))
def test_answers_of_tools_stand_as_they_were_asked_for(order: tuple[str, ...]) -> None:
    transcript = Transcript()
    transcript.take({"model": {"messages": [asks("c", "b")]}})
    transcript.take({"tools": {"messages": [answer("c")]}})
    transcript.take({"model": {"messages": [asks("a", "b", "c")]}})  # ids may come again: "c", "b" did
    for one in order:
        transcript.take({"tools": {"messages": [answer(one)]}})
    transcript.take({"model": {"messages": [AIMessage("done")]}})
    assert said(transcript)[1] == "answer c"
    assert said(transcript)[3:] == ["answer a", "answer b", "answer c", "done"]


@each_row("order", list(itertools.permutations([0, 1, 2])))
def test_messages_of_nodes_side_by_side_stand_as_in_the_state(order: tuple[int, ...]) -> None:
    first, *parallel = [AIMessage(f"node {number}", id=str(number)) for number in range(4)]
    transcript = Transcript()
    transcript.take({"before": {"messages": [first]}})
    transcript.end_step({"messages": [HumanMessage("begin", id="h"), first]})
    for number in order:
        transcript.take({f"node {number}": {"messages": [parallel[number]]}})
    transcript.end_step({"messages": [HumanMessage("begin", id="h"), first, *parallel]})
    assert said(transcript) == ["node 0", "node 1", "node 2", "node 3"]


def test_a_state_that_dropped_or_moved_messages_changes_nothing_of_earlier_steps() -> None:
    old, summary, new = (AIMessage(text, id=text) for text in ("old", "summary", "new"))
    transcript = Transcript()
    transcript.take({"model": {"messages": [old]}})
    transcript.end_step({"messages": [old]})
    transcript.take({"shorten": {"messages": [summary]}})
    transcript.end_step({"messages": [summary]})
    transcript.take({"model": {"messages": [new]}})
    transcript.end_step({"messages": [new, summary]})
    assert said(transcript) == ["old", "summary", "new"]


def test_a_message_is_kept_once_also_when_it_got_its_id_later() -> None:
    message = AIMessage("hello")
    transcript = Transcript()
    transcript.take({"inner": {"messages": [message]}})
    message.id = "1"
    transcript.take({"outer": {"messages": [message.model_copy()]}})
    assert said(transcript) == ["hello"]


Node = Callable[[MessagesState], dict[str, list[AnyMessage]]]


def says(text: str) -> Node:
    return lambda _: {"messages": [AIMessage(text)]}


def inner(text: str) -> Any:
    return StateGraph(MessagesState).add_node("say", says(text)).add_edge(START, "say").compile()


def outer() -> StateGraph[MessagesState]:
    by_hand = inner("by hand")

    def calls_by_hand(_: MessagesState) -> dict[str, list[AnyMessage]]:
        by_hand.invoke({"messages": [("user", "say it")]})
        return {"messages": []}

    graph = StateGraph(MessagesState)
    graph.add_node("one", inner("as a node"))
    graph.add_node("two", calls_by_hand)
    graph.add_node("three", says("outside"))
    graph.add_edge(START, "one")
    graph.add_edge("one", "two")
    graph.add_edge("two", "three")
    return graph


@each_row("saver", [None, InMemorySaver()], ids=["no memory", "with memory"])
async def test_nested_graphs_are_heard_once_each(tmp_path: Path, saver: InMemorySaver | None) -> None:
    request = RunRequest(
        graph=outer().compile(checkpointer=saver),
        tasks=[Task("t", {"messages": [{"role": "user", "content": "begin"}]})],
        settings=Settings().with_overrides({"runs": str(tmp_path)}),
    )
    result = await run(request, events=NoEvents())
    (episode,) = RunDirectory.open(result.directory).episodes()
    said = [message["content"] for message in episode.messages]
    assert said == ["begin", "as a node", "by hand", "outside"]
