"""A refusal ends the episode whatever the agent catches, and nothing later in it runs."""

import asyncio
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from each_row import each_row
from langchain.agents.middleware import ToolRetryMiddleware
from langchain_core.tools import BaseTool, ToolException
from langgraph.prebuilt import ToolNode
from shapes.agents import ADD, MAKES, with_create_agent, with_tool_node
from shapes.canary import Canary
from shapes.middleware import SwallowsExceptions, once
from shapes.models import asks
from shapes.stage import HELLO, ScriptedExperienceDouble, dream, tool_messages
from shapes.tools import ClassTool, OverridesInvoke, add_tool, async_tool, dict_schema_tool

from dreamgym_kit.dream.faults import Fault, FaultKind
from dreamgym_kit.errors import BudgetExceeded, CallUnanswered, EpisodeStop, EpisodeTimeout, RealCallBlocked
from dreamgym_kit.interfaces import RunHook
from dreamgym_kit.rollout.budgets import RunBudget
from dreamgym_kit.routing import session as sessions
from dreamgym_kit.routing.process import entered
from dreamgym_kit.routing.router import CallRouter, Mode
from dreamgym_kit.routing.session import Session
from dreamgym_kit.types import Answer, Call, Source, ToolSpec, Transition

pytestmark = [pytest.mark.usefixtures("gate"), pytest.mark.filterwarnings("ignore")]


def _node(**settings: Any) -> Any:
    tool = add_tool()
    return with_tool_node([tool], once(), node=ToolNode([tool], **settings))


def test_a_call_of_a_turn_that_an_exception_broke_off_is_stopped_and_no_violation() -> None:
    session = Session(CallRouter(Mode.DREAM))
    with pytest.raises(KeyError), entered(session):
        raise KeyError("the agent's own")
    with pytest.raises(EpisodeStop, match="broken off"):
        session.check_open("add")
    assert session.violations == []
    ended = Session(CallRouter(Mode.DREAM))
    with entered(ended):
        pass
    with pytest.raises(RealCallBlocked, match="had ended"):
        ended.check_open("add")
    assert len(ended.violations) == 1


AGENTS: dict[str, Callable[[], Any]] = {
    **{make: (lambda make=make: MAKES[make]([add_tool()], once())) for make in MAKES},
    "handle_tool_errors=True": lambda: _node(handle_tool_errors=True),
    "handle_tool_errors=text": lambda: _node(handle_tool_errors="never mind"),
    "handle_tool_errors=(Exception,)": lambda: _node(handle_tool_errors=(Exception,)),
    "ToolRetryMiddleware": lambda: with_create_agent(
        [add_tool()],
        once(),
        middleware=[ToolRetryMiddleware(max_retries=2, initial_delay=0, on_failure="continue")],
    ),
    "except Exception": lambda: with_create_agent([add_tool()], once(), middleware=[SwallowsExceptions()]),
}
WAYS: dict[str, Callable[[Any], Any]] = {
    "invoke": lambda graph: graph.invoke(HELLO),
    "ainvoke": lambda graph: asyncio.run(graph.ainvoke(HELLO)),
    "stream": lambda graph: list(graph.stream(HELLO)),
    "astream": lambda graph: asyncio.run(_drained(graph)),
}


async def _drained(graph: Any) -> list[Any]:
    return [part async for part in graph.astream(HELLO)]


def _refuses(session: Session) -> ScriptedExperienceDouble:
    return ScriptedExperienceDouble(lambda call: session.refuse("no"))


@each_row("way", WAYS)
@each_row("agent", AGENTS)
def test_no_agent_swallows_a_refusal(agent: str, way: str, canary: Canary) -> None:
    session = dream()
    session._experience = _refuses(session)
    with entered(session), pytest.raises(RealCallBlocked):
        WAYS[way](AGENTS[agent]())
    assert session.violations == ["no"]
    assert canary.written() == []


