"""The carrier's parcel tracking behind a real MCP server, and the tool that the agent gets from it.

Client and server speak the protocol over streams in memory: no process, no port. Whose desk is meant goes
along in the request's `_meta`, so that the arguments stay what the model sees: the order id alone.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
from langchain_core.runnables.config import ensure_config
from langchain_core.tools import BaseTool
from langchain_mcp_adapters.tools import load_mcp_tools
from mcp import ClientSession
from mcp.server.lowlevel import Server
from mcp.shared.memory import create_client_server_memory_streams
from mcp.types import CallToolResult, TextContent, Tool, ToolAnnotations

from dreamgym_kit.recipes.desk.world import TENANT, open_desk

_TRACK_PARCEL = Tool(
    name="track_parcel",
    description="Ask the carrier where the parcel of an order is: moving, lost or delivered.",
    inputSchema={
        "type": "object",
        "properties": {"order_id": {"type": "string"}},
        "required": ["order_id"],
        "additionalProperties": False,
    },
    annotations=ToolAnnotations(readOnlyHint=True),
)


def parcel_server() -> Server[object, object]:
    """Make the server. A refusal of the desk becomes an MCP result with `isError`."""
    server: Server[object, object] = Server("parcels")

    @server.list_tools()  # type: ignore[no-untyped-call, untyped-decorator]
    async def list_tools() -> list[Tool]:
        return [_TRACK_PARCEL]

    @server.call_tool()  # type: ignore[untyped-decorator]
    async def call_tool(name: str, arguments: dict[str, Any]) -> tuple[list[TextContent], dict[str, str]]:
        if name != _TRACK_PARCEL.name:
            raise ValueError(f"no tool {name}")
        meta = server.request_context.meta
        with open_desk((meta.model_extra or {}).get(TENANT) if meta else None) as desk:
            found = desk.track_parcel(arguments["order_id"])
        return [TextContent(type="text", text=json.dumps(found))], found

    return server


class TenantSession(ClientSession):
    """An MCP session that tells the server, beside the arguments, whose desk a call is about."""

    async def call_tool(self, name: str, *args: Any, **options: Any) -> CallToolResult:
        """Call a tool with the tenant of the running graph's config in `_meta`."""
        tenant = ensure_config().get("configurable", {}).get(TENANT)
        meta = {**(options.pop("meta", None) or {}), TENANT: tenant}
        return await super().call_tool(name, *args, meta=meta, **options)


@asynccontextmanager
async def parcel_tools() -> AsyncIterator[list[BaseTool]]:
    """Keep server and session up, and give the tools they offer; leave it in the task that entered it."""
    server = parcel_server()
    async with (
        create_client_server_memory_streams() as (client_streams, server_streams),
        anyio.create_task_group() as serving,
    ):
        serving.start_soon(server.run, *server_streams, server.create_initialization_options())
        async with TenantSession(*client_streams) as session:
            await session.initialize()
            yield await load_mcp_tools(session)
        serving.cancel_scope.cancel()
