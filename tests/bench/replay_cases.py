"""Random graphs and scripts for `replays`: agents of several makes, over tools that keep a state.

Everything of a case follows from its number: the graph's make, the tools that each turn calls, what a person
replies. Half of the cases have calls within calls, interrupts, retries, or several calls in one turn. What
the tools answer depends on what ran before, so that a call that is left out, answered twice from one
recording or answered in another order shows in a later answer.
"""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import BaseTool, ToolException, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, RetryPolicy, interrupt
from shapes.models import ScriptedModelDouble, asks

from dreamgym_kit import effect
from dreamgym_kit.types import Task

MAKES = ("create_agent", "tool_node", "invokes", "subgraph", "agent_in_tool", "hand_off", "task_tool")
WAYS = ("plain", "nested", "parallel", "interrupt_in_tool", "interrupt_in_node", "retry", "mixed")
KEYS = ("a", "b", "c")
Turn = list[dict[str, Any]] | str


@dataclass
class World:
    """What the tools act on; every answer depends on the calls before."""

    numbers: Counter[str] = field(default_factory=Counter)
    paid: Counter[str] = field(default_factory=Counter)
    failed: set[str] = field(default_factory=set)
    ran: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Case:
    """One graph, what it is asked, and the world that its real tools act on."""

    name: str
    graph: Any
    task: Task
    world: World


def case_of(number: int, seed: int) -> Case:
    """The case of a number: makes in turn; the first half of each ten plain, the rest by all other ways."""
    rng = random.Random(f"{seed}/{number}")
    make = MAKES[number % len(MAKES)]
    way = "plain" if number % 2 else WAYS[1 + (number // 2) % (len(WAYS) - 1)]
    world = World()
    tools = tools_of(world, f"_{number}")
    script = _script(rng, way, tools, number)
    graph, replies = _graph(make, way, script, tools, rng, number)
    task = Task(
        f"case-{number}",
        {"messages": [{"role": "user", "content": "Do it."}]},
        expect={"max": {}},
        replies=tuple(replies),
    )
    return Case(f"{number} {make} {way}", graph, task, world)


def tools_of(world: World, mark: str) -> dict[str, BaseTool]:
    """Tools by their short name; `mark` ends their real names, so that no two cases share one."""

    def named(kind: str, name: str) -> Callable[[Callable[..., str]], BaseTool]:
        def make(run: Callable[..., str]) -> BaseTool:
            made = tool(name + mark)(run)
            made.handle_tool_error = True
            marked: BaseTool = effect(kind)(made)
            return marked

        return make

    def look_up(key: str) -> str:
        world.ran.append("look")
        return f"{key} is {world.numbers[key]}, paid {world.paid[key]}"

    @named("read", "look")
    def look(key: str) -> str:
        """Look up a number."""
        return look_up(key)

    @named("write", "add")
    def add(key: str, by: int) -> str:
        """Add to a number."""
        world.ran.append("add")
        world.numbers[key] += by
        return f"{key} is now {world.numbers[key]}"

    @named("destructive", "pay")
    def pay(key: str) -> str:
        """Pay; a second time it says so."""
        world.ran.append("pay")
        world.paid[key] += 1
        if world.paid[key] > 2:
            raise ToolException(f"{key} was paid {world.paid[key]} times")
        return f"paid {key}, {world.paid[key]} in all"

    @named("read", "survey")
    def survey(key: str) -> str:
        """Look several things up by other tools, and count the visit: an effect that its author forgot."""
        first = look.invoke({"key": key})
        add.invoke({"key": "visits", "by": 1})
        return f"{first}; {look.invoke({'key': 'visits'})}"

    @named("write", "settle")
    def settle(key: str) -> str:
        """Pay what is open, by other tools."""
        pay.invoke({"key": key})
        add.invoke({"key": key, "by": -1})
        return str(look.invoke({"key": key}))

    @named("destructive", "deep")
    def deep(key: str) -> str:
        """A call within a call within a call."""
        return f"deep: {settle.invoke({'key': key})}"

    @named("destructive", "approve")
    def approve(key: str) -> str:
        """Ask a person, then pay."""
        if interrupt({"question": f"pay {key}?"}) != "yes":
            return "declined"
        world.ran.append("approve")
        world.paid[key] += 1
        return f"approved {key}, {world.paid[key]} in all"

    @named("write", "late")
    def late(key: str) -> str:
        """Act, then ask a person: what it did it does again when the node runs again."""
        world.ran.append("late")
        world.numbers[key] += 10
        return f"{interrupt({'question': f'enough of {key}?'})}: {world.numbers[key]}"

    @named("write", "flaky")
    def flaky(key: str) -> str:
        """Fails the first time, for each key."""
        world.ran.append("flaky")
        if key not in world.failed:
            world.failed.add(key)
            raise ConnectionError(f"no line for {key}")
        world.numbers[key] += 100
        return f"{key} is {world.numbers[key]} at last"

    every = (look, add, pay, survey, settle, deep, approve, late, flaky)
    return {each.name.removesuffix(mark): each for each in every}


_BY_WAY = {
    "plain": ("look", "add", "pay"),
    "nested": ("survey", "settle", "deep", "look", "add"),
    "parallel": ("look", "add", "pay"),
    "interrupt_in_tool": ("approve", "late", "pay", "look", "add"),
    "interrupt_in_node": ("look", "add", "pay"),
    "retry": ("flaky", "pay", "add", "look"),
    "mixed": ("survey", "settle", "approve", "pay", "look", "add"),
}
_FIRST = {"interrupt_in_tool": "approve", "retry": "flaky", "nested": "settle", "mixed": "settle"}


def _script(rng: random.Random, way: str, tools: dict[str, BaseTool], number: int) -> list[Turn]:
    """Turns of a model: at least three calls, several to a turn where the way says so."""
    turns: list[Turn] = []
    calls = 0
    names = list(_BY_WAY[way])
    while calls < 3 or rng.random() < 0.5:
        several = way in ("parallel", "mixed", "retry", "interrupt_in_tool") and rng.random() < 0.7
        turn: list[Any] = []
        chosen: list[str] = []
        for place in range(rng.randint(2, 3) if several else 1):
            name = _FIRST[way] if not calls and way in _FIRST else rng.choice(names)
            if "late" in (name, *chosen) and {*chosen} - {"look"}:
                name = "look"  # another write at once may come before what `late` does, or after: by chance
            chosen.append(name)
            key = rng.choice(KEYS)
            args = {"key": key, "by": rng.randint(1, 2)} if name == "add" else {"key": key}
            turn.append(asks(tools[name].name, args, f"c{number}-{len(turns)}-{place}"))
            calls += 1
        turns.append(turn)
    return [*turns, "Done."]


def _graph(
    make: str, way: str, script: list[Turn], tools: dict[str, BaseTool], rng: random.Random, number: int
) -> tuple[Any, list[Any]]:
    """The compiled graph, and the replies that its interrupts get, more than enough."""
    replies = (
        [rng.choice(["yes", "yes", "no"]) for _ in range(20)] if "interrupt" in way or way == "mixed" else []
    )
    every = list(tools.values())
    node = "retry" if way == "retry" else "asks" if way == "interrupt_in_node" else "plain"
    if make == "create_agent" and node == "plain":
        model = ScriptedModelDouble(script=script)
        return create_agent(model, every, checkpointer=InMemorySaver()), replies
    by_hand = make == "invokes"
    if make == "subgraph":
        inner = agent(script, every, node, by_hand=rng.random() < 0.5)
        outer = StateGraph(MessagesState)
        outer.add_node("team", inner)
        outer.add_edge(START, "team")
        return outer.compile(checkpointer=InMemorySaver()), replies
    if make in ("agent_in_tool", "task_tool"):
        return _with_delegate(script, every, node, number, runs=make == "task_tool"), replies
    if make == "hand_off":
        return _hand_off(script, every, node, number), replies
    return agent(script, every, node, by_hand=by_hand, saver=InMemorySaver()), replies


def agent(script: list[Turn], tools: list[BaseTool], node: str, *, by_hand: bool, saver: Any = None) -> Any:
    """A loop of a model and a node of tools; `node`: whether it is tried again, or asks a person itself."""
    model = ScriptedModelDouble(script=script).bind_tools(tools)
    named = {each.name: each for each in tools}
    own = ToolNode(tools, handle_tool_errors=node != "retry")

    def call_model(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])]}

    def call_tools(state: MessagesState) -> dict[str, Any]:
        last = state["messages"][-1]
        assert isinstance(last, AIMessage)
        answers = []
        for place, call in enumerate(last.tool_calls):
            if by_hand and place % 2:
                said = named[call["name"]].invoke(call["args"])
                answers.append(ToolMessage(str(said), tool_call_id=call["id"], name=call["name"]))
            else:
                answers.append(named[call["name"]].invoke(call))
        if node == "asks" and interrupt("go on?") == "no":
            answers.append(AIMessage("A person said no."))
        return {"messages": answers}

    def route(state: MessagesState) -> str:
        return "tools" if getattr(state["messages"][-1], "tool_calls", None) else END

    graph = StateGraph(MessagesState)
    graph.add_node("model", call_model)
    retry = RetryPolicy(max_attempts=4, initial_interval=0.001, jitter=False) if node == "retry" else None
    graph.add_node("tools", call_tools if by_hand or node == "asks" else own, retry_policy=retry)
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", route, ["tools", END])
    graph.add_edge("tools", "model")
    return graph.compile(checkpointer=saver)


