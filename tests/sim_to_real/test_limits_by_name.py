"""Limits are by name: one of a name that no tool has would be none, and is refused before anything runs."""

from typing import Any

import pytest
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from sim_to_real.till import Till, settings_with

from dreamgym_kit.adapters.langgraph.analysis.inspection import GraphInspection, inspect_compiled
from dreamgym_kit.adapters.langgraph.analysis.references import check_effects
from dreamgym_kit.errors import UnknownName
from dreamgym_kit.settings.schema import Settings


def facts(settings: Settings) -> GraphInspection:
    """Of the graph alone: tools that other tests left alive in this process are none of its."""
    found = inspect_compiled(graph(), settings)
    found.tools = [spec for spec in found.tools if spec.name in found.own]
    return found


def graph() -> Any:
    builder = StateGraph(MessagesState)
    builder.add_node("tools", ToolNode(list(Till().tools().values())))
    builder.add_edge(START, "tools")
    return builder.compile()


@pytest.mark.parametrize(
    "limits",
    [
        {"max_calls_per_tool": {"set_prise": 3}},
        {"rate_per_tool": {"set_prise": 0.2}},
        {"max_calls_per_tool": {"list_*": 9}},
        {"auto_approve": ("set_prise",)},
    ],
    ids=["most", "rate", "pattern", "unheld"],
)
def test_a_limit_of_a_tool_that_the_graph_lacks_is_refused(limits: dict[str, Any]) -> None:
    settings = settings_with(**limits)
    with pytest.raises(UnknownName, match=r"tool '(set_prise|list_\*)' is not in the graph"):
        check_effects(facts(settings), settings)


def test_limits_by_exact_names_and_patterns_that_fit_are_taken() -> None:
    settings = settings_with(
        max_calls_per_tool={"set_price": 3, "*": 9}, rate_per_tool={"set_*": 1.0}, auto_approve=("set_price",)
    )
    check_effects(facts(settings), settings)
