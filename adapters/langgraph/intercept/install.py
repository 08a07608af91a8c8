"""Puts the gate into the framework's classes, for the whole process, and takes it out again.

Installed and idle it costs one attribute read a call. It has to stand before the user's module is imported
only for what that module captures while it is imported; tools themselves are gated in any order. `uninstall`
leaves every class entry and every function as it was. `dreaming_process` makes the process one that dreams:
gate in, guard up, nothing of the kit's own phoning home.

The gate stands at MCP clients, too: tools that code calls on the session itself, past every LangChain tool.
Its connection is open already, so the egress guard sees nothing of such a call. What of the session a tool's
own body uses is the tool's: the gate has decided about that call. The functions keep their identity and get
other code, so a method that was bound before the gate stood meets it as well. Modules of the foreign list
that are imported later are met as they are loaded.
"""

import functools
import inspect
import io
import os
import sys
import tempfile
import threading
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.tools import BaseTool, StructuredTool, Tool

from dreamgym_kit.adapters.langgraph.analysis.gc_objects import Living
from dreamgym_kit.adapters.langgraph.intercept.bound_names import (
    HOLDINGS,
    hook_bodies,
    hook_marked,
    of_framework,
)
from dreamgym_kit.adapters.langgraph.intercept.call_context import config_here, running, session_key
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
from dreamgym_kit.adapters.langgraph.intercept.foreign_names import (
    FOREIGN,
    TESTED_SERIES,
    Foreign,
    check_foreign_names,
    entry,
)
from dreamgym_kit.adapters.langgraph.intercept.functions import (
    hook,
    hook_remade,
    hook_twins,
    met_again,
    unhook_all,
)
from dreamgym_kit.adapters.langgraph.intercept.memory import guard_memory, no_llm_cache, patch_memory
from dreamgym_kit.adapters.langgraph.intercept.patches import (
    PatchSet,
    guard_late_classes,
    is_ours,
    plain_wrapper,
    reroute,
    subclasses,
)
from dreamgym_kit.adapters.langgraph.intercept.real_calls import hear_interrupts
from dreamgym_kit.adapters.langgraph.intercept.registration import hook_loaded
from dreamgym_kit.adapters.langgraph.intercept.threads import guard_threads
from dreamgym_kit.adapters.langgraph.intercept.tools import (
    LEAVES,
    ToolAttributes,
    guard_runs,
    guard_tool_class,
)
from dreamgym_kit.errors import UserError
from dreamgym_kit.guard import egress
from dreamgym_kit.guard.connections import foreign_connections
from dreamgym_kit.guard.thread_owners import acting, guarded
from dreamgym_kit.routing.effects import HEARS_MARKS
from dreamgym_kit.routing.process import PROCESS, current, find, holding, keep_stray, live_sessions
from dreamgym_kit.routing.router import Mode
from dreamgym_kit.routing.session import Session
from dreamgym_kit.settings import advice
from dreamgym_kit.settings.schema import Settings
from dreamgym_kit.types import Effect

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
    PROCESS.on_open.append(hook_remade)
    patches.on_undo(lambda: PROCESS.on_open.remove(hook_remade))


def uninstall() -> None:
    """Take the gate out.

    Raises:
        RuntimeError: a session is open, or about to be.
    """
    global _PATCHES
    if PROCESS.sessions or PROCESS.open_dreams:
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
    for bound in living.bindings():
        arguments = getattr(bound, "kwargs", {})
        if "ls_structured_output_format" in arguments:
            HOLDINGS.add_bound(bound.bound, arguments.get("tools", ()), structured=True)
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
    """A module that is loaded again makes its functions anew; those of hooked ones are hooked at once.

    One that an episode loads was not there when the graph's modules were looked through.
    """
    real = SourceFileLoader.exec_module

    @functools.wraps(real)
    def exec_module(self: Any, module: Any) -> None:
        real(self, module)
        met_again(getattr(module, "__file__", None))
        if egress.armed() and egress.owner() is not None:
            hook_loaded(module)

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


_HOOKS = (
    *((sys, f"{name}hook") for name in ("except", "unraisable", "display", "breakpoint")),
    *((sys, "stdout"), (sys, "stderr"), (threading, "excepthook")),
)
_REPLACED: list[Any] = []
_TRACING = ("LANGSMITH_TRACING", "LANGSMITH_TRACING_V2", "LANGCHAIN_TRACING", "LANGCHAIN_TRACING_V2")


@contextmanager
def dreaming_process(
    settings: Settings, scratch: Path, *, writable: Sequence[Path] = ()
) -> Iterator[list[str]]:
    """Arm gate and guard for the block; yield warnings about connections that were open before.

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
    with _isolated(scratch), guarded(), holding():
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
    with tempfile.TemporaryDirectory(prefix="dreamgym-look-") as folder, _isolated(Path(folder)):
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
def _isolated(scratch: Path) -> Iterator[None]:
    """Disable the framework's tracing, keep temporary files in `scratch`, and restore the process's hooks."""
    before = {name: os.environ.get(name) for name in (*_TRACING, "TMPDIR")}
    temporary, hooks = tempfile.tempdir, [(owner, name, getattr(owner, name)) for owner, name in _HOOKS]
    for name in _TRACING:
        os.environ.pop(name, None)
    os.environ["TMPDIR"] = tempfile.tempdir = str(scratch)
    try:
        yield
    finally:
        tempfile.tempdir = temporary
        for owner, name, hook_before in hooks:  # a hook of an episode would run for the caller's code
            replaced = getattr(owner, name, None)
            setattr(owner, name, hook_before)
            if replaced is not hook_before:
                _keep_open(replaced, hook_before)
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _keep_open(replaced: Any, before: Any) -> None:
    """A stream that wraps the process's own is written out; at its end it would close that."""
    _REPLACED.append(replaced)
    if type(replaced) is io.TextIOWrapper and replaced.buffer is getattr(before, "buffer", None):
        replaced.flush()


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