@each_row("wrapped", ["with_retry", "with_fallbacks"])
def test_retry_and_fallbacks_do_not_try_again_after_a_refusal(wrapped: str) -> None:
    session = dream()
    asked = _refuses(session)
    session._experience = asked
    tool = add_tool()
    runnable = tool.with_retry() if wrapped == "with_retry" else tool.with_fallbacks([ClassTool()])
    with entered(session), pytest.raises(RealCallBlocked):
        runnable.invoke(ADD)
    assert len(asked.asked) == 1


def test_after_a_refusal_everything_else_is_refused_and_nothing_is_recorded(canary: Canary) -> None:
    session = dream(control=("add", "ov"))
    with entered(session):
        with pytest.raises(RealCallBlocked):
            session.refuse("first")
        for call in (
            lambda: add_tool().invoke(ADD),
            lambda: add_tool().func(1, 2),
            lambda: ClassTool().run({"a": 1}),
            lambda: OverridesInvoke().invoke({"a": 1}),
        ):
            with pytest.raises(RealCallBlocked, match="after a refusal"):
                call()
    assert session.violations == ["first"]
    assert len(session.ledger) == 0
    assert canary.written() == []


def test_an_abstention_stops_the_episode_and_stays() -> None:
    session = Session(CallRouter(Mode.DREAM))
    with entered(session):
        for _ in range(2):
            with pytest.raises(CallUnanswered, match="no experience to go by"):
                _node(handle_tool_errors=True).invoke(HELLO)
    assert session.counts["abstained"] == 1


def test_an_abstention_as_an_error_lets_the_tool_fail() -> None:
    session = Session(CallRouter(Mode.DREAM), abstain="error")
    with entered(session):
        result = _node(handle_tool_errors=True).invoke(HELLO)
    assert "add is not available right now" in str(tool_messages(result)[0].content)
    assert session.stopped is None


def test_an_experience_model_that_fails_abstains_and_is_no_tool_failure() -> None:
    def fails(call: Call) -> str:
        raise ConnectionError("endpoint gone")

    session = dream(ScriptedExperienceDouble(fails))
    with entered(session), pytest.raises(CallUnanswered, match="experience model failed: ConnectionError"):
        _node(handle_tool_errors=True).invoke(HELLO)


@each_row("agent", ["create_agent", "handle_tool_errors=True", "except Exception"])
def test_what_cannot_be_kept_ends_the_episode_and_no_call_follows(agent: str, canary: Canary) -> None:
    class Full(RunHook):
        def after_call(self, entry: Transition) -> None:
            raise OSError("disk full")

    session = Session(CallRouter(Mode.RECORD), hooks=[Full()])
    with entered(session):
        with pytest.raises(EpisodeStop, match=r"answer of add could not be kept: disk full"):
            AGENTS[agent]().invoke(HELLO)
        with pytest.raises(EpisodeStop):
            add_tool().invoke(ADD)
    assert canary.written() == ["add"]


def test_the_step_limit_is_met_before_the_call(canary: Canary) -> None:
    session = Session(CallRouter(Mode.RECORD), step_limit=1)
    with entered(session):
        add_tool().invoke(ADD)
        with pytest.raises(BudgetExceeded, match="limit 1"):
            add_tool().invoke(ADD)
    assert canary.written() == ["add"]


