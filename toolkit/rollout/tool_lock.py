"""`dreamgym.lock`: the tools of each graph and their effects, as last accepted.

One line per tool, sorted by graph and name, so that a review shows what a change of the agent or of an MCP
server added. The digest covers name, argument schema and annotations, not descriptions, which change often
and decide nothing. A new or changed tool stops a run; `[tools]` in dreamgym.toml overrides the effects here.
"""

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from dreamgym_kit.canonical import digest
from dreamgym_kit.dream.json_values import without_keywords
from dreamgym_kit.errors import RunDirectoryError, UserError
from dreamgym_kit.rollout.atomic_files import write_atomically
from dreamgym_kit.types import Effect, ToolSpec

LOCK_FILE = "dreamgym.lock"
_HEAD = (
    "# Written by dreamgym-kit; commit it. Effects are changed in dreamgym.toml, guesses confirmed with\n"
    "# `dreamgym-kit init --confirm`, new and changed tools accepted with `dreamgym-kit init --update`.\n"
    "version = 1\n"
)
Lock = Mapping[str, Mapping[str, "LockedTool"]]
"""Lines by graph and tool."""

_DIGITS = 16  # of the digest: 64 bits, and a line that fits on a screen
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_PROSE = frozenset({"title", "description", "examples", "$comment"})


class DecidedBy(StrEnum):
    """The source of a tool's effect."""

    USER = "user"  # dreamgym.toml, or `init --confirm`
    AUTHOR = "author"  # `@effect` on the tool
    GUESS = "guess"  # by `init`; never `pure` or `control`
    NOBODY = "nobody"  # a run found it and was stopped; `init --update` makes it a guess


_BY_SOURCE = {"declared": DecidedBy.USER, "decorator": DecidedBy.AUTHOR}


class LockDiffers(UserError):
    """The graph's tools differ from the lock."""


@dataclass(frozen=True, slots=True)
class LockedTool:
    """One line.

    Attributes:
        name: a tool's name, or `module:function`.
        digest: digest of name, argument schema and annotations; see `tool_digest`.
        server: name, host or command of an MCP tool's server; else empty.
        at_run_time: the agent creates it during a run, after the graph is loaded.
    """

    name: str
    digest: str
    effect: Effect
    decided_by: DecidedBy
    server: str = ""
    at_run_time: bool = False

    def line(self) -> str:
        """Return the line in the file."""
        name = self.name if _BARE.fullmatch(self.name) else _text(self.name)
        server = f"server = {_text(self.server)}, " if self.server else ""
        later = ", at_run_time = true" if self.at_run_time else ""
        fields = f'{server}effect = "{self.effect}", decided_by = "{self.decided_by}"{later}'
        return f'{name} = {{ digest = "{self.digest}", {fields} }}'


def locked_tool(
    spec: ToolSpec, annotations: Mapping[str, object] | None = None, server: str = ""
) -> LockedTool:
    """Return the line of a current tool."""
    decided_by = _BY_SOURCE.get(spec.source, DecidedBy.GUESS)
    return LockedTool(
        spec.name, tool_digest(spec.name, spec.args_schema, annotations), spec.effect, decided_by, server
    )


def tool_digest(name: str, schema: Mapping[str, Any], annotations: Mapping[str, object] | None = None) -> str:
    """Return the digest of a tool's name, schema and annotations, without descriptions."""
    hints = {str(key): value for key, value in (annotations or {}).items() if isinstance(value, bool)}
    return digest([name, without_keywords(schema, _PROSE), hints])[:_DIGITS]


def read_lock(path: Path) -> Lock | None:
    """Return the lines of a lock; None if the file does not exist.

    Raises:
        UserError: the file is not a lock of this version, or a guess in it says `pure` or `control`.
    """
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read ({error}).") from None
    try:
        document = tomllib.loads(text)
        if document.get("version") != 1:
            raise ValueError(f"version {document.get('version')}, expected 1")
        return {
            graph: {name: _read(name, row) for name, row in rows.items()}
            for graph, rows in document.get("graphs", {}).items()
        }
    except (ValueError, TypeError, KeyError, AttributeError) as error:  # TOMLDecodeError is a ValueError
        raise UserError(
            f"{path}: is not a lock that this version can read ({error}). Restore it from version control, "
            "or remove it and run: dreamgym-kit init --update"
        ) from None


def write_lock(path: Path, graph: str, tools: Iterable[LockedTool]) -> None:
    """Write a graph's lines; those of other graphs and of run-time tools stay.

    Raises:
        UserError: the lock cannot be read (see `read_lock`) or written.
    """
    lock = read_lock(path) or {}
    later = {
        name: replace(tool, decided_by=DecidedBy.GUESS) if tool.decided_by is DecidedBy.NOBODY else tool
        for name, tool in lock.get(graph, {}).items()
        if tool.at_run_time
    }
    _write(path, {**lock, graph: later | {tool.name: tool for tool in tools}})


def add_to_lock(path: Path, graph: str, tools: Iterable[LockedTool]) -> None:
    """Add lines to a graph; a line of the same name is replaced.

    Raises:
        UserError: the lock cannot be read or written.
    """
    lock = read_lock(path) or {}
    _write(path, {**lock, graph: dict(lock.get(graph, {})) | {tool.name: tool for tool in tools}})


