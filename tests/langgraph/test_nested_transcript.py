"""What graphs inside a graph say is in the transcript, once, in the order said."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from each_row import each_row
from langchain_core.messages import AIMessage, AnyMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

from dreamgym_kit.adapters.langgraph.run.request import RunRequest
from dreamgym_kit.adapters.langgraph.run.run import run
from dreamgym_kit.rollout.events import NoEvents
from dreamgym_kit.rollout.rundir import RunDirectory
from dreamgym_kit.settings.schema import Settings
from dreamgym_kit.types import Task

Node = Callable[[MessagesState], dict[str, list[AnyMessage]]]


def says(text: str) -> Node:
    return lambda _: {"messages": [AIMessage(text)]}


def inner(text: str) -> Any:
    graph = StateGraph(MessagesState)
    graph.add_node("say", says(text))
    graph.add_edge(START, "say")
    return graph.compile()


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
