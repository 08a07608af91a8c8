"""Planted runs for `verdict_words`: what an agent does by its request, and which verdict and code fit."""

from collections.abc import Mapping
from dataclasses import dataclass, field

AGENT = """
import os
import time

from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.runtime import Runtime
from langgraph.types import interrupt

LEDGER = []  # a real system; its `append` is not Python code, so nothing can intercept it


class Context:
    user: str = "nobody"


@tool
def look_NAME(order: str) -> str:
    "Look an order up."
    return "open"


@tool
def remove_NAME(order: str) -> str:
    "Remove an order for good."
    return "removed"


@tool
def sign_NAME(order: str) -> str:
    "Sign an order, if a person agrees."
    return f"signed: {interrupt(f'sign {order}?')}"


def parsed(text):
    return text.group()


def model(state, runtime: Runtime[Context]):
    said, last = state["messages"][0].content, state["messages"][-1]
    if last.type == "tool":
        return {"messages": [AIMessage("done")]}
    if "crash" in said:
        return {"messages": [AIMessage(parsed(None))]}
    if "context" in said:
        return {"messages": [AIMessage(runtime.context.user)]}
    if "endpoint" in said:
        url = os.environ["STUB_URL"] + said.split()[1] + "/v1"
        client = ChatOpenAI(model="m", api_key="none", base_url=url, max_retries=0, timeout=2)
        return {"messages": [client.invoke("hi")]}
    DOOR
    if "ask" in said:
        return {"messages": [AIMessage(f"told {interrupt({'question': 'really?'})}")]}
    if "wait" in said:
        time.sleep(120)
    calls = [word for word in said.split() if word in ("look", "remove", "sign", "append")]
    named = [
        {"id": f"c{place}", "name": f"{'look' if word == 'append' else word}_NAME", "args": {"order": "o1"}}
        for place, word in enumerate(calls)
    ]
    return {"messages": [AIMessage("fine", tool_calls=named)]}


held = ToolNode([look_NAME, remove_NAME, sign_NAME])


def tools(state):
    if "append" not in state["messages"][0].content:
        return held.invoke(state)
    (call,) = state["messages"][-1].tool_calls
    LEDGER.append(call["args"]["order"])
    return {"messages": [ToolMessage("ok", tool_call_id=call["id"], name=call["name"])]}


made = StateGraph(MessagesState, CONTEXT)
made.add_node("model", model)
made.add_node("tools", TOOLS)
made.add_edge(START, "model")
made.add_conditional_edges("model", lambda s: "tools" if s["messages"][-1].tool_calls else END)
made.add_edge("tools", "model")
graph = made.compile()


def good(outcome):
    return True


def bad(outcome):
    return False


def raises(outcome):
    raise KeyError("no such order")


class Shop:
    def configurable(self, world, episode):
        raise RuntimeError("no such shop")

    async def reset(self, world, episode):
        pass

    async def close(self, episode):
        pass


class Reset(Shop):
    def configurable(self, world, episode):
        return {}

    async def reset(self, world, episode):
        raise RuntimeError("the shop is closed")


class Close(Reset):
    async def reset(self, world, episode):
        pass

    async def close(self, episode):
        raise RuntimeError("the shop stays open")


class Unclosed:
    def configurable(self, world, episode):
        return {}

    async def reset(self, world, episode):
        pass
"""
P, F, INC, E = "passed", "failed", "inconclusive", "error"
CODES = {P: 0, F: 1, INC: 3, E: 4}
ALL = ("command", "python", "pytest")


@dataclass(frozen=True)
class Asked:
    """One task: what is asked, who checks it, and the verdict that is right."""

    said: str
    verdict: str
    checker: str | None = "good"
    replies: tuple[object, ...] = ()
    expect: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """One planted run; `verdict` and `code` are those of the run."""

    name: str
    tasks: tuple[Asked, ...]
    verdict: str
    settings: str = ""  # more of dreamgym.toml
    recorded: tuple[Asked, ...] = ()  # before it, on the real tools
    code: int | None = None  # None: that of the verdict
    faces: tuple[str, ...] = ALL
    command: tuple[str, ...] = ("simulate",)
    about: tuple[str, ...] = ()  # texts that the command must print
    agent: Mapping[str, str] = field(default_factory=dict)  # replacements in the agent
    word: str = ""  # that reports begin with; "": the verdict

    @property
    def expected_code(self) -> int:
        """The exit code that is right."""
        return CODES[self.verdict] if self.code is None else self.code


def many(inconclusive: int, of: int) -> tuple[Asked, ...]:
    """So many tasks with an unanswered call, of so many."""
    return (
        *(Asked("look", INC) for _ in range(inconclusive)),
        *(Asked("hi", P) for _ in range(of - inconclusive)),
    )


FINE, BAD, LOOK = Asked("hi", P), Asked("hi", F, "bad"), Asked("look", INC)
SIGNED = (Asked("sign", P, replies=("yes",)), Asked("sign", P, replies=("no",)))
BROKEN = Asked("hi", E, "raises")
DOOR = {
    "agent": {
        "DOOR": """if "door" in said:
        getattr(__import__("soc" + "ket"), "create_connection")(("192.0.2.1", 80), 1)"""
    }
}
GUARD = '[guard]\nallow_hosts = ["127.0.0.1"]\n'
ONE_BY_ONE = ("command", "python")  # a share of episodes is a matter of runs
RECORD = {"faces": ("command",), "command": ("record", "--yes")}
WORLD = '[environments.default]\nref = "AGENT:{}"\n'

