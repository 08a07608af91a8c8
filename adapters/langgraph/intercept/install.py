"""Puts the gate into the framework's classes, for the whole process, and takes it out again.

Installed and idle it costs one attribute read a call. It has to stand before the user's module is
imported only for what that module captures while it is imported; tools themselves are gated in any
order. `uninstall` leaves every class entry and every function as it was.
"""

import functools
import inspect
from importlib.machinery import SourceFileLoader
from typing import Any

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.tools import BaseTool, StructuredTool, Tool

from dreamgym_kit.adapters.langgraph.analysis.gc_objects import Living
from dreamgym_kit.adapters.langgraph.episode.isolation import guard_memory
from dreamgym_kit.adapters.langgraph.intercept.bound_names import (
    HOLDINGS,
    hook_bodies,
    hook_marked,
    of_framework,
)
from dreamgym_kit.adapters.langgraph.intercept.chat_models import (
    ASYNC_STREAMS,
    STREAMS,
    binding,
    generating,
    generating_async,
    stopping_async,
    streaming,
    streaming_async,
    uncached,
    uncached_async,
)
from dreamgym_kit.adapters.langgraph.intercept.entry_points import LEAVES
from dreamgym_kit.adapters.langgraph.intercept.foreign_names import check_foreign_names
from dreamgym_kit.adapters.langgraph.intercept.functions import hook, hook_twins, met_again, unhook_all
from dreamgym_kit.adapters.langgraph.intercept.interrupts import hear_interrupts
from dreamgym_kit.adapters.langgraph.intercept.mcp import guard_late_imports, guard_mcp_sessions
from dreamgym_kit.adapters.langgraph.intercept.memory import patch_memory
from dreamgym_kit.adapters.langgraph.intercept.patches import (
    PatchSet,
    guard_late_classes,
    is_ours,
    plain_wrapper,
    subclasses,
)
from dreamgym_kit.adapters.langgraph.intercept.threads import guard_threads
from dreamgym_kit.adapters.langgraph.intercept.tool_attributes import ToolAttributes
from dreamgym_kit.adapters.langgraph.intercept.tools import guard_runs, guard_tool_class
from dreamgym_kit.guard import egress
from dreamgym_kit.routing.effects import HEARS_MARKS
from dreamgym_kit.routing.process import PROCESS

_PATCHES: PatchSet | None = None


def installed() -> bool:
    """Whether the gate stands in this process."""
    return _PATCHES is not None


def install() -> None:
    """Put the gate in; doing it twice does nothing.

    Raises:
        UserError: a package is of a version that the gate does not know, or lacks what it is put into.
    """
    global _PATCHES
    check_foreign_names()
    if _PATCHES is not None:
        return
    _PATCHES = patches = PatchSet()
    for owner in subclasses(BaseTool):
        guard_tool_class(patches, owner)
    for owner in (StructuredTool, Tool):
        patches.replace(owner, "func", ToolAttributes("func", is_async=False))
        patches.replace(owner, "coroutine", ToolAttributes("coroutine", is_async=True))
    for owner in subclasses(BaseChatModel):
        _guard_model_class(patches, owner)
    guard_late_classes(patches, BaseTool, guard_tool_class)
    guard_late_classes(patches, BaseChatModel, _guard_model_class)
    guard_runs(patches)
    _guard_model_entries(patches)
    hear_interrupts(patches)
    guard_memory(patches)
    patch_memory(patches)
    guard_threads(patches)
    guard_mcp_sessions(patches)
    _guard_loading(patches)
    guard_late_imports(patches)
    HEARS_MARKS.append(hook_marked)
    patches.on_undo(lambda: HEARS_MARKS.remove(hook_marked))


def uninstall() -> None:
    """Take the gate out.

    Raises:
        RuntimeError: a session is open, or about to be.
    """
    global _PATCHES
    if PROCESS.sessions or PROCESS.held:
        raise RuntimeError("the gate cannot be taken out while a session is open or a dream begins")
    unhook_all()
    HOLDINGS.clear()
    if _PATCHES is not None:
        _PATCHES.undo()
        _PATCHES = None
    egress.put_back()


def hook_tool_functions(living: Living | None = None) -> None:
    """Put the gate into the functions under all live tools too, so that one captured early is met.

    Leaves that were put into a class since the gate was installed are met here as well, and foreign names are
    looked at once more: what the graph brought may be of a version that nobody tried. Who just looked gives
    `living`.
    """
    check_foreign_names()
    if _PATCHES is not None:
        guard_mcp_sessions(_PATCHES)
        for owner in subclasses(BaseTool):
            guard_tool_class(_PATCHES, owner)
            _hook_leaf_bodies(owner)
    living = living or Living()
    HOLDINGS.scan(living.tools())
    for tool in HOLDINGS.tools():
        hook_bodies(tool)
    hook_twins(living)


def _hook_leaf_bodies(owner: type) -> None:
    """The bodies of a user's tool class: a bound `_run` taken before the gate was there ends in one."""
    for name in LEAVES:
        body = getattr(owner.__dict__.get(name), "__wrapped__", None)
        if inspect.isfunction(body) and not of_framework(body) and not of_framework(owner):
            hook(body, owner.__name__, leaf=True)


def _guard_model_class(patches: PatchSet, owner: type) -> None:
    wrappers: dict[str, Any] = {
        "_generate": generating,
        "_agenerate": generating_async,
        "bind_tools": binding,
    }
    wrappers |= dict.fromkeys(STREAMS, streaming) | dict.fromkeys(ASYNC_STREAMS, streaming_async)
    for name, wrap in wrappers.items():
        real = owner.__dict__.get(name)
        # BaseChatModel's own leaves only delegate; `type(self)._stream == BaseChatModel._stream` must hold
        own = owner is not BaseChatModel or name == "bind_tools"
        if own and inspect.isfunction(real) and not is_ours(real):
            patches.replace(owner, name, wrap(real))


def _guard_loading(patches: PatchSet) -> None:
    """A module that is loaded again makes its functions anew; those of hooked ones are hooked at once."""
    real = SourceFileLoader.exec_module

    @functools.wraps(real)
    def exec_module(self: Any, module: Any) -> None:
        real(self, module)
        met_again(getattr(module, "__file__", None))

    patches.replace(SourceFileLoader, "exec_module", plain_wrapper(exec_module, real))


def _guard_model_entries(patches: PatchSet) -> None:
    wrappers = {
        "_generate_with_cache": uncached,
        "_agenerate_with_cache": uncached_async,
        "agenerate": stopping_async,
    }
    for name, wrap in wrappers.items():
        real = BaseChatModel.__dict__.get(name)
        if real is not None:
            patches.replace(BaseChatModel, name, wrap(real))