class _Watched(NamedTuple):
    """A function whose calls are checked before it runs."""

    real: types.FunctionType
    called: Callable[[inspect.BoundArguments], str | None]
    signature: inspect.Signature


_WATCHED: dict[int, _Watched] = {}  # by id of the function


def guard_mcp_sessions(patches: PatchSet) -> None:
    """Refuse tool calls on MCP sessions in dreams, in the loaded modules of the package; safe to repeat."""
    for foreign in FOREIGN:
        called = _CALLED.get(foreign.method)
        function = entry(foreign) if called is not None else None
        if called is not None and function is not None and id(function) not in _WATCHED:
            _watch_function(patches, foreign, function, called)


def guard_late_imports(patches: PatchSet) -> None:
    """Check and guard modules that are imported later, before any code can use them."""

    def met(module: str) -> None:
        try:
            check_foreign_names(just_loaded=module)
            guard_mcp_sessions(patches)
            egress.announce(module)
        except UserError as error:
            session = current.get()
            if session is not None and not session.mode.bare:
                session.refuse(str(error))
            raise

    watch = LateImports(met)
    sys.meta_path.insert(0, watch)
    patches.on_undo(lambda: sys.meta_path.remove(watch) if watch in sys.meta_path else None)


def _watch_function(
    patches: PatchSet, foreign: Foreign, function: Any, called: Callable[[inspect.BoundArguments], str | None]
) -> None:
    if not inspect.iscoroutinefunction(function) or not isinstance(function, types.FunctionType):
        raise UserError(
            f"{foreign.package}: {foreign} is no coroutine function any more: its calls could not be held. "
            "Install a version that docs/safety.md lists, or a newer dreamgym-kit. Nothing was run."
        )
    number, signature = id(function), inspect.signature(function)

    def register(real: types.FunctionType, put_back: Callable[[], None]) -> None:
        _WATCHED[number] = _Watched(real, called, signature)

        def undo() -> None:
            put_back()
            del _WATCHED[number]

        patches.on_undo(undo)

    reroute(function, f"{__name__}:enter", number, register)


async def enter_async(number: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Receive calls of the watched functions."""
    watched = _WATCHED[number]
    if PROCESS.armed or current.get() is not None:
        name = watched.called(watched.signature.bind(*args, **kwargs))
        if name is not None:
            _check_mcp_call(name)
    return await watched.real(*args, **kwargs)


def _typed(call: inspect.BoundArguments) -> str | None:
    """Return the tool of a `send_request` with a request object; SDK 1.x wraps it in a root model."""
    request = call.arguments["request"]
    typed = getattr(request, "root", request)
    if getattr(typed, "method", None) != "tools/call":
        return None
    return str(getattr(getattr(typed, "params", None), "name", "a tool"))


def _raw(call: inspect.BoundArguments) -> str | None:
    """`send_raw_request` with the method's name."""
    if call.arguments["method"] != "tools/call":
        return None
    params = call.arguments.get("params")
    return str(params.get("name", "a tool")) if isinstance(params, Mapping) else "a tool"


def _served(call: inspect.BoundArguments) -> str | None:
    """`call_tool` of a server: what it does for a request of a client was decided where that was sent."""
    return None if _serves(call) else str(call.arguments["name"])


def _serves(call: inspect.BoundArguments) -> bool:
    if call.arguments.get("context") is not None:  # SDK 2.x passes it on for requests alone
        return True
    contexts = (entry(foreign) for foreign in FOREIGN if foreign.name.endswith("request_ctx"))
    return any(foreign is not None and foreign.get(None) is not None for foreign in contexts)


_CALLED: dict[str, Callable[[inspect.BoundArguments], str | None]] = {
    "send_request": _typed,
    "send_raw_request": _raw,
    "call_tool": _served,
}
"""By method: how the tool is found that a call asks for; None where it asks for none."""


def _check_mcp_call(name: str) -> None:
    body: Any = None if isinstance(running(), BaseChatModel) else running()
    if body is not None and not _is_pure(body):
        return
    session = find(session_key(config_here()), f"MCP tool '{name}'")
    if session is None or session.mode.bare:
        return
    if body is not None:
        session.refuse(
            f"'{body.name}', whose effect is pure, called the MCP tool '{name}'; that did not run. What "
            f"asks a server is not pure; {advice.format_lines(advice.tool_answered(body.name, 'read'))}"
        )
    session.refuse(
        f"the MCP tool '{name}' was called on its client session; it did not run. Call it through the "
        "tools of langchain-mcp-adapters or langchain.mcp, or name the function that calls it; "
        f"{advice.format_lines(advice.function_answered(advice.SOME_FUNCTION, name=name))}"
    )


def _is_pure(body: Any) -> bool:
    """Whether the running body may compute only: no guard sees it send over a connection that is open."""
    session = current.get()
    return session is not None and session.policy.spec(body.name, body).effect is Effect.PURE


class LateImports(MetaPathFinder):
    """Calls `then` with the name of a module or package of the list once that has been loaded."""

    def __init__(self, then: Callable[[str], None]) -> None:
        packages = {package.replace("-", "_") for package in TESTED_SERIES}
        self._names = packages | {foreign.module for foreign in FOREIGN}
        self._then = then

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the other finders' spec, with a loader that reports when it is done."""
        if fullname not in self._names:
            return None
        others = (finder for finder in list(sys.meta_path) if finder is not self)
        specs = (finder.find_spec(fullname, path, target) for finder in others)
        spec = next((foreign for foreign in specs if foreign is not None), None)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            self._then(module.__name__)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
