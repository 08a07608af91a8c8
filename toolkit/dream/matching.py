"""Which arguments must equal the recording: `[match]` names those of a tool that do not change its answer.

A write that is called with other words in an ignored argument leaves the same state behind, so both the call
and the writes before it are compared without them. What the answer repeats of an ignored argument gets the
value of now.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

from dreamgym_kit.dream.faults import took_effect
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.types import Answer, Call, Transition, history_digest

_SHORTEST = 4  # characters of a value that is looked for inside a longer text


@dataclass(frozen=True, slots=True)
class Match:
    """How calls are compared with recordings.

    Attributes:
        ignore: arguments that need not be equal, by tool or pattern of tools.
    """

    ignore: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def ignored(self, tool: str) -> frozenset[str]:
        """The arguments of a tool that need not be equal."""
        named = [names for pattern, names in self.ignore.items() if fnmatchcase(tool, pattern)]
        return frozenset(name for names in named for name in names)

    def key(self, call: Call) -> str:
        """`Call.key` without the arguments that are ignored."""
        ignored = self.ignored(call.tool) & call.args.keys() if self.ignore else None
        if not ignored:
            return call.key
        args = {name: value for name, value in call.args.items() if name not in ignored}
        return replace(call, args=args).key

    def afters(self, entries: Iterable[Transition]) -> list[str]:
        """The states that the calls of one episode met, with writes compared in the same way.

        A state that does not follow from the writes among `entries` stays as it was recorded.
        """
        before: dict[str, str] = {"": ""}
        exact: list[str] = []
        narrow: list[str] = []
        found = []
        for entry in entries:
            found.append(before.get(entry.after, entry.after))
            if entry.effect.changes_environment and took_effect(entry.answer):
                exact.append(entry.call.key)
                narrow.append(self.key(entry.call))
                before[history_digest(exact)] = history_digest(narrow)
        return found

    def after(self, history: Iterable[Transition]) -> str:
        """The state that a call after all of these meets."""
        writes = (one for one in history if one.effect.changes_environment and took_effect(one.answer))
        return history_digest([self.key(write.call) for write in writes])

    def refilled(self, answer: Answer, recorded: Call, now: Call) -> Answer:
        """A recorded answer in which copies of ignored arguments have the values of this call."""
        changed = {
            value: now.args[name]
            for name in self.ignored(now.tool)
            if name in now.args
            and isinstance(value := recorded.args.get(name), str)
            and value
            and value != now.args[name]
        }
        if not changed:
            return answer
        parts = {
            name: _refilled(getattr(answer, name), changed) for name in ("content", "artifact", "update")
        }
        error = _refilled(answer.error, changed) if answer.error is not None else None
        return replace(answer, **parts, error=error)


def _refilled(value: JsonValue, changed: Mapping[str, Any]) -> JsonValue:
    if isinstance(value, Mapping):
        return {name: _refilled(item, changed) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_refilled(item, changed) for item in value]
    if not isinstance(value, str):
        return value
    if value in changed:
        return changed[value]
    for old, new in changed.items():
        if len(old) >= _SHORTEST and isinstance(new, str):
            value = value.replace(old, new)
    return value
