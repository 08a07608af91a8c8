"""What a tool does to its world: declared by its author, known from the framework, or guessed.

A guess is a starting point for the person who reads `dreamgym.toml`. It never says `pure` or
`control`: those two run for real in a dream, so a person has to say them. Unknown is `destructive`.
What is declared belongs to one object and to what runs under it: neither a namesake nor a wrapper has it.
"""

import functools
import re
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from dreamgym_kit.types import Effect

_MARK = "__dreamgym_effect__"

T = TypeVar("T")

_READS = frozenset(
    {
        "check", "count", "describe", "fetch", "find", "get", "has", "inspect", "is", "list", "load",
        "lookup", "peek", "query", "read", "retrieve", "search", "select", "show", "status",
        "summarise", "summarize", "track", "view", "whoami",
    }
)  # fmt: skip
_WRITES = frozenset(
    {
        "add", "append", "apply", "archive", "assign", "attach", "book", "cancel", "change", "close",
        "configure", "create", "draft", "edit", "enable", "disable", "escalate", "insert", "invite",
        "label", "lock", "log", "make", "merge", "modify", "move", "open", "patch", "put", "record",
        "register", "rename", "replace", "reply", "reschedule", "reserve", "reset", "restore", "save",
        "schedule", "set", "start", "stop", "submit", "subscribe", "sync", "tag", "unlock",
        "unsubscribe", "update", "upload", "upsert", "write",
    }
)  # fmt: skip
_DESTROYS = frozenset(
    {
        "approve", "authorize", "buy", "call", "capture", "charge", "clear", "delete", "deploy",
        "destroy", "drop", "email", "erase", "execute", "exec", "issue", "kill", "mail", "notify",
        "order", "pay", "post", "publish", "purchase", "purge", "refund", "release", "remove", "reship",
        "run", "sell", "send", "ship", "sms", "terminate", "transfer", "truncate", "tweet", "wipe",
        "wire", "withdraw",
    }
)  # fmt: skip
_MAKES = frozenset({"apply", "create", "initiate", "make", "schedule", "start", "submit"})
_GONE = frozenset(  # once made, it cannot be taken back
    {"charge", "email", "mail", "order", "payment", "payments", "purchase", "refund", "refunds", "sms"}
    | {"transfer", "transfers", "wire"}
)
_ALARMS = frozenset({"cancels", "charges", "creates", "deletes", "pays", "refunds", "removes", "sends"}) | {
    "updates",
    "writes",
}
_UNCLEAR = "nothing in the name says that it is harmless"
_HTTP = {"get": Effect.READ, "head": Effect.READ, "put": Effect.WRITE, "patch": Effect.WRITE}
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def effect(kind: Effect | str) -> Callable[[T], T]:
    """Declare a tool's effect where it is written; settings still win over it.

    Example:
        @effect("destructive")
        @tool
        def send_mail(to: str, text: str) -> str: ...

    Raises:
        ValueError: `kind` is no effect.
    """
    declared = Effect(kind)

    def mark(tool: T) -> T:
        said = _Mark(declared, what_runs(tool))
        if isinstance(tool, type) or not _is_tool(tool):
            setattr(tool, _MARK, said)
        else:
            tool.__dict__[_MARK] = said  # a pydantic model: copies keep it, no field and no mapping holds it
        if type(tool) is _CACHED:  # it has no code of its own: what was said of it is said of what it keeps
            mark(tool.__wrapped__)  # type: ignore[attr-defined]
        for hears in HEARS_MARKS:
            hears(tool)
        return tool

    return mark


HEARS_MARKS: list[Callable[[object], None]] = []
"""Who is told of each thing that `@effect` marks, once it is marked."""
_CACHED: type = type(functools.lru_cache(lambda: None))


@dataclass(frozen=True, slots=True, eq=False)
class _Mark:
    """What `@effect` said, and of what: copied to where something else runs, it says nothing."""

    effect: Effect
    on: tuple[object, ...]


def declared_effect(tool: object) -> Effect | None:
    """The effect that `@effect` gave to this very tool, function or class, or to a tool's class.

    A function that wraps another does not have the other's, nor does a class that adds code of its own.
    """
    holder = tool.__func__ if isinstance(tool, types.MethodType) else tool
    mark = getattr(holder, "__dict__", {}).get(_MARK)
    if isinstance(mark, _Mark):
        return mark.effect if same_objects(mark.on, what_runs(holder)) else None
    kind = holder if isinstance(holder, type) else type(holder)
    for one in kind.__mro__:
        mark = vars(one).get(_MARK)
        if isinstance(mark, _Mark):
            return mark.effect if mark.on == (one,) else None
        if any(_is_code(name, value) for name, value in vars(one).items()):
            return None
    return None


