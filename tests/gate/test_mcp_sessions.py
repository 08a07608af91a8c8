"""An MCP tool called on the client session itself, in a dream and outside one."""

import asyncio
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from mcp.server.fastmcp import FastMCP
from mcp.shared.memory import create_connected_server_and_client_session
from mcp.shared.session import BaseSession
from shapes.canary import Canary, touch
from shapes.stage import HELLO, dream

from dreamgym_kit.adapters.langgraph.intercept.install import hook_tool_functions, uninstall
from dreamgym_kit.adapters.langgraph.run.api import record_everything
from dreamgym_kit.routing.process import entered
from dreamgym_kit.routing.router import CallRouter, Mode
from dreamgym_kit.routing.session import Session
from dreamgym_kit.types import Effect, ToolSpec

pytestmark = pytest.mark.usefixtures("gate")
SERVER = FastMCP("till", log_level="ERROR")


@SERVER.tool()
def pay(amount: int) -> str:
    """Pay out."""
    touch("pay")
    return "paid"


async def pay_at_the_server() -> str:
    async with create_connected_server_and_client_session(SERVER._mcp_server) as client:
        assert [one.name for one in (await client.list_tools()).tools] == ["pay"]
        found = await client.call_tool("pay", {"amount": 1})
        return str(found.content[0].text)  # type: ignore[union-attr]


async def pays(state: Any) -> Any:
    return {"messages": [AIMessage(await pay_at_the_server())]}


def graph() -> Any:
    return StateGraph(MessagesState).add_node("pays", pays).add_edge(START, "pays").compile()


def test_a_dream_refuses_it_by_name_before_it_is_sent(canary: Canary) -> None:
    hook_tool_functions()
    session = dream()
    with entered(session), pytest.raises(BaseExceptionGroup):
        asyncio.run(graph().ainvoke(HELLO))
    (why,) = session.violations
    assert "the MCP tool 'pay' was called on its client session; it did not run" in why
    assert '[functions."package.module:function"] effect = "write", name = "pay" (a dream answers' in why
    assert canary.written() == []


def test_the_body_of_a_tool_that_a_person_called_harmless_may_send_it(canary: Canary) -> None:
    @tool
    async def harmless() -> str:
        """Ask the server."""
        return await pay_at_the_server()

    hook_tool_functions()
    with entered(dream(control=("harmless",))):
        assert asyncio.run(harmless.ainvoke({})) == "paid"
    assert canary.written() == ["pay"]


def test_the_body_of_a_tool_that_is_called_pure_may_not(canary: Canary) -> None:
    @tool
    async def formula() -> str:
        """Ask the server all the same."""
        return await pay_at_the_server()

    session = Session(CallRouter(Mode.DREAM, {"formula": ToolSpec("formula", Effect.PURE)}))
    with entered(session), pytest.raises(BaseExceptionGroup):
        asyncio.run(formula.ainvoke({}))
    (why,) = session.violations
    assert "'formula', whose effect is pure, called the MCP tool 'pay'; that did not run" in why
    assert canary.written() == []


def test_a_recording_sends_it_and_uninstalling_restores_the_class(canary: Canary) -> None:
    uninstall()
    before_the_gate = BaseSession.send_request, BaseSession.send_request.__code__
    with record_everything():
        assert asyncio.run(graph().ainvoke(HELLO))["messages"][-1].content == "paid"
    held = BaseSession.send_request.__code__
    uninstall()
    assert (BaseSession.send_request, BaseSession.send_request.__code__) == before_the_gate
    assert held is not BaseSession.send_request.__code__
