"""What a tool does to its world: declared by its author, known from the framework, or guessed.

A guess is a starting point for the person who reads `dreamgym.toml`. It never says `pure` or
`control`: those two run for real in a dream, so a person has to say them. Unknown is `destructive`.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from dreamgym_kit.vocabulary import Effect

EFFECT_MARK = "dreamgym_effect"

T = TypeVar("T")

_READS = frozenset(
    {
        "check",
        "count",
        "describe",
        "fetch",
        "find",
        "get",
        "has",
        "inspect",
        "is",
        "list",
        "load",
        "lookup",
        "peek",
        "query",
        "read",
        "retrieve",
        "search",
        "select",
        "show",
        "status",
        "summarise",
        "summarize",
        "track",
        "view",
        "whoami",
    }
)
_WRITES = frozenset(
    {
        "add",
        "append",
        "apply",
        "archive",
        "assign",
        "attach",
        "book",
        "cancel",
        "change",
        "close",
        "configure",
        "create",
        "draft",
        "edit",
        "enable",
        "disable",
        "escalate",
        "insert",
        "invite",
        "label",
        "lock",
        "log",
        "make",
        "merge",
        "modify",
        "move",
        "open",
        "patch",
        "put",
        "record",
        "register",
        "rename",
        "replace",
        "reply",
        "reschedule",
        "reserve",
        "reset",
        "restore",
        "save",
        "schedule",
        "set",
        "start",
        "stop",
        "submit",
        "subscribe",
        "sync",
        "tag",
        "unlock",
        "unsubscribe",
        "update",
        "upload",
        "upsert",
        "write",
    }
)
_DESTROYS = frozenset(
    {
        "approve",
        "authorize",
        "buy",
        "call",
        "capture",
        "charge",
        "clear",
        "delete",
        "deploy",
        "destroy",
        "drop",
        "email",
        "erase",
        "execute",
        "exec",
        "issue",
        "kill",
        "mail",
        "notify",
        "order",
        "pay",
        "post",
        "publish",
        "purchase",
        "purge",
        "refund",
        "release",
        "remove",
        "reship",
        "run",
        "sell",
        "send",
        "ship",
        "sms",
        "terminate",
        "transfer",
        "truncate",
        "tweet",
        "wipe",
        "wire",
        "withdraw",
    }
)
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
        if hasattr(tool, "args_schema") and hasattr(tool, "metadata"):
            holder: Any = tool
            holder.metadata = {**(holder.metadata or {}), EFFECT_MARK: declared.value}
        else:
            setattr(tool, f"__{EFFECT_MARK}__", declared.value)
        return tool

    return mark


def declared_effect(tool: object) -> Effect | None:
    """The effect that `@effect` gave to a tool or to the function under it."""
    metadata = getattr(tool, "metadata", None)
    if isinstance(metadata, Mapping) and EFFECT_MARK in metadata:
        return Effect(metadata[EFFECT_MARK])
    value = getattr(tool, f"__{EFFECT_MARK}__", None)
    return Effect(value) if value is not None else None


def guess_effect(
    name: str, description: str = "", *, annotations: Mapping[str, object] | None = None
) -> tuple[Effect, str]:
    """Guess an effect and say why, for the person who will correct it.

    Args:
        name: the tool's name.
        description: its docstring; only warns, it never makes a tool more harmless.
        annotations: MCP tool annotations (readOnlyHint, destructiveHint), where there are any.
    """
    hints = annotations or {}
    if hints.get("destructiveHint") is True and hints.get("readOnlyHint") is not True:
        return Effect.DESTRUCTIVE, "MCP annotation destructiveHint"
    by_name, reason = _by_name(name)
    if hints.get("readOnlyHint") is True and (by_name is not Effect.DESTRUCTIVE or reason == _UNCLEAR):
        return Effect.READ, "MCP annotation readOnlyHint"
    if by_name is Effect.READ and (word := _alarming(description)):
        return Effect.DESTRUCTIVE, f"named like a read, but its description says '{word}'"
    return by_name, reason


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
