"""Which arguments of a tool the framework injected: the model did not give them and must not see them.

Newer langchain-core says so itself (`_filter_injected_args`, which its own callbacks use); for 1.0 and
1.1 the same rule is read from the schema's annotations.
"""

from collections.abc import Mapping
from typing import Any

from langchain_core.tools import BaseTool
from langchain_core.tools.base import FILTERED_ARGS, get_all_basemodel_annotations

try:
    from langchain_core.tools.base import _is_injected_arg_type
except ImportError:  # then the framework's own filter is there
    _is_injected_arg_type = None  # type: ignore[assignment]


def without_injected(tool: BaseTool, passed: dict[str, Any]) -> Mapping[str, Any]:
    """The arguments that the model gave."""
    own = getattr(type(tool), "_filter_injected_args", None)
    if own is not None:
        kept: Mapping[str, Any] = own(tool, passed)
        return kept
    hidden = _injected_names(tool)
    return {
        name: value
        for name, value in passed.items()
        if name not in hidden and not type(value).__module__.startswith("langgraph.")
    }


def _injected_names(tool: BaseTool) -> set[str]:
    names = set(FILTERED_ARGS)
    schema = tool.args_schema
    if schema is None or isinstance(schema, dict) or _is_injected_arg_type is None:
        return names
    return names | {
        name for name, kind in get_all_basemodel_annotations(schema).items() if _is_injected_arg_type(kind)
    }
