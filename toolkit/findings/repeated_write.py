"""The same write twice: the first finding anybody wants, also where a time-out hid that it took effect."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise

from dreamgym_kit.canonical import digest
from dreamgym_kit.findings.case import Case, severity_of, timed_out, took_effect
from dreamgym_kit.findings.values import ids
from dreamgym_kit.vocabulary import Finding, Transition


def repeated_write(case: Case) -> Iterator[Finding]:
    """Name each world-changing call that was made more than once with equal arguments.

    A repeat after a failure that says that nothing happened is a plain retry and not named; one after
    a time-out is, unless the agent looked in between and saw that nothing had changed. One that the tool
    turned away ("already cancelled") is named too, as a warning.
    """
    yield from repeated_writes(case.steps)


def repeated_writes(transitions: Sequence[Transition]) -> list[Finding]:
    """The same over calls alone."""
    groups: dict[str, list[Transition]] = defaultdict(list)
    for entry in transitions:
        if entry.effect.changes_world:
            groups[entry.call.key].append(entry)
    return [_finding(group) for group in groups.values() if _counts(group, transitions)]


def _counts(group: list[Transition], transitions: Sequence[Transition]) -> bool:
    """Whether one of these calls was made though an earlier one may have taken effect."""
    acted = [entry for entry in group if took_effect(entry)]
    missed = sum(
        timed_out(entry) and _seen_unchanged(entry, later, transitions) for entry, later in pairwise(acted)
    )
    again = [entry for entry in group if acted and entry.step > acted[0].step and not entry.answer.abstained]
    return len(again) - missed > 0


def _seen_unchanged(first: Transition, second: Transition, transitions: Sequence[Transition]) -> bool:
    """Whether a read about the same thing gave the same answer before and after the first call."""
    about = ids(first.call.args)
    reads: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for entry in transitions:
        told = entry.answer.error is None and not entry.answer.abstained
        near = about & (ids(entry.call.args) | ids(entry.answer.content))
        if told and near and not entry.effect.changes_world and entry.step < second.step:
            reads[entry.call.key].append((entry.step, digest(entry.answer.content)))
    return any(
        before[0] < first.step < after[0] and before[1] == after[1]
        for seen in reads.values()
        for before, after in pairwise(seen)
    )


def _finding(group: list[Transition]) -> Finding:
    first = group[0]
    arguments = " ".join(str(value) for value in first.call.args.values())
    hidden = ", after a time-out" if any(timed_out(entry) for entry in group[:-1]) else ""
    times = "twice" if len(group) == 2 else f"{len(group)} times"
    return Finding(
        kind="repeated_write",
        text=f"{first.call.tool} {arguments[:60]} called {times}{hidden}",
        steps=tuple(entry.step for entry in group),
        severity=severity_of(first.effect) if sum(map(took_effect, group)) > 1 else "warning",
    )
