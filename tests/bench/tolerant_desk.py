"""The desk's agent as one has it in production: the model hears of a tool that failed, and may try again."""

from collections.abc import Awaitable, Callable
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import wrap_tool_call
from langchain_core.messages import ToolMessage

from dreamgym_kit.recipes.desk.agent import RULES, DeskState, choose_model
from dreamgym_kit.recipes.desk.tools import LOCAL_TOOLS, track_parcel


@wrap_tool_call
async def told(request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
    """Give a failure to the model instead of ending the run with it."""
    try:
        return await handler(request)
    except Exception as error:  # whatever a tool may fail with
        return ToolMessage(str(error), tool_call_id=request.tool_call["id"], status="error")


def graph() -> Any:
    """The graph, with the scripted model that a policy stands in for."""
    return create_agent(
        choose_model("scripted"),
        [*LOCAL_TOOLS, track_parcel],
        system_prompt=RULES,
        state_schema=DeskState,
        middleware=[told],
        name="desk",
    )