def differences(before: Mapping[str, LockedTool], tools: Iterable[LockedTool]) -> list[str]:
    """Return each new or changed tool as a line.

    A project's own tool that dreamgym.toml lists is known: its effect is the user's decision.
    """
    tools = sorted(tools, key=lambda tool: tool.name)
    decided = {tool.name for tool in tools if tool.decided_by is DecidedBy.USER and not tool.server}
    new = {name for name, tool in before.items() if tool.decided_by is DecidedBy.NOBODY}
    lines = [appeared(before[name]) for name in before if name in new - decided]
    for tool in tools:
        locked = before.get(tool.name)
        if tool.name in decided and (locked is None or tool.name in new):
            continue
        if locked is None:
            server = f" from {tool.server}" if tool.server else ""
            lines.append(f"+ {tool.name}{server}: new, {tool.effect} ({tool.decided_by})")
            continue
        changes = [
            f"{aspect} {old} -> {new}"
            for aspect, old, new in (
                ("schema or annotations", locked.digest, tool.digest),
                ("server", locked.server or "none", tool.server or "none"),
                ("effect", locked.effect, tool.effect),
            )
            if old != new and not (aspect == "effect" and tool.decided_by is DecidedBy.USER)
        ]
        if changes:
            lines.append(f"~ {tool.name}: {', '.join(changes)}")
    return lines


def appeared(tool: LockedTool) -> str:
    """Return the line of `differences` for a tool that an agent created during a run."""
    server = f" of the server {tool.server}" if tool.server else ""
    return f"+ {tool.name}: new, {tool.effect}{server} (created during the run)"


def check_lock(path: Path, graph: str, tools: Iterable[LockedTool], *, writes: bool) -> list[str]:
    """Compare a graph's tools with its lock; return notes for the user.

    Args:
        path: path of the lock.
        graph: the graph's name in the lock.
        tools: the graph's current tools.
        writes: write a missing lock, and changed effects of dreamgym.toml; False in CI.

    Raises:
        LockDiffers: a tool is new or changed; lists each, and the command that accepts them.
        UserError: see `read_lock`.
    """
    tools = list(tools)
    before = (read_lock(path) or {}).get(graph)
    if before is None:
        guesses = sum(tool.decided_by is DecidedBy.GUESS for tool in tools)
        hold = f"; {guesses} guessed effect{'s hold' if guesses != 1 else ' holds'} for this run"
        hold = hold if guesses else ""
        if not writes:
            return [f"{path.name} has no tools of {graph}{hold}. Commit one: dreamgym-kit init --update"]
        try:
            write_lock(path, graph, tools)
        except RunDirectoryError as error:  # a read-only project
            return [f"{path.name} was not written{hold}: {error}"]
        return [f"wrote {len(tools)} tools of {graph} to {path.name}{hold}. Commit it"]
    if lines := differences(before, tools):
        listed = "\n  ".join(lines)
        raise LockDiffers(
            f"{path}: the tools of {graph} differ from it; nothing was run.\n  {listed}\n"
            "To accept them: dreamgym-kit init --update"
        )
    expected = {tool.name for tool in before.values() if not tool.at_run_time}
    gone = sorted(expected - {tool.name for tool in tools})
    if writes and not gone:
        write_lock(path, graph, tools)
    return [f"{path.name}: {name} is no longer in {graph}" for name in gone]


def confirm_lock(path: Path, effects: Mapping[str, Effect]) -> int:
    """Confirm every guess in a lock, with the effects of dreamgym.toml; return their number.

    Raises:
        UserError: see `read_lock`.
    """
    lock = read_lock(path) or {}
    guesses = sum(tool.decided_by is DecidedBy.GUESS for tools in lock.values() for tool in tools.values())
    if guesses:
        _write(
            path,
            {
                graph: {name: _confirmed(tool, effects) for name, tool in tools.items()}
                for graph, tools in lock.items()
            },
        )
    return guesses


def _confirmed(tool: LockedTool, effects: Mapping[str, Effect]) -> LockedTool:
    if tool.decided_by is not DecidedBy.GUESS:
        return tool
    return replace(tool, decided_by=DecidedBy.USER, effect=effects.get(tool.name, tool.effect))


def _write(path: Path, lock: Lock) -> None:
    """Write a lock atomically; a file with the same content is not touched."""
    text = _HEAD
    for graph, tools in sorted(lock.items()):
        lines = [tools[name].line() for name in sorted(tools)]
        text += "\n".join(["", f"[graphs.{_text(graph)}]", *lines, ""])
    data = text.encode("utf-8", "replace")
    try:
        if path.read_bytes() == data:
            return
    except OSError:
        pass  # absent; other errors appear on writing
    write_atomically(path, data)


def _read(name: str, row: Mapping[str, Any]) -> LockedTool:
    decided_by, effect = DecidedBy(row["decided_by"]), Effect(row["effect"])
    if decided_by in (DecidedBy.GUESS, DecidedBy.NOBODY) and effect.runs_in_dream:
        raise ValueError(f"{name}: a guess cannot be '{effect}'")
    later = row.get("at_run_time", False) is True
    return LockedTool(name, str(row["digest"]), effect, decided_by, str(row.get("server", "")), later)


def _text(value: str) -> str:
    """Return a TOML string: JSON's escapes are valid, except surrogate pairs, and DEL needs one."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