@each_row("agent", AGENTS)
def test_once_its_time_is_over_no_call_runs_whoever_still_asks(
    canary: Canary, agent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    clock = {**vars(time), "monotonic": lambda: now}
    monkeypatch.setattr("dreamgym_kit.routing.session.time", SimpleNamespace(**clock))
    with entered(Session(CallRouter(Mode.RECORD), lasts_s=60)):
        now = 159.9
        add_tool().invoke(ADD)
        now = 160.1
        with pytest.raises(EpisodeTimeout, match=r"time limit \(60 s\) was over before"):
            AGENTS[agent]().invoke(HELLO)
    assert canary.written() == ["add"]


def test_a_budget_is_charged_before_the_call(canary: Canary) -> None:
    session = Session(CallRouter(Mode.RECORD), hooks=[RunBudget(0)])
    with entered(session), pytest.raises(BudgetExceeded):
        AGENTS["handle_tool_errors=True"]().invoke(HELLO)
    assert canary.written() == []


@each_row("agent", AGENTS)
def test_a_hook_that_fails_before_a_call_ends_the_episode_whatever_the_agent_catches(
    agent: str, canary: Canary
) -> None:
    class Failing(RunHook):
        def before_call(self, call: Call, tool: ToolSpec) -> None:
            raise OSError("rules.toml is gone")

    session = Session(CallRouter(Mode.RECORD), hooks=[Failing()])
    with entered(session):
        with pytest.raises(EpisodeStop, match=r"add was not called: OSError: rules\.toml is gone"):
            AGENTS[agent]().invoke(HELLO)
        with pytest.raises(EpisodeStop):
            add_tool().invoke(ADD)
    assert session.violations == []
    assert canary.written() == []


class Forbids(RunHook):
    def forbids(self, call: Call, tool: ToolSpec) -> str:
        return f"{call.tool} {dict(call.args)} is forbidden"


@each_row("agent", AGENTS)
def test_a_call_that_a_hook_forbids_is_blocked_whatever_the_agent_catches(agent: str, canary: Canary) -> None:
    session = Session(CallRouter(Mode.RECORD), hooks=[Forbids()])
    with entered(session), pytest.raises(RealCallBlocked, match="is forbidden"):
        AGENTS[agent]().invoke(HELLO)
    assert session.violations
    assert canary.written() == []


@each_row("ended", ["limit", "time", "refusal"])
def test_each_forbidden_call_is_reported_also_in_an_ended_episode(ended: str, canary: Canary) -> None:
    limits: dict[str, Any] = {"limit": {"step_limit": 0}, "time": {"lasts_s": -1}, "refusal": {}}[ended]
    session = Session(CallRouter(Mode.RECORD), hooks=[Forbids()], **limits)
    if ended == "refusal":
        session.latch("something else")
    with entered(session):
        for number in (1, 2):
            with pytest.raises(RealCallBlocked, match="is forbidden"):
                add_tool().invoke({"a": number, "b": number})
    assert len([why for why in session.violations if "is forbidden" in why]) == 2
    assert canary.written() == []


def test_an_episode_that_ends_while_its_call_is_charged_makes_it_no_more(canary: Canary) -> None:
    """Whoever counts may be far away."""

    class Slow(RunHook):
        def before_call(self, call: Call, tool: ToolSpec) -> None:
            session.close()

    session = Session(CallRouter(Mode.RECORD), hooks=[Slow()])
    with entered(session), pytest.raises(RealCallBlocked, match="after its episode had ended"):
        AGENTS["handle_tool_errors=True"]().invoke(HELLO)
    assert canary.written() == []


@each_row("kind", ["sync", "async"])
def test_an_episode_that_ends_while_a_planned_fault_holds_its_call_up_makes_it_no_more(
    kind: str, canary: Canary, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Session(CallRouter(Mode.RECORD))
    slow = Fault(FaultKind.SLOW, wait_s=60)
    monkeypatch.setattr(session, "real_fault", lambda *_: slow)

    async def apart(_: float) -> None:
        session.close()

    clock = {**vars(time), "sleep": lambda _: session.close()}
    monkeypatch.setattr(sessions, "time", SimpleNamespace(**clock))
    monkeypatch.setattr(sessions, "asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": apart}))
    tool = add_tool() if kind == "sync" else async_tool()
    graph = with_create_agent([tool], [[asks(tool.name, ADD)], "done"])
    with entered(session), pytest.raises(RealCallBlocked, match="after its episode had ended"):
        graph.invoke(HELLO) if kind == "sync" else asyncio.run(graph.ainvoke(HELLO))
    assert canary.written() == []


