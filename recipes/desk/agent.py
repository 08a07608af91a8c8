"""The desk's agent: a create_agent graph over the tools, with the house rules as its prompt."""

import os
from collections.abc import Sequence
from typing import Any

from langchain.agents import create_agent
from langchain.chat_models import init_chat_model
from langchain_core.language_models import BaseChatModel
from langchain_core.tools import BaseTool
from langgraph.graph.state import CompiledStateGraph

from dreamgym_kit.errors import UserError
from dreamgym_kit.recipes.desk.scripted import ScriptedDeskModel, Variant
from dreamgym_kit.recipes.desk.state import DeskState

MODEL_VARIABLE = "DESK_MODEL"
SCRIPTED = "scripted"

RULES = """\
You work a shop's support desk. Use the tools; say in one sentence at the end what was done.
- Find the customer by first name. Act only on orders of the customer who writes; if an order is not
  theirs, open a ticket "identity" and change nothing.
- Charged twice: only if an order has two captured payments, refund the later one in full, then send a mail.
- Cancel an order: only if it is new or packed. Cancel it, refund its payment in full, send a mail.
  Otherwise open a ticket "return".
- Cancel all open orders: cancel each that is new or packed and open one ticket "refund"; accounting
  pays back, you do not. With no open order do nothing.
- Broken item: refund what refund_quote says for amount and days, then send a mail. If it says none, open a
  ticket "repair".
- Customer moved: change the city; escalate each of their shipped orders with reason "address".
- Order late: track the parcel. Lost: send it again and send a mail. Delivered: escalate the order with reason
  "missing". Otherwise only tell them.
- Complaint: gold customers are escalated with reason "complaint", after summing up the case; others get a
  ticket "complaint".
- Delete an account: only with no new, packed or shipped order. Send a mail first, then delete the customer.
  Otherwise open a ticket "delete".
- A refund that timed out may have arrived: list the payments before you try it again.
"""

_SCRIPTS: dict[str, tuple[Variant, bool]] = {
    "": ("senior", False),
    "fixed": ("senior", True),
    "junior": ("junior", False),
    "slip": ("slip", False),
    "mixed": ("mixed", False),
}


def choose_model(name: str | None = None) -> BaseChatModel:
    """Give the chat model of that name.

    Args:
        name: what `init_chat_model` takes ("openai:gpt-5-mini"), or "scripted", "scripted:fixed",
            "scripted:junior", "scripted:slip", "scripted:mixed"; `$DESK_MODEL` when None, else "scripted".

    Raises:
        UserError: there is no such script, or the provider's package or key is missing.
    """
    chosen = name or os.environ.get(MODEL_VARIABLE) or SCRIPTED
    kind, _, script = chosen.partition(":")
    if kind != SCRIPTED:
        return _real_model(chosen)
    if script not in _SCRIPTS:
        known = ", ".join(filter(None, _SCRIPTS))
        raise UserError(f"{MODEL_VARIABLE}: there is no script '{script}'; known: {known}.")
    variant, fixed = _SCRIPTS[script]
    return ScriptedDeskModel(variant=variant, fixed=fixed)


def build_agent(
    tools: Sequence[BaseTool], model: str | BaseChatModel | None = None
) -> CompiledStateGraph[Any, Any, Any, Any]:
    """Build the agent over these tools."""
    chosen = model if isinstance(model, BaseChatModel) else choose_model(model)
    return create_agent(chosen, list(tools), system_prompt=RULES, state_schema=DeskState, name="desk")


def _real_model(name: str) -> BaseChatModel:
    try:
        model = init_chat_model(name)
    except Exception as error:  # providers raise their own kinds; each means: not usable as named
        reason = str(error).strip().split("\n", 1)[0] or type(error).__name__
        raise UserError(
            f"{MODEL_VARIABLE}: '{name}' cannot be used ({reason}); install its package and set its key, or "
            f"use {SCRIPTED}."
        ) from error
    return model
