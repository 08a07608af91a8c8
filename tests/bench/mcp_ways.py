"""Every way to call an MCP tool past its LangChain tool or by it, dreamt and then for real.

`mcp_ways.py N [TRANSPORT...] [--unguarded]`; the last is a planted bug, to see that it is found.

Runs with whatever major of the MCP SDK is installed, and with the packages over it that are there. Clients
are opened before the gate is put in. Prints JSON: by transport, how many calls were tried in a dream and
made for real as well, how many of the dreamt ones reached the server, and what went wrong.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))  # `shapes` lies beside this folder
import mcp
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from mcp_till_double import till

MAJOR = int(version("mcp").partition(".")[0])
SERVER = Path(__file__).with_name("mcp_till_double.py")
TRANSPORTS = ("memory", "stdio", "http")
Way = Callable[[int], Awaitable[Any]]


@dataclass
class Tally:
    """What came of one transport."""

    calls: int = 0
    leaks: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)  # real calls that the server did not count, once
    ways: list[str] = field(default_factory=list)


async def main(calls: int, transports: Sequence[str], *, guarded: bool = True) -> dict[str, Any]:
    """Try every way over every transport until there were enough calls of each."""
    if not guarded:
        from dreamgym_kit.adapters.langgraph.intercept import install

        install._check_mcp_call = lambda _: None  # type: ignore[assignment]
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TILL"] = str(Path(folder) / "ledger")
        for transport in transports:
            Path(os.environ["TILL"]).write_text("")
            async with AsyncExitStack() as stack:
                ways = await _ways(stack, transport)
                found[transport] = asdict(await _tried(ways, calls))
    return {"mcp": version("mcp"), "transports": found}


async def _tried(ways: dict[str, Way], calls: int) -> Tally:
    from shapes.stage import dream

    from dreamgym_kit.adapters.langgraph.intercept.install import hook_tool_functions, install
    from dreamgym_kit.adapters.langgraph.run.api import record_everything
    from dreamgym_kit.routing.process import entered

    install()
    hook_tool_functions()
    tally = Tally(ways=sorted(ways))
    while tally.calls < calls:
        for name, way in ways.items():
            before = _counted()
            with entered(dream()):
                await _outcome(way, tally.calls)
            dreamt = _counted()
            with record_everything():
                said = await _outcome(way, tally.calls)
            if dreamt != before:
                tally.leaks.append(name)
            if _counted() != dreamt + 1:
                tally.wrong.append(f"{name}: {said}")
            tally.calls += 1
    return tally


async def _outcome(way: Way, amount: int) -> str:
    try:
        return str(await way(amount))
    except BaseException as error:  # a refusal is none of Exception
        if isinstance(error, KeyboardInterrupt):
            raise
        return repr(error)


def _counted() -> int:
    return len(Path(os.environ["TILL"]).read_text().splitlines())


async def _ways(stack: AsyncExitStack, transport: str) -> dict[str, Way]:
    server = till()
    target = await _target(stack, transport)
    session = await stack.enter_async_context(_session(transport, target, server))
    ways = _of_session(session)
    if transport == "memory":
        ways["server"] = lambda amount: server.call_tool("pay", {"amount": amount})
    if find_spec("fastmcp"):
        from fastmcp import Client

        client = await stack.enter_async_context(Client(_fastmcp_target(transport, target, server)))
        ways["fastmcp client"] = lambda amount: client.call_tool("pay", {"amount": amount})
    for name, tool in (await _tools(session, transport, target, server)).items():
        ways |= _of_tool(name, tool)
    return ways


def _of_session(session: Any) -> dict[str, Way]:
    call, send, loop = session.call_tool, session.send_request, asyncio.get_running_loop()

    async def sends(amount: int) -> Any:
        params = mcp.types.CallToolRequestParams(name="pay", arguments={"amount": amount})
        request: Any = mcp.types.CallToolRequest(method="tools/call", params=params)
        if MAJOR == 1:
            request = mcp.types.ClientRequest(request)
        return await send(request, mcp.types.CallToolResult)

    async def from_a_thread(amount: int) -> Any:
        def waits() -> Any:
            return asyncio.run_coroutine_threadsafe(call("pay", {"amount": amount}), loop).result()

        return await asyncio.to_thread(waits)

    async def in_a_node(amount: int) -> Any:
        async def pays(_: Any) -> Any:
            return {"messages": [AIMessage(str(await session.call_tool("pay", {"amount": amount})))]}

        made = StateGraph(MessagesState)
        made.add_node("pays", pays)
        made.add_edge(START, "pays")
        return await made.compile().ainvoke({"messages": []})

    ways: dict[str, Way] = {
        "session": lambda amount: session.call_tool("pay", {"amount": amount}),
        "call_tool bound before": lambda amount: call("pay", {"amount": amount}),
        "send_request bound before": sends,
        "session from a thread": from_a_thread,
        "session in a node": in_a_node,
    }
    if MAJOR > 1:
        raw = session._dispatcher.send_raw_request

        async def undressed(amount: int) -> Any:
            data = {"method": "tools/call", "params": {"name": "pay", "arguments": {"amount": amount}}}
            options: Any = {}
            session._stamp(data, options)
            return await raw(data["method"], data["params"], options)

        ways["dispatcher"] = undressed
    return ways


def _of_tool(name: str, tool: Any) -> dict[str, Way]:
    made = StateGraph(MessagesState)
    made.add_node("tools", ToolNode([tool]))
    made.add_edge(START, "tools")
    graph = made.compile()

    async def asked(amount: int) -> Any:
        call = {"name": "pay", "args": {"amount": amount}, "id": "c1"}
        said = await graph.ainvoke({"messages": [AIMessage("", tool_calls=[call])]})
        return said["messages"][-1].content

    return {
        f"{name} in a graph": asked,
        f"{name} invoked": lambda amount: tool.ainvoke({"amount": amount}),
        f"{name}'s coroutine": lambda amount: tool.coroutine(amount=amount),
    }


async def _tools(session: Any, transport: str, target: Any, server: Any) -> dict[str, Any]:
    if MAJOR == 1:
        from langchain_mcp_adapters.tools import load_mcp_tools

        return {"adapters tool": (await load_mcp_tools(session))[0]}
    from langchain.mcp import MCPAdapter

    return {
        "langchain.mcp tool": (await MCPAdapter(_fastmcp_target(transport, target, server)).list_tools())[0]
    }


def _fastmcp_target(transport: str, target: Any, server: Any) -> Any:
    if transport == "stdio":
        from fastmcp.client.transports import StdioTransport

        return StdioTransport(target.command, target.args, env=dict(os.environ))
    if transport == "memory" and MAJOR == 1:
        from fastmcp.client.transports import FastMCPTransport

        return FastMCPTransport(server)
    return server if transport == "memory" else target


async def _target(stack: AsyncExitStack, transport: str) -> Any:
    if transport == "stdio":
        return mcp.StdioServerParameters(
            command=sys.executable, args=[str(SERVER), "stdio"], env=dict(os.environ)
        )
    if transport == "memory":
        return None
    child = subprocess.Popen([sys.executable, SERVER, "http"], stdout=subprocess.PIPE, text=True)
    stack.callback(child.wait)
    stack.callback(child.kill)
    assert child.stdout is not None
    return child.stdout.readline().strip()


@asynccontextmanager
async def _session(transport: str, target: Any, server: Any) -> AsyncIterator[Any]:
    if transport == "memory" and MAJOR > 1:
        async with mcp.Client(server) as client:
            yield client.session
        return
    if transport == "memory":
        from mcp.shared.memory import create_connected_server_and_client_session

        async with create_connected_server_and_client_session(server._mcp_server) as session:
            yield session
        return
    if transport == "stdio":
        from mcp.client.stdio import stdio_client as opened
    else:
        from mcp.client.streamable_http import streamable_http_client as opened
    async with opened(target) as (read, write, *_), mcp.ClientSession(read, write) as session:
        await session.initialize()
        yield session


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    number, *names = sys.argv[1:]
    chosen = [name for name in TRANSPORTS if name in names] or TRANSPORTS
    print(json.dumps(asyncio.run(main(int(number), chosen, guarded="--unguarded" not in names))))