def _fails(call: Call) -> Answer:
    return Answer(error="dream error", error_type="ToolException", source=Source.SCRIPTED)


@each_row("kind", ["sync", "async"])
def test_a_dreamt_failure_is_handled_as_the_tool_would(kind: str) -> None:
    tool = add_tool()
    tool.handle_tool_error = lambda error: f"handled: {error}"
    graph = with_create_agent([tool], once())
    with entered(dream(ScriptedExperienceDouble(_fails))):
        result = graph.invoke(HELLO) if kind == "sync" else asyncio.run(graph.ainvoke(HELLO))
    message = tool_messages(result)[0]
    assert (message.content, message.status) == ("handled: dream error", "error")


@each_row("kind", ["sync", "async"])
def test_a_dreamt_failure_that_nobody_handles_ends_the_run_as_a_real_one_does(kind: str) -> None:
    graph = with_create_agent([add_tool()], once())
    session = dream(ScriptedExperienceDouble(_fails))
    with entered(session), pytest.raises(ToolException, match="dream error"):
        graph.invoke(HELLO) if kind == "sync" else asyncio.run(graph.ainvoke(HELLO))
    assert session.stopped is None


def test_a_failure_is_asked_anew_by_a_retry_and_a_success_is_not() -> None:
    said = iter([_fails, _fails])

    def flaky(call: Call) -> Answer | str:
        failing = next(said, None)
        return failing(call) if failing else "at last"

    experience = ScriptedExperienceDouble(flaky)
    retry = ToolRetryMiddleware(max_retries=3, initial_delay=0)
    graph = with_create_agent([add_tool()], once(), middleware=[retry])
    with entered(dream(experience)):
        result = graph.invoke(HELLO)
    assert tool_messages(result)[0].content == "at last"
    assert len(experience.asked) == 3


BAD_SCHEMAS: dict[str, Any] = {
    "remote reference": {"$ref": "http://127.0.0.1:9/x.json"},
    "dangling reference": {"$ref": "#/nope"},
    "unknown type": {"type": "nosuch"},
    "bad pattern": {"type": "object", "properties": {"a": {"pattern": "(?P<"}}},
    "no object": {"type": "object", "properties": [1]},
}


def test_bad_arguments_of_a_dict_schema_are_told_to_the_agent_and_the_dream_is_not_asked() -> None:
    experience = ScriptedExperienceDouble()
    tool = dict_schema_tool()
    tool.handle_tool_error = True
    session = dream(experience)
    with entered(session):
        graph = with_create_agent([tool], [[asks("plain", {"a": "no number"})], [asks("plain", {})], "done"])
        messages = tool_messages(graph.invoke(HELLO))
    assert [message.content for message in messages] == [
        "Invalid arguments for plain: a: 'no number' is not of type 'integer'",
        "Invalid arguments for plain: arguments: 'a' is a required property",
    ]
    assert experience.asked == []
    assert session.counts == {"bad_arguments": 2}


@each_row("flaw", BAD_SCHEMAS)
def test_a_schema_that_cannot_be_used_is_the_servers_to_judge(flaw: str) -> None:
    class Foreign(BaseTool):
        name: str = "foreign"
        description: str = "d"
        args_schema: Any = BAD_SCHEMAS[flaw]

        def _run(self, **given: Any) -> str:
            return "real"

    session = dream()
    with entered(session):
        assert Foreign()._run(a="x") == "42"
    assert session.counts == {"unchecked_arguments": 1}


def test_a_tool_that_catches_everything_is_found_by_the_session(canary: Canary) -> None:
    def swallow(call: Callable[[], Any]) -> Any:
        try:
            return call()
        except BaseException:
            return "swallowed"

    session = dream()
    with entered(session):
        swallow(lambda: session.refuse("one"))
        assert [swallow(lambda: add_tool().invoke(ADD)) for _ in range(5)] == ["swallowed"] * 5
    assert session.violations == ["one"]
    assert canary.written() == []
