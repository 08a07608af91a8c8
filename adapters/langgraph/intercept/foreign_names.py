"""Every name of other packages that the gate patches or relies on, and which versions of them are known.

Each fact stands here once: the gate takes from here what to patch, `doctor` and docs/safety.md what was
tried. Before anything runs, `check_foreign_names` looks whether all of it is still there. A name that
vanished would otherwise leave a door open without a word. Nothing is imported for it: what is not loaded
is looked at when it is (`mcp.LateImports`).
"""

import sys
from collections.abc import Iterator
from importlib import metadata
from importlib.machinery import PathFinder
from typing import Any, NamedTuple

from dreamgym_kit.errors import UserError
from dreamgym_kit.guard import egress

NEEDED, HELPS = "needed", "helps"

TESTED_SERIES: dict[str, tuple[str, ...]] = {
    "langchain-core": ("1",),
    "langgraph": ("1",),
    "langgraph-checkpoint": ("2", "3", "4"),
    "langchain": ("1",),
    "mcp": ("1", "2"),
    "langchain-mcp-adapters": ("0.3",),
    "fastmcp": ("3", "4"),
}
"""By package: the series that are known. A series is the major number; of 0.x the two numbers."""

_TOPS = {"langgraph-checkpoint": "langgraph.checkpoint"}  # else the package's own name
_SDK = "mcp"


class Pair(NamedTuple):
    """A series of the MCP SDK and one of a package over it, tried together in an environment of `.ci/env`."""

    environment: str
    sdk: str
    package: str
    series: str

    def __str__(self) -> str:
        return f"{_SDK} {self.sdk}.x with {self.package} {self.series}.x"


PAIRS = (
    Pair("mcp1", "1", "langchain-mcp-adapters", "0.3"),
    Pair("mcp1", "1", "fastmcp", "3"),
    Pair("mcp2", "2", "fastmcp", "4"),  # `langchain.mcp` stands on it
)


class Foreign(NamedTuple):
    """One name: where it is, and whether a dream can do without."""

    package: str
    module: str
    name: str  # "BaseTool.run"
    need: str = NEEDED
    series: tuple[str, ...] = ()  # the series of the package that have it; none named: every one

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"

    @property
    def method(self) -> str:
        """The last part of the name."""
        return self.name.rpartition(".")[2]


def _methods(package: str, module: str, owner: str, names: str, need: str = NEEDED) -> Iterator[Foreign]:
    return (Foreign(package, module, f"{owner}.{name}", need) for name in names.split())


def _both(names: str) -> str:
    return " ".join(f"{name} a{name}" for name in names.split())


