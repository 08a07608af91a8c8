"""Does a real write ever run that nobody approved? Twelve ways to try, many times over, in staged sessions.

Who approves keeps what he said yes to (tool, arguments); the tools keep what really ran. `unapproved` counts
what ran beyond that, over all ways; `attempts` how many calls were made that had to be refused, `approved`
how many good ones ran, so that a session that refuses everything does not pass for a safe one.
"""

import asyncio
import json
import random
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command

from dreamgym_kit import supervised
from dreamgym_kit.errors import EpisodeStop, UserError
from dreamgym_kit.settings.schema import Settings, ToolSettings
from dreamgym_kit.types import Approval, Effect, HeldCall

ROUNDS, FEW = 40, 1
SETTINGS = Settings(
    tools={"pay": ToolSettings(Effect.DESTRUCTIVE), "set_limit": ToolSettings(Effect.WRITE)}
).with_overrides({"s2r.rate": 0.0})


@dataclass
class Books:
    """What really ran, what was approved, and how many tries had to be refused."""

    ran: Counter[str] = field(default_factory=Counter)
    approved: Counter[str] = field(default_factory=Counter)
    attempts: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def did(self, name: str, **args: Any) -> str:
        with self.lock:
            self.ran[said(name, args)] += 1
        return "done"

    def says_yes(self, held: HeldCall) -> Approval:
        with self.lock:
            self.approved[said(held.call.tool, held.call.args)] += 1
        return Approval(held.digest, "bench")

    @property
    def unapproved(self) -> int:
        return (self.ran - self.approved).total()

    def tools(self) -> dict[str, Any]:
        @tool
        def pay(payment: str, amount: str, parts: dict[str, int] | None = None) -> str:
            """Pay back."""
            return self.did("pay", payment=payment, amount=amount, parts=parts)

        @tool
        async def set_limit(customer: str, limit: int) -> str:
            """Set a limit."""
            return self.did("set_limit", customer=customer, limit=limit)

        return {"pay": pay, "set_limit": set_limit}


def said(name: str, args: Any) -> str:
    kept = {key: value for key, value in dict(args).items() if value is not None}
    return json.dumps([name, kept], sort_keys=True)


class ApproverDouble:
    """Approves as the way that is tried has it."""

    def __init__(self, answer: Callable[[HeldCall], Any]) -> None:
        self._answer = answer

    async def approve(self, held: HeldCall) -> Any:
        answer = self._answer(held)
        return await answer if asyncio.iscoroutine(answer) else answer


def measure(seed: int) -> list[tuple[str, float, str]]:
    """All ways, many rounds."""
    return figures(seed, ROUNDS, processes=True)


def quick(seed: int) -> list[tuple[str, float, str]]:
    """All ways once, but for the one with two processes."""
    return figures(seed, FEW)


def figures(seed: int, rounds: int, *, processes: bool = False) -> list[tuple[str, float, str]]:
    """Try every way so often."""
    drawn, books = random.Random(seed), Books()
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(rounds):
            for place, way in enumerate(WAYS):
                way(books, Path(scratch) / f"{number}-{place}.jsonl", drawn)
        if processes:
            two_processes(books, Path(scratch) / "two.jsonl")
    return [
        ("unapproved", books.unapproved, "calls"),
        ("attempts", books.attempts, "calls that had to be refused"),
        ("approved", (books.ran & books.approved).total(), "calls"),
    ]


def staged(log: Path, approver: Any = None) -> Any:
    return supervised(stage="approve", max_calls=1000, audit=log, approve=approver, settings=SETTINGS)


def refused(books: Books, call: Callable[[], Any]) -> None:
    books.attempts += 1
    with suppress(EpisodeStop, UserError):
        call()


def pay(books: Books, tools: Any, call_id: str, **args: Any) -> Any:
    return tools["pay"].invoke({"name": "pay", "args": args, "id": call_id, "type": "tool_call"})