def _is_tool(holder: object) -> bool:
    return hasattr(holder, "args_schema") and hasattr(holder, "metadata")


def what_runs(holder: object) -> tuple[object, ...]:
    """A tool's class and the functions in its fields; anything else is what it is."""
    if isinstance(holder, type) or not _is_tool(holder):
        return (holder,)
    held = holder.__dict__.values()
    return (type(holder), *(one for one in held if callable(one) and not isinstance(one, type)))


def same_objects(one: tuple[object, ...], other: tuple[object, ...]) -> bool:
    """Whether two rows hold the very same things."""
    return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))


def _is_code(name: str, value: object) -> bool:
    """Whether a class's entry is code that its author wrote; pydantic puts one function into each class."""
    code = (types.FunctionType, classmethod, staticmethod, property)
    return isinstance(value, code) and name != "model_post_init"


def guess_effect(
    name: str, description: str = "", *, annotations: Mapping[str, object] | None = None
) -> tuple[Effect, str]:
    """Guess an effect and say why, for the person who will correct it.

    Args:
        name: the tool's name.
        description: its docstring; only warns, it never makes a tool more harmless.
        annotations: what a server says of its tool (MCP annotations, metadata), in any spelling and nested;
            it only warns, too.
    """
    guessed, reason = _by_name(name)
    if guessed is Effect.READ and (word := _alarming(description)):
        guessed, reason = Effect.DESTRUCTIVE, f"named like a read, but its description says '{word}'"
    hints = _hints(annotations or {})
    if hints.get("destructivehint", False) is not False and guessed is not Effect.DESTRUCTIVE:
        return Effect.DESTRUCTIVE, "MCP annotation destructiveHint"
    if hints.get("readonlyhint", True) is False and guessed is Effect.READ:
        return Effect.WRITE, "MCP annotation readOnlyHint = false"
    return guessed, reason


_NESTED = 3


def _hints(told: object, depth: int = 0) -> dict[str, object]:
    """Hints by their name in small letters without `_`; of one that is said twice the more harmful one."""
    found: dict[str, object] = {}
    entries = told if isinstance(told, Mapping) else getattr(told, "__dict__", {})
    for name, value in list(entries.items()):
        plain = str(name).replace("_", "").lower()
        if plain == "destructivehint" and value is not None:
            found[plain] = value is not False or found.get(plain, False)
        elif plain == "readonlyhint" and value is not None:
            found[plain] = value is not False and found.get(plain, True)
        elif depth < _NESTED and (isinstance(value, Mapping) or hasattr(value, "model_fields_set")):
            for hint, said in _hints(value, depth + 1).items():
                both = (said, found.get(hint, said))
                found[hint] = any(both) if hint == "destructivehint" else all(both)
    return found


def _by_name(name: str) -> tuple[Effect, str]:
    words = [word.lower() for word in _WORD.findall(name)]
    for group, kind in ((_DESTROYS, Effect.DESTRUCTIVE), (_WRITES, Effect.WRITE)):
        # "list_orders" reads orders: a noun that is also a verb counts only when it comes first.
        found = next((word for word in words[:1] if word in group), None)
        if found in _MAKES and (made := next((word for word in words[1:] if word in _GONE), None)):
            return Effect.DESTRUCTIVE, f"name says '{found} {made}'"
        if found:
            return kind, f"name begins with '{found}'"
    if words and words[0] in _READS:
        danger = next((word for word in words[1:] if word in {"and", "or", "then"}), None)
        if danger is None and words[:2] in (["check", "in"], ["check", "out"]):
            danger = " ".join(words[:2])
        if danger:
            return Effect.DESTRUCTIVE, f"name says more than a read ('{danger}')"
        return Effect.READ, f"name begins with '{words[0]}'"
    verb = next((word for word in words if word in _HTTP), None)
    if verb and ("http" in words or "request" in words or "requests" in words):
        return _HTTP[verb], f"HTTP {verb.upper()}"
    return Effect.DESTRUCTIVE, _UNCLEAR


def _alarming(description: str) -> str | None:
    first = description.strip().split("\n", 1)[0].lower()
    return next((word for word in re.findall(r"[a-z]+", first) if word in _ALARMS), None)
