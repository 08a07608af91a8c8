"""A graph's line-up as `dreamgym.lock` has it, and where that file stands."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from langchain_core.tools import BaseTool

from dreamgym_kit.adapters.langgraph.analysis.gc_objects import closure_of
from dreamgym_kit.adapters.langgraph.analysis.tool_bodies import files_of
from dreamgym_kit.guard import egress
from dreamgym_kit.rollout.tool_lock import (
    LOCK_FILE,
    DecidedBy,
    LockDiffers,
    LockedTool,
    add_to_lock,
    appeared,
    check_lock,
    locked_tool,
    read_lock,
    tool_digest,
)
from dreamgym_kit.settings.load import in_ci
from dreamgym_kit.settings.schema import Settings
from dreamgym_kit.types import Effect, Episode, ToolSpec


class Locked(Protocol):
    """What is known of a graph's tools."""

    tools: list[ToolSpec]
    locked: list[LockedTool]

    @property
    def judge(self) -> Any:
        """Its `met`: the lines of tools that calls brought, by name."""


_ANONYMOUS = "LangGraph"  # what LangGraph calls a graph that was compiled without a name


def locked(spec: ToolSpec, bearers: Iterable[object] = ()) -> LockedTool:
    """The line of a tool by what bears its name; of a function where no tool object does."""
    tool = next((bearer for bearer in bearers if isinstance(bearer, BaseTool)), None)
    if tool is None:
        return locked_tool(spec)
    metadata: Mapping[str, Any] = tool.metadata or {}
    nested = metadata.get("annotations")
    return locked_tool(spec, nested if isinstance(nested, Mapping) else metadata, server_of(tool))


def of_project(bearers: Iterable[object], folder: Path) -> bool:
    """Whether the code of a tool that no node holds is the project's: a process may hold those of several."""
    return any(Path(file).is_relative_to(folder) for bearer in bearers for file in files_of(bearer))


def server_of(tool: BaseTool) -> str:
    """The MCP server behind a tool of langchain-mcp-adapters: its name, host or command; else empty.

    Headers, query and arguments stay out: they may hold keys.
    """
    body: Any = tool.__dict__.get("coroutine")
    code = getattr(body, "__code__", None)
    if code is None or "langchain_mcp_adapters" not in code.co_filename:
        return ""
    values = dict(zip(code.co_freevars, closure_of(body), strict=False))
    if values.get("server_name"):
        return str(values["server_name"])
    connection = values.get("connection") or {}
    parts = urlsplit(str(connection.get("url", "")))
    return parts.netloc.rpartition("@")[2] or Path(str(connection.get("command", "mcp"))).name


def lock_of(graph: object, settings: Settings, store: object = None) -> tuple[Path, str] | None:
    """The lock of a graph, and the graph's name in it: beside dreamgym.toml, else beside the buffer's file.

    None if there is neither, or if a live graph has no name of its own: none would mean the same graph
    tomorrow.
    """
    name = graph if isinstance(graph, str) else getattr(graph, "name", None)
    if not isinstance(name, str) or name == _ANONYMOUS:
        return None
    buffer = getattr(store, "path", None)
    file = settings.path or (buffer if isinstance(buffer, Path) else None)
    return (file.parent / LOCK_FILE, name) if file is not None else None


def confirmed_in_lock(
    graph: object, settings: Settings, tools: Iterable[LockedTool], store: object
) -> frozenset[str]:
    """Names whose effect a person confirmed, and whose line in the lock is still right.

    Raises:
        UserError: the lock cannot be read.
    """
    place = lock_of(graph, settings, store)
    if place is None:
        return frozenset()
    file, name = place
    with egress.exempt():  # the kit's own file
        lines = (read_lock(file) or {}).get(name, {})
    return frozenset(
        tool.name
        for tool in tools
        if (line := lines.get(tool.name)) is not None
        and line.decided_by is DecidedBy.USER
        and (line.digest, line.effect) == (tool.digest, tool.effect)
    )


class LockWatch:
    """Compares a graph's tools with its lock: those there before a run, and those that appear in it.

    Attributes:
        notes: for the person who runs it.
    """

    def __init__(self, graph: object, settings: Settings, facts: Locked, store: object) -> None:
        """Compare the current tools with the lock.

        Raises:
            LockDiffers: a tool is new or changed.
            UserError: the lock cannot be read.
        """
        self.notes: list[str] = []
        self._place = lock_of(graph, settings, store)
        self._appeared: dict[str, LockedTool] = {}
        self._known_names: set[str] | None = None  # None: there is no lock to go by
        self._digests: dict[str, str] = {}  # of the lines of tools that are made at run time
        self._met: Mapping[str, LockedTool] = getattr(facts.judge, "met", {})
        self._first = False
        if self._place is None:
            if lock_of("", settings, store) is not None:
                self.notes = [f"no {LOCK_FILE}: the graph has no name. Give it one: compile(name=...)"]
            return
        file, name = self._place
        with egress.exempt():  # the kit's own file
            self._first = not (read_lock(file) or {}).get(name)
            self.notes = check_lock(file, name, facts.locked, writes=not in_ci())
            lines = (read_lock(file) or {}).get(name)
        if lines:
            named = {entry.name for entry in settings.functions.values() if entry.name}
            bare = {key: tool_digest(key, {}) for key in lines}  # all that older versions wrote of them
            self._digests = {
                key: line.digest
                for key, line in lines.items()
                if line.at_run_time and line.digest != bare[key]
            }
            self._known_names = {*lines, *settings.tools, *named, *(spec.name for spec in facts.tools)}

    def add(self, episode: Episode) -> bool:
        """Check the calls of an episode; return whether the lock lacks one of their tools."""
        if self._known_names is None or self._place is None:
            return False
        new = {
            name: replace(
                self._met.get(name) or LockedTool(name, tool_digest(name, {}), row.effect, DecidedBy.GUESS),
                effect=Effect.WRITE if row.effect.runs_in_dream else row.effect,
                decided_by=DecidedBy.GUESS if self._first else DecidedBy.NOBODY,
                at_run_time=True,
            )
            for row in episode.transitions
            if (name := row.call.tool) not in self._known_names or self._has_changed(name)
        }
        if not new:
            return False
        self._known_names |= new.keys()
        self._digests |= {name: tool.digest for name, tool in new.items()}
        self._appeared |= new
        if not in_ci():
            file, name = self._place
            with egress.exempt():
                add_to_lock(file, name, new.values())
        return not self._first

    def _has_changed(self, name: str) -> bool:
        """Whether a tool that is made at run time is not the one that the lock has under its name."""
        return name in self._digests and name in self._met and self._met[name].digest != self._digests[name]

    def check(self, directory: Path) -> None:
        """Refuse what appeared, once what had finished is kept in the run's `directory`.

        Raises:
            LockDiffers: it says what is new and how to accept it.
        """
        if not self._appeared or self._first or self._place is None:
            return
        file, name = self._place
        listed = "\n  ".join(map(appeared, self._appeared.values()))
        once = "Run it once where CI is not set, then" if in_ci() else "If that is right"
        once += ": dreamgym-kit init --update"
        raise LockDiffers(
            f"{file}: {name} made tools while it ran that are not in it, or are others. Their calls were "
            f"answered, and the run was stopped; what had finished is in {directory}.\n  {listed}\n{once}"
        )