_CORE, _TOOLS, _MODELS = (
    "langchain-core",
    "langchain_core.tools",
    "langchain_core.language_models.chat_models",
)
_POOLS = "multiprocessing.pool"
_CHECKPOINT, _STREAMED = "langgraph-checkpoint", "_stream_chat_model_events _astream_chat_model_events"
FOREIGN: tuple[Foreign, ...] = (
    *_methods(_CORE, _TOOLS, "BaseTool", "run arun _run _arun invoke ainvoke"),
    *_methods(_CORE, _TOOLS, "StructuredTool", "_run _arun"),
    *_methods(_CORE, _TOOLS, "Tool", "_run _arun"),
    *_methods(_CORE, _TOOLS, "BaseTool", "_filter_injected_args", HELPS),
    *_methods(_CORE, _MODELS, "BaseChatModel", "_generate _agenerate _stream _astream bind_tools"),
    *_methods(_CORE, _MODELS, "BaseChatModel", _STREAMED, HELPS),
    *_methods(_CORE, _MODELS, "BaseChatModel", "_generate_with_cache _agenerate_with_cache agenerate"),
    *_methods("langgraph", "langgraph.pregel", "Pregel", _both("stream get_state get_state_history")),
    *_methods("langgraph", "langgraph.pregel", "Pregel", _both("update_state bulk_update_state clear_cache")),
    Foreign("langgraph", "langgraph.pregel.remote", "RemoteGraph"),
    *_methods(
        _CHECKPOINT, "langgraph.store.base", "BaseStore", _both("batch get search put delete list_namespaces")
    ),
    *_methods(
        _CHECKPOINT,
        "langgraph.checkpoint.base",
        "BaseCheckpointSaver",
        _both("get get_tuple list put put_writes delete_thread"),
    ),
    *_methods(
        _CHECKPOINT,
        "langgraph.checkpoint.base",
        "BaseCheckpointSaver",
        _both("delete_for_runs copy_thread prune get_delta_channel_history"),
        HELPS,  # younger than the oldest version that is known
    ),
    *_methods(_CHECKPOINT, "langgraph.cache.base", "BaseCache", _both("get set clear")),
    Foreign(_SDK, "mcp.shared.session", "BaseSession.send_request", series=("1",)),
    Foreign(_SDK, "mcp.server.fastmcp.server", "FastMCP.call_tool", series=("1",)),
    Foreign(_SDK, "mcp.server.lowlevel.server", "request_ctx", series=("1",)),  # what a server works on
    Foreign(_SDK, "mcp.client.session", "ClientSession.send_request", series=("2",)),
    Foreign(_SDK, "mcp.shared.jsonrpc_dispatcher", "JSONRPCDispatcher.send_raw_request", series=("2",)),
    Foreign(_SDK, "mcp.shared.direct_dispatcher", "DirectDispatcher.send_raw_request", series=("2",)),
    Foreign(_SDK, "mcp.server.mcpserver.server", "MCPServer.call_tool", series=("2",)),
    Foreign("fastmcp", "fastmcp.server.server", "FastMCP.call_tool"),
    Foreign("fastmcp", "fastmcp.server.dependencies", "fastmcp_request_ctx", series=("4",)),
    Foreign("langchain-mcp-adapters", "langchain_mcp_adapters.tools", "_MCPToolExecutionError", HELPS),
    Foreign("langchain", "langchain.mcp.tools", "_MCPToolExecutionError", HELPS),
    Foreign("langgraph", "langgraph.types", "interrupt"),
    *_methods(_CORE, _TOOLS, "StructuredTool", "func coroutine"),
    *_methods(_CORE, _TOOLS, "Tool", "func coroutine"),
    Foreign("python", "concurrent.futures", "ThreadPoolExecutor.submit"),
    Foreign("python", "concurrent.futures", "Future.add_done_callback"),
    Foreign("python", "threading", "Thread.start"),
    Foreign("python", "concurrent.futures.thread", "_worker"),
    Foreign("python", "_thread", "start_new_thread"),
    *_methods("python", _POOLS, "Pool", "apply_async _map_async imap imap_unordered"),
    *_methods("python", _POOLS, "IMapIterator", "next __next__"),
    Foreign("python", _POOLS, "ApplyResult.get"),
    Foreign("python", "atexit", "register"),
    Foreign("python", "weakref", "finalize.__init__"),
    Foreign("python", "signal", "signal"),
    Foreign("python", "asyncio", "BaseEventLoop.call_at"),
    Foreign("python", "_frozen_importlib_external", "_LoaderBasics.exec_module"),
    Foreign("python", "os", "_exit"),
    Foreign("python", "_socket", "getaddrinfo"),
    *_methods("python", "_socket", "socket", "send sendall"),
    Foreign("python", "socket", "socket.sendfile"),
    *_methods("python", "ssl", "SSLSocket", "send write"),
    *(Foreign("python", module, name, HELPS) for module, name in egress.UNANNOUNCED),
    Foreign("python", "_posixsubprocess", "fork_exec", HELPS),  # not where programs are not forked
)


def methods_of(owner: str) -> tuple[str, ...]:
    """The methods of a class that stand in the list."""
    return tuple(foreign.method for foreign in FOREIGN if foreign.name.startswith(f"{owner}."))


def entry(foreign: Foreign) -> Any:
    """Return the entry of a loaded module under a name, in the named class itself; None: there is none."""
    owner: Any = sys.modules.get(foreign.module)
    for part in foreign.name.split("."):
        namespace = getattr(owner, "__dict__", {})
        owner = namespace.get(part) or namespace.get("__pydantic_fields__", {}).get(part)
    return owner


