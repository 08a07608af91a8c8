"""Puts the gate into the framework's classes, for the whole process, and takes it out again.

Installed and idle it costs one attribute read a call. It has to stand before the user's module is imported
only for what that module captures while it is imported; tools themselves are gated in any order. `uninstall`
leaves every class entry and every function as it was. `dreaming_process` makes the process one that dreams:
gate in, guard up, nothing of the kit's own phoning home.
"""

import functools
import inspect
import os
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.tools import BaseTool, StructuredTool, Tool

from dreamgym_kit.adapters.langgraph.analysis.gc_objects import Living
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
)
from dreamgym_kit.adapters.langgraph.intercept.foreign_names import check_foreign_names
from dreamgym_kit.adapters.langgraph.intercept.functions import hook, hook_twins, met_again, unhook_all
from dreamgym_kit.adapters.langgraph.intercept.mcp import guard_late_imports, guard_mcp_sessions
from dreamgym_kit.adapters.langgraph.intercept.memory import guard_memory, no_llm_cache, patch_memory
from dreamgym_kit.adapters.langgraph.intercept.patches import (
    PatchSet,
    guard_late_classes,
    is_ours,
    plain_wrapper,
    subclasses,
)
from dreamgym_kit.adapters.langgraph.intercept.real_calls import hear_interrupts
from dreamgym_kit.adapters.langgraph.intercept.threads import guard_threads
from dreamgym_kit.adapters.langgraph.intercept.tools import (
    LEAVES,
    ToolAttributes,
    guard_runs,
    guard_tool_class,
)
from dreamgym_kit.guard import egress
from dreamgym_kit.guard.connections import foreign_connections
from dreamgym_kit.guard.thread_owners import acting, guarded
from dreamgym_kit.routing.effects import HEARS_MARKS
from dreamgym_kit.routing.process import PROCESS, current, holding, keep_stray, live_sessions
from dreamgym_kit.routing.router import Mode
from dreamgym_kit.routing.session import Session
from dreamgym_kit.settings.schema import Settings

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
        "_agenerate_with_cache": uncached,
        "agenerate": stopping_async,
    }
    for name, wrap in wrappers.items():
        real = BaseChatModel.__dict__.get(name)
        if real is not None:
            patches.replace(BaseChatModel, name, wrap(real))


_HOOKS = ((sys, "excepthook"), (sys, "unraisablehook"), (sys, "displayhook"), (threading, "excepthook"))
_TRACING = ("LANGSMITH_TRACING", "LANGSMITH_TRACING_V2", "LANGCHAIN_TRACING", "LANGCHAIN_TRACING_V2")


@contextmanager
def dreaming_process(
    settings: Settings, scratch: Path, *, writable: Sequence[Path] = ()
) -> Iterator[list[str]]:
    """Arm gate and guard for the block; gives what a person should know about doors already open.

    To be entered before the user's module is imported; `simulate` does so in a fresh process.

    After the block both are down for the caller's own code. What a task or thread does that an episode left
    running is refused for the life of the process.

    Args:
        settings: `[guard]` says what is allowed besides the kit's own files.
        scratch: where the agent's code may write; also its temporary folder.
        writable: more files and folders of the run itself.
    """
    egress.refuse_uvloop()
    install()
    warnings = [
        f"open before the dream, so C libraries can use it: {connection}"
        for connection in foreign_connections()
    ]
    scratch.mkdir(parents=True, exist_ok=True)
    with _kept_to_itself(scratch), guarded(), holding():
        egress.arm(_allowance(settings, scratch, *writable), _latch, _owner)
        try:
            with no_llm_cache():
                yield warnings
        finally:
            egress.disarm()


@contextmanager
def watched_loading(settings: Settings) -> Iterator[list[str]]:
    """Note what loading a graph does to the outside, which a dream would refuse; the list fills meanwhile.

    Only noted: a module that connects as it is imported has to be looked at too. Tools and chat models
    are refused as in a dream, since a person who looks at a graph did not ask for it to be run.
    """
    install()
    noted: list[str] = []
    with tempfile.TemporaryDirectory(prefix="dreamgym-look-") as folder, _kept_to_itself(Path(folder)):
        try:
            with holding(), egress.watching(_allowance(settings, Path(folder))) as trips:
                yield noted
        finally:
            noted += dict.fromkeys(trip.message for trip in trips)


def _allowance(settings: Settings, *writable: Path) -> egress.Allowance:
    return egress.Allowance(
        hosts=frozenset(settings.guard.allow_hosts),
        paths=(*writable, *(settings.resolve(path) for path in settings.guard.allow_paths)),
        commands=settings.guard.allow_commands,
    )


@contextmanager
def _kept_to_itself(scratch: Path) -> Iterator[None]:
    """No tracing of the framework's own, temporary files in `scratch`, hooks of the process put back."""
    before = {name: os.environ.get(name) for name in (*_TRACING, "TMPDIR")}
    temporary, hooks = tempfile.tempdir, [(owner, name, getattr(owner, name)) for owner, name in _HOOKS]
    for name in _TRACING:
        os.environ.pop(name, None)
    os.environ["TMPDIR"] = tempfile.tempdir = str(scratch)
    try:
        yield
    finally:
        tempfile.tempdir = temporary
        for owner, name, hook_before in hooks:  # one that an episode put in would act for the caller's code
            setattr(owner, name, hook_before)
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _owner() -> Session | None:
    """The dream that the running context belongs to."""
    session = current.get()
    return session if session is not None and session.mode is Mode.DREAM else None


def _latch(trip: egress.Trip) -> None:
    """A refusal of the guard ends the episode it happened in, whatever the agent makes of the exception.

    One that belongs to no episode, or to one that has ended and was told of, is told of with the run.
    """
    why = trip.message or f"{trip.event} {trip.target}"
    owner = egress.owner()
    if owner is None:
        latch_unowned(why)
    elif isinstance(owner, Session) and (owner.open or acting.get()):
        owner.latch(why)
    else:
        keep_stray(why)


def latch_unowned(why: str) -> None:
    """Keep a refusal of which nobody knows whose it is: the only open episode's, else the run's."""
    owners = live_sessions()
    if len(owners) == 1:
        owners[0].latch(why)
    else:
        keep_stray(why)
