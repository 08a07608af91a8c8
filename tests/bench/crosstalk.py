"""Many dreams at once beside a real agent, in one process and one loop: does anyone get another's answer?

All share one compiled graph and one set of tools. Every call carries the number of its episode, every
answer the number of the session that gave it. Calls are made by a ToolNode, over `asyncio.to_thread`,
LangChain's executor, a raw executor with the config passed on, one with nothing, and in an empty context
(which has to be refused).
"""

import asyncio
import contextvars
import random
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import run_in_executor
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

sys.path.append(str(Path(__file__).parents[1]))  # `shapes` lies beside this folder
from shapes.models import asks

from dreamgym_kit.adapters.langgraph.intercept.install import install, uninstall
from dreamgym_kit.errors import RealCallBlocked
from dreamgym_kit.interfaces import Situation
from dreamgym_kit.routing.process import CONFIG_KEY, entered
from dreamgym_kit.routing.router import CallRouter, Mode
from dreamgym_kit.routing.session import Session
from dreamgym_kit.types import Answer, Call, Source

DREAMS = 64
TURNS = 32
REAL = -1  # the number of the real agent's episode


@dataclass
class Talk:
    """What was seen; `wrong` and the rest are to be zero."""

    wrong: int = 0
    real_calls: int = 0  # bodies that ran for a dream
    false_refusals: int = 0
    calls: int = 0
    rightly_refused: int = 0
    bodies: Counter[int] = field(default_factory=Counter)
    chance: random.Random = field(default_factory=random.Random)


class CountingModelDouble(BaseChatModel):
    """Asks for two sync and two async calls a turn, with the number that the user's message gives."""

    turns: int

    @property
    def _llm_type(self) -> str:
        return "counting-double"

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        return self

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **_: Any) -> ChatResult:
        number, turn = int(messages[0].content), sum(isinstance(one, AIMessage) for one in messages)
        calls = [
            asks(name, {"episode": number, "n": turn * 2 + k}) for name in ("slow", "aslow") for k in (0, 1)
        ]
        message = AIMessage("done") if turn >= self.turns else AIMessage("", tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=message)])


class NumberedExperienceDouble:
    """Answers with its number, after a while; every other one really waits."""

    def __init__(self, number: int, talk: Talk) -> None:
        self._number, self._talk = number, talk
        self.waits = number % 2 == 0

    async def answer(self, call: Call, situation: Situation) -> Answer:
        if self.waits:
            await asyncio.sleep(self._talk.chance.random() * 0.002)
        if situation.episode != str(self._number) or call.args["episode"] != self._number:
            self._talk.wrong += 1
        return Answer(f"dream {self._number}", Source.SCRIPTED)


def measure(seed: int) -> list[tuple[str, float, str]]:
    """Figures for the bench runner."""
    talk = crosstalk(seed, DREAMS, TURNS)
    return [
        ("wrong", talk.wrong, "answers"),
        ("real_calls", talk.real_calls, "calls"),
        ("false_refusals", talk.false_refusals, "calls"),
        ("calls", talk.calls, "calls"),
    ]


def crosstalk(seed: int, dreams: int, turns: int) -> Talk:
    """Run `dreams` episodes of `turns` turns at once, with a recording of the same graph beside them."""
    talk = Talk(chance=random.Random(seed))
    install()
    try:
        asyncio.run(_all(talk, dreams, turns))
    finally:
        uninstall()
    talk.real_calls = sum(times for number, times in talk.bodies.items() if number != REAL)
    return talk


async def _all(talk: Talk, dreams: int, turns: int) -> None:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(dreams + 8))
    with ThreadPoolExecutor(dreams) as pool:
        graph = _graph(talk, turns, pool)
        await asyncio.gather(_real(graph), *(_dream(graph, number, talk) for number in range(dreams)))


async def _dream(graph: Any, number: int, talk: Talk) -> None:
    await asyncio.sleep(talk.chance.random() * 0.05)
    experience = NumberedExperienceDouble(number, talk)
    session = Session(CallRouter(Mode.DREAM), experience=experience, episode=str(number))
    await _run(graph, session, number, talk)
    talk.calls += len(session.ledger)


async def _real(graph: Any) -> None:
    session = Session(CallRouter(Mode.RECORD), episode=str(REAL))
    await _run(graph, session, REAL, None)


async def _run(graph: Any, session: Session, number: int, talk: Talk | None) -> None:
    config = {"configurable": {CONFIG_KEY: session.id}, "recursion_limit": 10_000}
    given = {"messages": [HumanMessage(str(number))]}
    try:
        with entered(session):
            async for _ in graph.astream(given, config):
                await asyncio.sleep(0)
    except RealCallBlocked:
        if talk is None:
            raise
        talk.false_refusals += 1


def _graph(talk: Talk, turns: int, pool: ThreadPoolExecutor) -> Any:
    @tool
    def slow(episode: int, n: int) -> str:
        """A sync tool."""
        talk.bodies[episode] += 1
        return f"real {episode}"

    @tool
    async def aslow(episode: int, n: int) -> str:
        """An async tool."""
        talk.bodies[episode] += 1
        await asyncio.sleep(0)
        return f"real {episode}"

    model = CountingModelDouble(turns=turns)

    async def agent(state: Any) -> Any:
        await asyncio.sleep(talk.chance.random() * 0.001)
        return {"messages": [await model.ainvoke(state["messages"])]}

    async def hops(state: Any, config: RunnableConfig) -> Any:
        number = int(state["messages"][0].content)
        given = {"episode": number, "n": len(state["messages"]) * 100}
        loop = asyncio.get_running_loop()
        said = [
            *await asyncio.gather(
                asyncio.to_thread(slow.invoke, {**given, "n": given["n"] + 1}),
                run_in_executor(None, slow.invoke, {**given, "n": given["n"] + 2}),
                run_in_executor(config, slow.invoke, {**given, "n": given["n"] + 3}),
                loop.run_in_executor(pool, slow.invoke, {**given, "n": given["n"] + 4}, config),
                loop.run_in_executor(pool, slow.invoke, {**given, "n": given["n"] + 5}, config),
                aslow.ainvoke({**given, "n": given["n"] + 6}),
                loop.run_in_executor(pool, slow.invoke, {**given, "n": given["n"] + 7}),
            ),
            *(message.content for message in state["messages"] if isinstance(message, ToolMessage)),
        ]
        mine = f"real {number}" if number == REAL else f"dream {number}"
        talk.wrong += sum(one != mine for one in said)
        if number != REAL:
            await _lose_context(loop, pool, slow, given)
        return {}

    async def _lose_context(loop: Any, pool: ThreadPoolExecutor, lost: Any, given: Any) -> None:
        try:
            await loop.run_in_executor(pool, contextvars.Context().run, lost.invoke, given)
            talk.wrong += 1
        except RealCallBlocked:
            talk.rightly_refused += 1

    graph = StateGraph(MessagesState)
    graph.add_node("agent", agent)
    graph.add_node("tools", ToolNode([slow, aslow]))
    graph.add_node("hops", hops)
    graph.add_edge(START, "agent")
    graph.add_conditional_edges("agent", tools_condition)
    graph.add_edge("tools", "hops")
    graph.add_edge("hops", "agent")
    return graph.compile()