def loaded() -> dict[str, str]:
    """Return the listed packages that are imported, with their versions."""
    seen = {}
    for package in TESTED_SERIES:
        if _TOPS.get(package, package.replace("-", "_")) in sys.modules:
            try:
                seen[package] = metadata.version(package)
            except metadata.PackageNotFoundError:  # something else of that name
                if any(foreign.package == package and foreign.module in sys.modules for foreign in FOREIGN):
                    seen[package] = "of an unknown version"
    return seen


def series_of(package: str, version: str) -> str:
    """Return the tested series of a version; the version itself if it belongs to none."""
    return next((series for series in TESTED_SERIES[package] if version.startswith(f"{series}.")), version)


def check_foreign_names(*, just_loaded: str = "") -> None:
    """Refuse to go on if the gate cannot intercept an imported package; takes a few milliseconds.

    Args:
        just_loaded: a module that is whole although Python still calls it half-loaded.

    Raises:
        UserError: an imported package is of an untested series or pair, or lacks a needed name.
    """
    versions = loaded()
    for package, version in versions.items():
        if series_of(package, version) not in TESTED_SERIES[package]:
            raise UserError(
                f"{package} {version} is not known to this kit: its calls could not be held. "
                f"{_remedy(package)}. Nothing was run."
            )
    _check_pairs(versions)
    for foreign in missing(versions, just_loaded):
        if foreign.need == NEEDED:
            version = versions.get(foreign.package, ".".join(map(str, sys.version_info[:3])))
            raise UserError(
                f"{foreign.package} {version} has no {foreign}, by which this kit holds what runs: its calls "
                f"could not be held. {_remedy(foreign.package)}. Nothing was run."
            )


def missing(versions: dict[str, str], just_loaded: str = "") -> list[Foreign]:
    """What is not where it should be in the packages that are in use."""
    seen = []
    for foreign in FOREIGN:
        version = versions.get(foreign.package)
        if foreign.package != "python" and version is None:
            continue
        if (
            version is not None
            and foreign.series
            and series_of(foreign.package, version) not in foreign.series
        ):
            continue
        if not _is_there(foreign, just_loaded):
            seen.append(foreign)
    return seen


def _is_there(foreign: Foreign, just_loaded: str) -> bool:
    module = sys.modules.get(foreign.module)
    if module is not None:
        half = getattr(module.__spec__, "_initializing", False) and foreign.module != just_loaded
        return half or entry(foreign) is not None
    return _is_findable(foreign.module)  # met when it is loaded


def _is_findable(module: str) -> bool:
    """Whether there is such a module; unlike `importlib.util.find_spec` this imports no parent of it."""
    path, parts = None, module.split(".")
    for depth in range(1, len(parts) + 1):
        imported = sys.modules.get(".".join(parts[:depth]))
        if imported is not None:
            path = getattr(imported, "__path__", None)
            continue
        spec = PathFinder.find_spec(".".join(parts[:depth]), path)
        if spec is None:
            return False
        path = spec.submodule_search_locations
    return True


def _check_pairs(versions: dict[str, str]) -> None:
    if _SDK not in versions:
        return
    sdk = series_of(_SDK, versions[_SDK])
    for package in dict.fromkeys(pair.package for pair in PAIRS):
        version = versions.get(package)
        if version is None:
            continue
        tried = [pair for pair in PAIRS if pair.package == package]
        if (sdk, series_of(package, version)) not in {(pair.sdk, pair.series) for pair in tried}:
            raise UserError(
                f"{_SDK} {versions[_SDK]} with {package} {version} was never tried with this kit; tried: "
                f"{', '.join(map(str, tried))}. Install one of these. Nothing was run."
            )


def _remedy(package: str) -> str:
    if package == "python":
        return "Use a newer dreamgym-kit"
    versions = " or ".join(f"{series}.x" for series in TESTED_SERIES[package])
    return f"Install {package} {versions} as docs/safety.md lists them, or a newer dreamgym-kit"