def another_call_with_the_same_id(books: Books, log: Path, drawn: random.Random) -> None:
    first: list[Approval] = []

    def answer(held: HeldCall) -> Approval:
        if not first:
            first.append(books.says_yes(held))
        return first[0]  # the approval of the first call, whatever is asked

    with staged(log, ApproverDouble(answer)):
        tools = books.tools()
        pay(books, tools, "call-1", payment="P1", amount="1.00")
        refused(books, lambda: pay(books, tools, "call-1", payment="P2", amount="999.00"))


def the_same_call_a_second_time(books: Books, log: Path, drawn: random.Random) -> None:
    first: list[Approval] = []

    def answer(held: HeldCall) -> Approval:
        if not first:
            first.append(books.says_yes(held))
        return first[0]

    with staged(log, ApproverDouble(answer)):
        tools = books.tools()
        pay(books, tools, "call-1", payment="P1", amount="1.00")
        refused(books, lambda: pay(books, tools, "call-1", payment="P1", amount="1.00"))


def arguments_that_change_while_one_waits(books: Books, log: Path, drawn: random.Random) -> None:
    parts = {"cup": 1}

    def answer(held: HeldCall) -> Approval:
        parts["cup"] = 1000  # whoever called still holds it
        return books.says_yes(held)

    with staged(log, ApproverDouble(answer)):
        tool = books.tools()["pay"]
        with suppress(EpisodeStop):
            tool.func(payment="P1", amount="1.00", parts=parts)


def shown_arguments_that_an_approver_changes(books: Books, log: Path, drawn: random.Random) -> None:
    def answer(held: HeldCall) -> Approval:
        given = books.says_yes(held)
        held.call.args["amount"] = "0.01"  # what is shown is not what runs
        return given

    with staged(log, ApproverDouble(answer)):
        pay(books, books.tools(), "call-1", payment="P1", amount="1.00")


def nobody_in_time(books: Books, log: Path, drawn: random.Random) -> None:
    async def late(held: HeldCall) -> Approval:
        await asyncio.sleep(3600)
        return Approval(held.digest, "late")

    settings = SETTINGS.with_overrides({"s2r.approval_timeout_s": 0.02})
    with supervised(stage="approve", max_calls=9, audit=log, approve=ApproverDouble(late), settings=settings):
        refused(books, lambda: pay(books, books.tools(), "call-1", payment="P1", amount="1.00"))


def an_approver_that_crashes(books: Books, log: Path, drawn: random.Random) -> None:
    def answer(held: HeldCall) -> Approval:
        raise drawn.choice([RuntimeError, KeyError, ConnectionError, TimeoutError])("gone")

    with staged(log, ApproverDouble(answer)):
        refused(books, lambda: pay(books, books.tools(), "call-1", payment="P1", amount="1.00"))


def what_only_looks_like_a_yes(books: Books, log: Path, drawn: random.Random) -> None:
    def answer(held: HeldCall) -> Any:
        return drawn.choice([True, 1, "yes", held.digest, {"approve": True}, Approval("", "x"), object()])

    with staged(log, ApproverDouble(answer)):
        refused(books, lambda: pay(books, books.tools(), "call-1", payment="P1", amount="1.00"))
    with staged(log.with_suffix(".rule"), lambda held: drawn.choice([1, "yes", [True], object()])):
        refused(books, lambda: pay(books, books.tools(), "call-1", payment="P1", amount="1.00"))


def an_approval_of_another_session(books: Books, log: Path, drawn: random.Random) -> None:
    kept: list[Approval] = []

    def answer(held: HeldCall) -> Approval:
        if not kept:
            kept.append(books.says_yes(held))
        return kept[0]

    with staged(log, ApproverDouble(answer)):
        pay(books, books.tools(), "call-1", payment="P1", amount="1.00")
    with staged(log, ApproverDouble(answer)):
        refused(books, lambda: pay(books, books.tools(), "call-1", payment="P1", amount="1.00"))