def _with_delegate(script: list[Turn], tools: list[BaseTool], node: str, number: int, *, runs: bool) -> Any:
    """A manager whose tool runs another agent: answered as one call, or, as control, run in the dream."""
    worker = agent([*script[: len(script) // 2], "Half done."], tools, node, by_hand=False)
    rest = script[len(script) // 2 :]

    @tool(f"delegate_{number}")
    def delegate(request: str) -> str:
        """Have another agent do it."""
        return str(worker.invoke({"messages": [("user", request)]})["messages"][-1].content)

    marked = effect("control" if runs else "write")(delegate)
    first: Turn = [asks(delegate.name, {"request": "half of it"}, f"d{number}")]
    return agent([first, *rest], [marked, *tools], node, by_hand=False, saver=InMemorySaver())


def _hand_off(script: list[Turn], tools: list[BaseTool], node: str, number: int) -> Any:
    """Two agents; the first hands over by a tool that gives a Command."""
    half = len(script) // 2

    @tool(f"transfer_to_second_{number}")
    def transfer() -> Command[Any]:
        """Hand over."""
        return Command(goto="second", graph=Command.PARENT)

    marked = effect("control")(transfer)
    first = agent(
        [*script[:half], [asks(transfer.name, {}, f"h{number}")]],
        [marked, *tools],
        "plain" if node == "asks" else node,  # a node of one's own would have to pass the Command on
        by_hand=False,
    )
    second = agent(script[half:], tools, node, by_hand=True)

    def start_second(state: MessagesState) -> dict[str, Any]:
        said = second.invoke({"messages": [state["messages"][0]]})["messages"]
        return {"messages": said[1:]}

    graph = StateGraph(MessagesState)
    graph.add_node("first", first, destinations=("second",))
    graph.add_node("second", start_second)
    graph.add_edge(START, "first")
    graph.add_edge("second", END)
    return graph.compile(checkpointer=InMemorySaver())
