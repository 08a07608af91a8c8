"""The agent's tools: each does one thing on the desk of its episode, for real.

A tool finds its desk by the tenant in the run's config. When the desk refuses, the agent is told so and
goes on; when no desk is open, that is the caller's error and ends the run. What each tool does to the
world is said in dreamgym.toml, next to this file.

The carrier's parcel tracking stands behind a real MCP server: client and server speak the protocol over
streams in memory, no process, no port. Whose desk is meant goes along in the request's `_meta`, so that the
arguments stay what the model sees: the order id alone.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import anyio
from langchain_core.messages import ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config
from langchain_core.tools import BaseTool, InjectedToolCallId, ToolException, tool
from langchain_mcp_adapters.tools import load_mcp_tools
from langgraph.prebuilt import InjectedState
from langgraph.types import Command
from mcp import ClientSession
from mcp.server.lowlevel import Server
from mcp.shared.memory import create_client_server_memory_streams
from mcp.types import CallToolResult, TextContent, Tool, ToolAnnotations

from dreamgym_kit.recipes.desk.database import DeskError, refund_share
from dreamgym_kit.recipes.desk.environment import TENANT, open_desk
from dreamgym_kit.serialization import JsonValue


def _on_desk(config: RunnableConfig, operation: str, **args: str) -> JsonValue:
    """Do it on the desk of this run.

    Raises:
        ToolException: the desk refuses; the agent reads why.
        UserError: the run has no desk.
    """
    with open_desk(config.get("configurable", {}).get(TENANT)) as desk:
        try:
            return desk.call(operation, args)
        except DeskError as error:
            raise ToolException(str(error)) from error


@tool
def find_customer(name: str, config: RunnableConfig) -> JsonValue:
    """Find a customer by first name: id, city and tier (gold or basic)."""
    return _on_desk(config, "find_customer", name=name)


@tool
def list_orders(customer_id: str, config: RunnableConfig) -> JsonValue:
    """List a customer's orders with item and status."""
    return _on_desk(config, "list_orders", customer_id=customer_id)


@tool
async def get_order(order_id: str, config: RunnableConfig) -> JsonValue:
    """Look up one order: whose it is, item, status, days since the order, total."""
    return await asyncio.to_thread(_on_desk, config, "get_order", order_id=order_id)


@tool
def list_payments(order_id: str, config: RunnableConfig) -> JsonValue:
    """List the payments of an order: amount, status (captured, failed, refunded), refunded so far."""
    return _on_desk(config, "list_payments", order_id=order_id)


@tool
def track_parcel(order_id: str, config: RunnableConfig) -> JsonValue:
    """Ask the carrier where the parcel of an order is: moving, lost or delivered."""
    return _on_desk(config, "track_parcel", order_id=order_id)


@tool
def refund_quote(amount: str, days: str) -> dict[str, str]:
    """Compute what a broken item's refund is, from the amount paid ("19.90") and the days since the order."""
    try:
        return refund_share(amount, days)
    except ValueError as error:
        raise ToolException(str(error)) from error


@tool
def summarise_case(state: Annotated[dict[str, Any], InjectedState]) -> dict[str, str]:
    """Sum up this conversation so far, for the person that it is handed to."""
    answers = [message for message in state["messages"] if isinstance(message, ToolMessage)]
    failed = [message for message in answers if message.status == "error"]
    return {
        "calls": str(len(answers)),
        "failed": str(len(failed)),
        "escalated": " ".join(state.get("escalated", [])),
    }


@tool
def update_address(customer_id: str, city: str, config: RunnableConfig) -> JsonValue:
    """Change the city that a customer lives in."""
    return _on_desk(config, "update_address", customer_id=customer_id, city=city)


@tool
def cancel_order(order_id: str, config: RunnableConfig) -> JsonValue:
    """Cancel an order. It does not check whether the order was shipped."""
    return _on_desk(config, "cancel_order", order_id=order_id)


@tool
def reship_order(order_id: str, config: RunnableConfig) -> JsonValue:
    """Send the parcel of an order again."""
    return _on_desk(config, "reship_order", order_id=order_id)


@tool
def create_ticket(customer_id: str, topic: str, config: RunnableConfig) -> JsonValue:
    """Open a ticket for a colleague. Topics: return, repair, refund, identity, complaint, delete."""
    return _on_desk(config, "create_ticket", customer_id=customer_id, topic=topic)


@tool
def escalate(
    target_id: str, reason: str, config: RunnableConfig, tool_call_id: Annotated[str, InjectedToolCallId]
) -> Command[Any]:
    """Hand an order or a customer to a person at once. Reasons: address, missing, complaint."""
    done = _on_desk(config, "escalate", target_id=target_id, reason=reason)
    message = ToolMessage(json.dumps(done), tool_call_id=tool_call_id, name="escalate")
    return Command(update={"escalated": [target_id], "messages": [message]})


@tool
async def refund_payment(payment_id: str, amount: str, config: RunnableConfig) -> JsonValue:
    """Pay back an amount ("19.90") of a payment. The money is gone once this succeeds."""
    return await asyncio.to_thread(_on_desk, config, "refund_payment", payment_id=payment_id, amount=amount)


@tool
async def send_mail(customer_id: str, body: str, config: RunnableConfig) -> JsonValue:
    """Send a mail to a customer. It cannot be called back."""
    return await asyncio.to_thread(_on_desk, config, "send_mail", customer_id=customer_id, body=body)


@tool
def delete_customer(customer_id: str, config: RunnableConfig) -> JsonValue:
    """Delete a customer and their data for ever."""
    return _on_desk(config, "delete_customer", customer_id=customer_id)


LOCAL_TOOLS: tuple[BaseTool, ...] = (
    find_customer,
    list_orders,
    get_order,
    list_payments,
    refund_quote,
    summarise_case,
    update_address,
    cancel_order,
    reship_order,
    create_ticket,
    escalate,
    refund_payment,
    send_mail,
    delete_customer,
)
"""All tools but `track_parcel`, which comes from the carrier's MCP server (`parcel_tools`)."""

# An agent built with create_agent ends its run at a tool failure that nobody handles.
for _each in (*LOCAL_TOOLS, track_parcel):
    _each.handle_tool_error = True


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
            parcel = desk.track_parcel(arguments["order_id"])
        return [TextContent(type="text", text=json.dumps(parcel))], parcel

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
