"""Where the desk's graph is taken from: `dreamgym_kit.recipes.desk.graph:graph`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from dreamgym_kit.errors import require_extra

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel
    from langgraph.graph.state import CompiledStateGraph


@asynccontextmanager
async def graph(
    model: "str | BaseChatModel | None" = None,
) -> "AsyncIterator[CompiledStateGraph[Any, Any, Any, Any]]":
    """Give the desk's graph while its MCP session is up; one session serves all episodes.

    Args:
        model: a chat model, or the name of one; see `agent.choose_model`.

    Raises:
        MissingExtra: langchain or the MCP packages are not installed.
        UserError: the model cannot be used.
    """
    require_extra("demo", needed_by="the support desk")
    from dreamgym_kit.recipes.desk.agent import build_agent
    from dreamgym_kit.recipes.desk.tools import LOCAL_TOOLS, parcel_tools

    async with parcel_tools() as parcels:
        yield build_agent((*LOCAL_TOOLS, *parcels), model)


def simple_graph(model: "str | BaseChatModel | None" = None) -> "CompiledStateGraph[Any, Any, Any, Any]":
    """Give the same agent without MCP: `track_parcel` is a plain tool. To be run async."""
    require_extra("demo", needed_by="the support desk")
    from dreamgym_kit.recipes.desk.agent import build_agent
    from dreamgym_kit.recipes.desk.tools import LOCAL_TOOLS, track_parcel

    return build_agent((*LOCAL_TOOLS, track_parcel), model)
