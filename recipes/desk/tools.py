"""The agent's tools: each does one thing on the desk of its episode, for real.

A tool finds its desk by the tenant in the run's config. When the desk refuses, the agent is told so and
goes on; when no desk is open, that is the caller's error and ends the run. What each tool does to the
world is said in dreamgym.toml, next to this file.
"""

import asyncio
import json
from typing import Annotated, Any

from langchain_core.messages import ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, InjectedToolCallId, ToolException, tool
from langgraph.prebuilt import InjectedState
from langgraph.types import Command

from dreamgym_kit.plain import JsonValue
from dreamgym_kit.recipes.desk.database import DeskError
from dreamgym_kit.recipes.desk.money import refund_share
from dreamgym_kit.recipes.desk.world import TENANT, open_desk


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
    told = ToolMessage(json.dumps(done), tool_call_id=tool_call_id, name="escalate")
    return Command(update={"escalated": [target_id], "messages": [told]})


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
"""All tools but `track_parcel`, which comes from the carrier's MCP server (`mcp_server`)."""

# An agent built with create_agent ends its run at a tool failure that nobody handles.
for _each in (*LOCAL_TOOLS, track_parcel):
    _each.handle_tool_error = True
