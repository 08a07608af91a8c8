"""Which modules are code of the frameworks that agents are built with, or of this kit."""

import sys

from dreamgym_kit.adapters.langgraph.intercept.functions import of_library

_PACKAGES = frozenset({"deepagents", "dreamgym_kit", "langchain", "langgraph", "langsmith"})
_FAMILIES = ("langchain_", "langgraph_")


def is_framework(module: str) -> bool:
    """Whether a module, by its dotted name, is a framework's.

    A user may call a package `langgraph_shop`: of the packages that are named after a framework, only
    installed ones are the framework's.
    """
    top = module.partition(".")[0]
    if top in _PACKAGES:
        return True
    file = getattr(sys.modules.get(module), "__file__", None) if top.startswith(_FAMILIES) else None
    return isinstance(file, str) and of_library(file)
