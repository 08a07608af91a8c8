"""The gate at an MCP client: tools that code calls on the session itself, past every LangChain tool.

The connection is open already, so the egress guard sees nothing of such a call. What of the session a
tool's own body uses is the tool's: the gate has decided about that call. The functions keep their
identity and get other code, so a method that was bound before the gate stood meets it as well. Modules of
the foreign list that are imported later are met as they are loaded.
"""

import inspect
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, NamedTuple

from dreamgym_kit.adapters.langgraph.intercept.call_context import config_here, running, session_key
from dreamgym_kit.adapters.langgraph.intercept.foreign_names import (
    FOREIGN,
    KNOWN,
    Foreign,
    check_foreign_names,
    entry,
)
from dreamgym_kit.adapters.langgraph.intercept.patches import PatchSet, reroute
from dreamgym_kit.errors import UserError
from dreamgym_kit.routing.process import PROCESS, current, find
from dreamgym_kit.settings import advice
from dreamgym_kit.types import Effect


class _Held(NamedTuple):
    """One function that tells us before it runs."""

    real: types.FunctionType
    called: Callable[[inspect.BoundArguments], str | None]
    signature: inspect.Signature


_HELD: dict[int, _Held] = {}  # by id of the function


def guard_mcp_sessions(patches: PatchSet) -> None:
    """Refuse tool calls on MCP sessions in dreams, in what is loaded of the package; again does nothing."""
    for foreign in FOREIGN:
        called = _CALLED.get(foreign.method)
        function = entry(foreign) if called is not None else None
        if called is not None and function is not None and id(function) not in _HELD:
            _hold(patches, foreign, function, called)


def guard_late_imports(patches: PatchSet) -> None:
    """Meet what is imported later: checked and held before anybody can use it."""

    def met(module: str) -> None:
        try:
            check_foreign_names(just_loaded=module)
            guard_mcp_sessions(patches)
        except UserError as error:
            session = current.get()
            if session is not None and not session.mode.bare:
                session.refuse(str(error))
            raise

    watch = LateImports(met)
    sys.meta_path.insert(0, watch)
    patches.on_undo(lambda: sys.meta_path.remove(watch) if watch in sys.meta_path else None)


def _hold(
    patches: PatchSet, foreign: Foreign, function: Any, called: Callable[[inspect.BoundArguments], str | None]
) -> None:
    if not inspect.iscoroutinefunction(function) or not isinstance(function, types.FunctionType):
        raise UserError(
            f"{foreign.package}: {foreign} is no coroutine function any more: its calls could not be held. "
            "Install a version that docs/safety.md lists, or a newer dreamgym-kit. Nothing was run."
        )
    number, signature = id(function), inspect.signature(function)

    def register(real: types.FunctionType, put_back: Callable[[], None]) -> None:
        _HELD[number] = _Held(real, called, signature)

        def undo() -> None:
            put_back()
            del _HELD[number]

        patches.on_undo(undo)

    reroute(function, f"{__name__}:enter", number, register)


async def enter_async(number: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Where calls of the held functions arrive."""
    held = _HELD[number]
    if PROCESS.armed or current.get() is not None:
        name = held.called(held.signature.bind(*args, **kwargs))
        if name is not None:
            _check(name)
    return await held.real(*args, **kwargs)


def _typed(call: inspect.BoundArguments) -> str | None:
    """`send_request` with a request object; SDK 1.x wraps it in a root model."""
    request = call.arguments["request"]
    asked = getattr(request, "root", request)
    if getattr(asked, "method", None) != "tools/call":
        return None
    return str(getattr(getattr(asked, "params", None), "name", "a tool"))


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
    known = (entry(foreign) for foreign in FOREIGN if foreign.name.endswith("request_ctx"))
    return any(foreign is not None and foreign.get(None) is not None for foreign in known)


_CALLED: dict[str, Callable[[inspect.BoundArguments], str | None]] = {
    "send_request": _typed,
    "send_raw_request": _raw,
    "call_tool": _served,
}
"""By method: how the tool is found that a call asks for; None where it asks for none."""


def _check(name: str) -> None:
    body: Any = running()
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
        packages = {package.replace("-", "_") for package in KNOWN}
        self._names = packages | {foreign.module for foreign in FOREIGN}
        self._then = then

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """As the other finders find it, with a loader that tells when it is done."""
        if fullname not in self._names:
            return None
        others = (finder for finder in list(sys.meta_path) if finder is not self)
        found = (finder.find_spec(fullname, path, target) for finder in others)
        spec = next((foreign for foreign in found if foreign is not None), None)
        if spec is not None and spec.loader is not None:
            self._tell_after(spec.loader)
        return spec

    def _tell_after(self, loader: Any) -> None:
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            self._then(module.__name__)

        loader.exec_module = exec_module
