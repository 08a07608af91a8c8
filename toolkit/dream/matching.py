"""Which arguments must equal the recording: `[match]` names those of a tool that do not change its answer.

A write that is called with other words in an ignored argument leaves the same state behind, so both the call
and the writes before it are compared without them. What the answer repeats of an ignored argument gets the
value of now.

An unanswered call is reported with its nearest recording: of the same tool in the same environment, with the
fewest arguments that differ. `[match]` is proposed if it could answer the call.
"""

import re
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from dreamgym_kit.canonical import canonical
from dreamgym_kit.dream.faults import took_effect
from dreamgym_kit.interfaces import Situation
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.settings.secrets import MARK, MASK, secret_arguments
from dreamgym_kit.types import Answer, Call, Nearest, Transition, history_digest

_SHORTEST = 4  # characters of a value that is looked for inside a longer text
_MAX_WRITES = 5
_MAX_READ = 5_000  # recordings of one tool that are compared with a call
_NAMED = 3
_WORD = re.compile(r"(?<!\S)[^\W\d_]{2,}")  # behind a blank: no part of an id or an address
MISSING = object()  # no value: an argument that is not there


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
        """Return the state before each call of one episode, with writes compared in the same way.

        A state that does not follow from the writes among `entries` stays as it was recorded.
        """
        before: dict[str, str] = {"": ""}
        exact: list[str] = []
        narrow: list[str] = []
        states = []
        for entry in entries:
            states.append(before.get(entry.after, entry.after))
            if entry.writes and took_effect(entry.answer):
                exact.append(entry.call.key)
                narrow.append(self.key(entry.call))
                before[history_digest(exact)] = history_digest(narrow)
        return states

    def after(self, history: Iterable[Transition]) -> str:
        """Return the state after all of these calls."""
        writes = (entry for entry in history if entry.writes and took_effect(entry.answer))
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


class Placed(NamedTuple):
    """A recording and the state that it met, as `[match]` compares states."""

    entry: Transition
    after: str


def nearest(call: Call, situation: Situation, recorded: Sequence[Placed], match: Match) -> Nearest | None:
    """Return the recording of this tool that differs least; None if there is none.

    Args:
        call: what nobody could answer.
        situation: where it stands.
        recorded: the environment's recordings of all tools.
        match: which arguments need not be equal.
    """
    same = [placed for placed in recorded if placed.entry.call.tool == call.tool][:_MAX_READ]
    if not same:
        return None
    ignored = match.ignored(call.tool)
    after = match.after(situation.history) if match.ignore else situation.after

    def distance(candidate: Placed) -> tuple[object, ...]:
        names = differing(candidate.entry.call.args, call.args, ignored)
        far = (_length(candidate.entry.call.args.get(name)) - _length(call.args.get(name)) for name in names)
        elsewhere, task = candidate.after != after, candidate.entry.task != situation.task
        return len(names), elsewhere, task, sum(map(abs, far)), candidate.entry.step

    best = min(same, key=distance)
    entry, names = best.entry, differing(best.entry.call.args, call.args, ignored)
    wordings = best.after == after and _are_wordings(names, call, best, recorded)
    return Nearest(
        episode=entry.episode,
        step=entry.step,
        call=entry.call,
        content=entry.answer.content,
        error=entry.answer.error,
        differs=tuple(names),
        elsewhere=best.after != after,
        writes=_writes_before(entry, recorded) if best.after != after else (),
        ignore=tuple(sorted({*names, *ignored})) if wordings else (),
    )


def only_differs(recording: Nearest) -> str:
    """Name the arguments in which a call differs from its nearest recording; at least one does."""
    named = [f"`{name}`" for name in recording.differs[:_NAMED]]
    named += [f"{len(recording.differs) - _NAMED} more"] if len(recording.differs) > _NAMED else []
    arguments = " and ".join(filter(None, [", ".join(named[:-1]), named[-1]]))
    made = " made after other writes" if recording.elsewhere else ""
    return f"only {arguments} differ{'s'[: len(named) == 1]} from a recording{made}"