CASES: tuple[Case, ...] = (
    Case("passes", (FINE,), P, about=("PASSED  1 passed, 0 failed, 0 inconclusive, 0 errors",)),
    Case("expects", (Asked("hi", P, None, expect={"forbid": ["remove_*"]}),), P),
    Case("checker_no", (BAD,), F, about=("gate min_pass_rate: 0%, required 100%",)),
    Case("expectation", (Asked("look", F, None, expect={"forbid": ["look_*"]}),), F, faces=ONE_BY_ONE),
    Case("crash", (Asked("crash", F),), F, about=("in parsed: return text.group()",)),
    Case("crash_and_fine", (Asked("crash", F), FINE), F),
    Case("checker_raises", (BROKEN,), E, about=("the checker raised KeyError",)),
    Case("equal_causes", (BROKEN, BROKEN, BROKEN), E, about=("3 episodes  error: the checker raised",)),
    Case("no_checker", (Asked("hi", INC, None),), INC),
    Case("unanswered", (LOOK,), INC, about=("Unanswered    1 look_",)),
    Case("interrupt_answered", (Asked("ask", P, replies=("yes",)),), P),
    Case("interrupt_open", (Asked("ask", INC),), INC),
    *(
        Case(
            f"tool_asks_{reply}",
            (Asked("sign", verdict, replies=(reply,)),),
            verdict,
            recorded=SIGNED,
            faces=ONE_BY_ONE,
        )
        for reply, verdict in (("yes", P), ("no", P), ("maybe", INC))
    ),
    Case("tool_asks_nobody", (Asked("sign", INC),), INC, recorded=SIGNED, faces=ONE_BY_ONE),
    Case("blocked", (Asked("door", INC),), F, about=("0 executed, 1 blocked",), **DOOR),
    Case("blocked_and_error", (Asked("door", INC), BROKEN), F, **DOOR),
    Case(
        "executed",
        (Asked("append", F),),
        F,
        code=6,
        about=("1 real call executed",),
        agent={"TOOLS": "tools"},
    ),
    Case("provider", (Asked("hi", E),), E, settings=WORLD.format("Shop"), faces=ONE_BY_ONE),
    Case("provider_reset", (Asked("hi", E),), E, settings=WORLD.format("Reset"), **RECORD),
    Case("provider_close", (Asked("hi", E),), E, settings=WORLD.format("Close"), **RECORD),
    Case("provider_unclosed", (FINE,), E, settings=WORLD.format("Unclosed"), code=2, faces=("command",)),
    Case("recorded", (FINE,), P, word="RECORDED", **RECORD),
    Case("context", (Asked("context", E),), E, agent={"CONTEXT": "Context"}),
    Case("context_unused", (FINE,), P, agent={"CONTEXT": "Context"}),
    *(
        Case(f"endpoint_{how}", (Asked(f"endpoint {how}", E),), E, settings=GUARD, faces=ONE_BY_ONE)
        for how in ("401", "429", "500", "timeout", "refused")
    ),
    Case("failed_and_error", (BAD, BROKEN), F),
    Case("error_and_inconclusive", (BROKEN, LOOK), E),
    Case("share_0", many(0, 11), P, faces=ONE_BY_ONE),
    Case("share_9", many(1, 11), P, faces=ONE_BY_ONE),
    Case("share_10", many(1, 10), P, faces=ONE_BY_ONE),
    Case("share_11", many(11, 100), INC, faces=ONE_BY_ONE, about=("gate max_inconclusive: 11% of",)),
    Case("share_1_of_8", many(1, 8), INC, faces=ONE_BY_ONE),
    Case("share_100", many(4, 4), INC, faces=ONE_BY_ONE),
    Case("share_allowed", many(2, 4), P, settings="[gate]\nmax_inconclusive = 0.5\n", faces=ONE_BY_ONE),
    Case(
        "nothing_conclusive", many(2, 2), INC, settings="[gate]\nmax_inconclusive = 1.0\n", faces=ONE_BY_ONE
    ),
    Case("half_required", (FINE, BAD), P, settings="[gate]\nmin_pass_rate = 0.5\n", faces=ONE_BY_ONE),
    Case("error_allowed", (FINE, BROKEN), P, settings="[gate]\nmax_errors = 1\n", faces=ONE_BY_ONE),
    Case("forbidden", (LOOK, FINE), F, settings='[gate]\nforbid = ["look_*"]\n', faces=ONE_BY_ONE),
    Case(
        "too_often",
        (Asked("look look", INC), FINE),
        F,
        settings='[gate]\nmax_inconclusive = 1.0\nmax_calls_per_tool = {"look_*" = 0}\n',
        faces=ONE_BY_ONE,
    ),
    Case("findings", (FINE,), P, settings='[gate]\nfail_on = ["critical"]\n', faces=ONE_BY_ONE),
    Case("evaluate_measures", (FINE, BAD), P, faces=ONE_BY_ONE, command=("evaluate",), word="EVALUATED"),
    Case("evaluate_unknown", (FINE, LOOK), INC, faces=ONE_BY_ONE, command=("evaluate",)),
    Case(
        "evaluate_required",
        (FINE, BAD),
        F,
        faces=("command",),
        command=("evaluate", "--set", "gate.min_pass_rate=1"),
    ),
    Case("evaluate_error", (BROKEN,), E, faces=ONE_BY_ONE, command=("evaluate",)),
    Case("old_flag", (), E, code=2, faces=("command",), command=("simulate", "--gate-success", "1")),
    Case("old_key", (), E, settings="[gate]\nsuccess = 1\n", code=2, faces=("command",)),
    Case("unknown_key", (), E, settings="[gate]\nmin_pas_rate = 1\n", code=2, faces=("command",)),
    Case("no_task", (), INC, code=5, faces=("command",)),
)
