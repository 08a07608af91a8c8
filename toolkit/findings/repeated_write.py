"""The same write twice: the first finding anybody wants, also where a time-out hid that it took effect."""

from collections import defaultdict
from collections.abc import Sequence

from dreamgym_kit.vocabulary import Effect, Finding, Transition


def repeated_writes(transitions: Sequence[Transition]) -> list[Finding]:
    """Name each world-changing call that was made more than once with equal arguments.

    A repeat after a failure that says that nothing happened is a plain retry and not named; one after
    a time-out is: nobody knew whether the first had taken effect.
    """
    groups: dict[str, list[Transition]] = defaultdict(list)
    for entry in transitions:
        if entry.effect.changes_world:
            groups[entry.call.key].append(entry)
    return [_finding(group) for group in groups.values() if _counts(group)]


def _counts(group: list[Transition]) -> bool:
    """Whether two or more of these calls may have taken effect."""
    return sum(1 for entry in group if entry.answer.error is None or _timed_out(entry)) > 1


def _timed_out(entry: Transition) -> bool:
    said = f"{entry.answer.error_type} {entry.answer.error}".lower()
    return any(mark in said for mark in ("timeout", "time-out", "timed out", "no answer", "504"))


def _finding(group: list[Transition]) -> Finding:
    first = group[0]
    arguments = " ".join(str(value) for value in first.call.args.values())
    hidden = ", after a time-out" if any(_timed_out(entry) for entry in group[:-1]) else ""
    times = "twice" if len(group) == 2 else f"{len(group)} times"
    severe = first.effect is Effect.DESTRUCTIVE
    return Finding(
        kind="repeated_write",
        text=f"{first.call.tool} {arguments[:60]} called {times}{hidden}",
        steps=tuple(entry.step for entry in group),
        severity="critical" if severe else "warning",
    )