def differing(
    recorded: Mapping[str, JsonValue], now: Mapping[str, JsonValue], ignored: Collection[str] = ()
) -> list[str]:
    """The arguments that are not equal as recordings are looked up: 1 is 1.0, and True is neither."""
    names = [*recorded, *(name for name in now if name not in recorded)]
    return [
        name
        for name in names
        if name not in ignored and not same(recorded.get(name, MISSING), now.get(name, MISSING))
    ]


def same(recorded: object, now: object) -> bool:
    """Whether two values, or MISSING, are equal as recordings are looked up."""
    if recorded is MISSING or now is MISSING:
        return recorded is now
    if type(recorded) is str or type(now) is str:
        return recorded == now
    return canonical(recorded) == canonical(now)


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


def _length(value: JsonValue) -> int:
    return len(value) if isinstance(value, str) else 0 if value is None else len(canonical(value))


def _are_wordings(names: Sequence[str], call: Call, placed: Placed, recorded: Sequence[Placed]) -> bool:
    """Whether a person may say of these arguments that they do not matter.

    They are texts of several words of a write, no later read of that episode shows them, and no recordings
    from this state that differ in nothing else say that one went well and the other failed.
    """
    entry, args = placed.entry, placed.entry.call.args
    if not names or not entry.effect.changes_environment:
        return False
    if not all(_is_wording(args.get(name)) and _is_wording(call.args.get(name)) for name in names):
        return False
    texts, alike = [canonical(args[name])[1:-1] for name in names], []
    for other, after in recorded:
        later = (
            other.episode == entry.episode
            and other.step > entry.step
            and not other.effect.changes_environment
        )
        if later and any(text in canonical(other.answer.content) for text in texts):
            return False
        if (
            other.call.tool == call.tool
            and after == placed.after
            and not differing(other.call.args, args, names)
        ):
            alike.append(other.answer.error)
    return len(set(alike)) == 1


def _is_wording(value: JsonValue) -> bool:
    return isinstance(value, str) and len(_WORD.findall(value)) > 1


def _writes_before(entry: Transition, recorded: Sequence[Placed]) -> tuple[Call, ...]:
    """Return the last writes of a recorded episode before one of its calls."""
    writes = [
        placed.entry
        for placed in recorded
        if placed.entry.episode == entry.episode
        and placed.entry.step < entry.step
        and placed.entry.effect.changes_environment
        and took_effect(placed.entry.answer)
    ]
    return tuple(write.call for write in sorted(writes, key=lambda write: write.step)[-_MAX_WRITES:])


class SecretUses:
    """The secrets in recorded calls, by tool, with the calls' other arguments.

    What a tool answers to another password nobody can derive from its answer to the right one.
    """

    def __init__(self, rows: Iterable[Transition]) -> None:
        self._by_tool: dict[str, list[tuple[dict[str, str], Mapping[str, JsonValue]]]] = {}
        for row in rows:
            if marks := secret_arguments(row.call.args):
                self._by_tool.setdefault(row.call.tool, []).append((marks, row.call.args))

    def unknown(self, call: Call, ignored: Container[str], history: Sequence[Transition]) -> str | None:
        """Return the argument whose secret was not recorded with the call's other values; None: all were.

        A recorded secret may come with arguments that were never recorded (the next order under the same
        API key), but not with one that was recorded with other secrets only (another user's password).
        `ignored`: arguments whose values do not matter. `history`: secrets in its answers count as known.
        """
        recorded = self._by_tool.get(call.tool, ())
        for path, mark in secret_arguments(call.args).items():
            if path.split(".")[0].split("[")[0] in ignored or _is_in_answers(mark, history):
                continue
            theirs = [args for marks, args in recorded if marks.get(path) in (mark, MASK)]
            if not theirs and mark != MASK:
                return path
            for name, value in call.args.items():
                if isinstance(value, (str, int)) and "<masked" not in str(value):
                    same = [args for _, args in recorded if args.get(name) == value]
                    if same and mark != MASK and not any(args.get(name) == value for args in theirs):
                        return path
        return None


def _is_in_answers(mark: str, history: Iterable[Transition]) -> bool:
    """Whether an answer contains this secret, and its call does not."""
    secret = MARK.findall(mark)[0]
    answers = [entry.answer for entry in history if secret not in str(entry.call.args)]
    return any(secret in str((answer.content, answer.artifact, answer.update)) for answer in answers)