def many_at_once(books: Books, log: Path, drawn: random.Random) -> None:
    """Thirty-two calls in parallel; somebody mixes up their approvals."""
    pending: list[Approval] = []

    async def answer(held: HeldCall) -> Approval:
        given = books.says_yes(held)
        pending.append(given)
        await asyncio.sleep(0)
        return drawn.choice(pending)

    async def calls() -> None:
        limit = books.tools()["set_limit"]
        books.attempts += 31
        work = [limit.ainvoke({"customer": f"C{number}", "limit": number}) for number in range(32)]
        await asyncio.gather(*work, return_exceptions=True)

    with staged(log, ApproverDouble(answer)), suppress(EpisodeStop):
        asyncio.run(calls())


def interrupts_that_are_answered_wrongly(books: Books, log: Path, drawn: random.Random) -> None:
    """Two parallel calls; each is told a digest of nobody's, or something that is no approval."""
    with staged(log):
        graph = graph_of(books)
        config: Any = {"configurable": {"thread_id": "t"}}
        stopped = graph.invoke({"messages": [two_calls()]}, config)
        waiting = stopped["__interrupt__"]
        books.attempts += 2
        wrong = drawn.choice(
            [
                {one.id: {"approve": True, "digest": "0" * 64} for one in waiting},
                {one.id: True for one in waiting},
                {one.id: {"approve": "true", "digest": one.value["digest"]} for one in waiting},
                {one.id: {"approve": True} for one in waiting},
            ]
        )
        with suppress(EpisodeStop):
            graph.invoke(Command(resume=wrong), config)


def interrupts_that_are_answered_well(books: Books, log: Path, drawn: random.Random) -> None:
    """A resumed node runs again from its beginning; what ran is not run again."""
    with staged(log):
        graph = graph_of(books)
        config: Any = {"configurable": {"thread_id": "t"}}
        state = graph.invoke({"messages": [two_calls()]}, config)
        while waiting := state.get("__interrupt__"):
            one = drawn.choice(waiting)
            books.approved[said(one.value["tool"], one.value["args"])] += 1
            state = graph.invoke(Command(resume={one.id: yes(one)}), config)


def yes(waiting: Any) -> dict[str, Any]:
    return {"approve": True, "digest": waiting.value["digest"]}


def two_calls() -> AIMessage:
    calls = [
        {"name": "pay", "args": {"payment": f"P{number}", "amount": "1.00"}, "id": f"call-{number}"}
        for number in (1, 2)
    ]
    return AIMessage("", tool_calls=calls)


def graph_of(books: Books) -> Any:
    builder = StateGraph(MessagesState)
    builder.add_node("tools", ToolNode(list(books.tools().values())))
    builder.add_edge(START, "tools")
    return builder.compile(checkpointer=InMemorySaver())


CHILD = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from approval import ApproverDouble, Books, pay, staged
books = Books()
try:
    with staged(Path(sys.argv[1]), ApproverDouble(books.says_yes)):
        pay(books, books.tools(), "call-1", payment="P1", amount="1.00")
        print("ran", flush=True)
        time.sleep(float(sys.argv[3]))
except Exception as error:
    print(type(error).__name__, flush=True)
"""


def two_processes(books: Books, log: Path) -> None:
    """A second process over the same log gets nothing done while the first one has it."""
    command = [sys.executable, "-c", CHILD, str(log), str(Path(__file__).parent)]
    with subprocess.Popen([*command, "3600"], stdout=subprocess.PIPE, text=True) as first:
        try:
            assert first.stdout is not None
            assert first.stdout.readline() == "ran\n"
            books.attempts += 1
            second = subprocess.run([*command, "0"], stdout=subprocess.PIPE, text=True, check=False)
            if second.stdout != "RunDirectoryError\n":
                books.ran["a second process"] += 1
        finally:
            first.kill()


WAYS = (
    another_call_with_the_same_id,
    the_same_call_a_second_time,
    arguments_that_change_while_one_waits,
    shown_arguments_that_an_approver_changes,
    nobody_in_time,
    an_approver_that_crashes,
    what_only_looks_like_a_yes,
    an_approval_of_another_session,
    many_at_once,
    interrupts_that_are_answered_wrongly,
    interrupts_that_are_answered_well,
)
