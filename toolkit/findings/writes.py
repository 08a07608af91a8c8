"""Detectors of calls that are wrong in themselves: repeated, looping, or without a basis.

A write also counts as repeated if a timeout hid that it took effect. It has no basis if a value never
appeared, or if the read came too late or never.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from dreamgym_kit.argument_effects import of_call
from dreamgym_kit.canonical import digest
from dreamgym_kit.findings.case import Case, brief, called, severity_of, took_effect
from dreamgym_kit.findings.text import KnownValues, ids, leaves, made_up, negated
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.types import Effect, Finding, Transition

_SAME_ANSWERS = 4  # three unsuccessful polls are normal
_SAME_ERRORS = 3


def loop(case: Case) -> Iterator[Finding]:
    """Report each call that was repeated while nothing changed.

    Four equal answers, or three equal errors, without a successful write in between; other calls may be in
    between, so loops of any length are found. Successful polling is not a loop: its last answer differs.
    Critical if the episode ended at a limit.
    """
    groups: dict[tuple[str, str, int], list[int]] = defaultdict(list)
    names: dict[tuple[str, str, int], str] = {}
    written = 0
    for step in case.steps:
        answer = step.answer
        if step.effect.changes_environment and answer.error is None:
            written += 1  # reported by repeated_write
            continue
        if answer.unanswered:
            continue
        key = (step.call.key, digest([answer.content, answer.error]), written)
        groups[key].append(step.step)
        names[key] = called(step) + (": the same error" if answer.error is not None else ": the same answer")
    errors = {step.step for step in case.steps if step.answer.error is not None}
    last = {key[0]: key for key, _ in sorted(groups.items(), key=lambda group: group[1][-1])}
    for key, steps in groups.items():
        if last[key[0]][:2] != key[:2]:
            continue
        if len(steps) >= (_SAME_ERRORS if steps[0] in errors else _SAME_ANSWERS):
            severity = "critical" if case.stop == "limit" else "warning"
            yield Finding("loop", f"{names[key]} {len(steps)} times", tuple(steps), severity)


_FIGURE = re.compile(r"-?\d+(\.\d+)?")
_AGAIN = re.compile(r"\b(again|once more|one more|another one|the same|repeat|resend)\b", re.IGNORECASE)
_ASKS = re.compile(r"\b(check|see|look|tell|show|why|when|where|status|was|were|happen\w*)\b", re.IGNORECASE)


def repeated_write(case: Case) -> Iterator[Finding]:
    """Report each state-changing call that was made more than once with equal arguments.

    A retry after an error without effect is not reported. A retry after a timeout is, unless the agent
    checked in between that nothing had changed. A repeat that the tool rejected ("already cancelled") is a
    warning. Not
    reported: repeats that the user requested knowing of the first call, and values that were reset in
    between.
    """
    for write in repeated_writes(case.steps):
        group = [step for step in case.steps if step.step in write.steps]
        if not all(_asked_again(case, earlier, later) for earlier, later in pairwise(group)):
            yield write


def repeated_writes(transitions: Sequence[Transition]) -> list[Finding]:
    """Return the repeated writes of calls without messages."""
    groups: dict[str, list[Transition]] = defaultdict(list)
    for entry in transitions:
        if entry.effect.changes_environment:
            groups[_alike(entry)].append(entry)
    return [
        _finding(group)
        for group in groups.values()
        if _counts(group, transitions) and not _all_set_back(group, transitions)
    ]


def _alike(entry: Transition) -> str:
    """Return a key that is equal for equivalent calls: "5.00" is 5.0, and P1 is p1."""
    return digest([entry.call.tool, {name: _plain(value) for name, value in entry.call.args.items()}])


def _plain(value: JsonValue) -> JsonValue:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return value
    text = str(value).strip().casefold()
    if _FIGURE.fullmatch(text):
        whole, _, part = text.partition(".")
        return f"{whole}.{part.rstrip('0')}".rstrip(".")
    return text


def _asked_again(case: Case, first: Transition, later: Transition) -> bool:
    """Return whether the user requested a repeat knowing of the first call; a timeout gives no knowledge."""
    place = case.place(first)
    if place is None or first.answer.timed_out:
        return False
    later_texts = [text for at, text in case.messages_of("user", before=later) if at > place]
    return any(_AGAIN.search(text) and not _ASKS.search(text) and not negated(text) for text in later_texts)


def _all_set_back(group: list[Transition], transitions: Sequence[Transition]) -> bool:
    """Return whether the setting had another value between each two of these calls."""
    return group[0].effect is Effect.WRITE and all(
        any(
            earlier.step < entry.step < later.step and _sets_otherwise(entry, earlier) and took_effect(entry)
            for entry in transitions
        )
        for earlier, later in pairwise(group)
    )


def _sets_otherwise(entry: Transition, other: Transition) -> bool:
    """Return whether a call differs in one value, but not in its object."""
    args, others = entry.call.args, other.call.args
    if entry.call.tool != other.call.tool or args.keys() != others.keys():
        return False
    differ = [name for name, value in others.items() if args[name] != value]
    same = ids({name: value for name, value in others.items() if name not in differ})
    return len(differ) == 1 and bool(same or not ids(others[differ[0]]))


def _counts(group: list[Transition], transitions: Sequence[Transition]) -> bool:
    """Return whether a call was repeated although an earlier one may have taken effect."""
    acted = [entry for entry in group if took_effect(entry)]
    missed = sum(
        entry.answer.timed_out and _seen_unchanged(entry, later, transitions)
        for entry, later in pairwise(acted)
    )
    again = [entry for entry in group if acted and entry.step > acted[0].step and not entry.answer.unanswered]
    return len(again) - missed > 0


def _seen_unchanged(first: Transition, second: Transition, transitions: Sequence[Transition]) -> bool:
    """Return whether a read of the same object gave equal answers before and after the first call."""
    about = ids(first.call.args)
    reads: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for entry in transitions:
        answered = entry.answer.error is None and not entry.answer.unanswered
        near = about & (ids(entry.call.args) | ids(entry.answer.content))
        if answered and near and not entry.effect.changes_environment and entry.step < second.step:
            reads[entry.call.key].append((entry.step, digest(entry.answer.content)))
    return any(
        before[0] < first.step < after[0] and before[1] == after[1]
        for seen in reads.values()
        for before, after in pairwise(seen)
    )


def _finding(group: list[Transition]) -> Finding:
    first = group[0]
    hidden = ", after a time-out" if any(entry.answer.timed_out for entry in group[:-1]) else ""
    times = "twice" if len(group) == 2 else f"{len(group)} times"
    return Finding(
        kind="repeated_write",
        text=f"{first.call.tool} {brief(*first.call.args.values())} called {times}{hidden}",
        steps=tuple(entry.step for entry in group),
        severity=severity_of(first.effect) if sum(map(took_effect, group)) > 1 else "warning",
    )


def made_up_argument(case: Case) -> Iterator[Finding]:
    """Report each write of a model with a made-up value.

    A value that a read returns only later was guessed correctly; `write_before_read` reports it instead.
    """
    for step in case.changes:
        if case.place(step) is None:
            continue  # code made the call, so its values are not the model's
        late = KnownValues()
        for read in late_reads(case, step):
            late.take(_values_in(case, read))
        for name, value in made_up(step.call.args, known_before(case, step)):
            if not late.gave(value):
                text = f"{called(step)}: {name} '{brief(value)}' did not appear before"
                yield Finding("made_up_argument", text, (step.step,))


def destructive_by_argument(case: Case) -> Iterator[Finding]:
    """Report each call that only its argument makes destructive (`effect_when`), such as DELETE.

    Tools that the task expects are not reported.
    """
    expected = case.task.expect.get("calls") or ()
    for step in case.steps:
        spec = case.specs.get(step.call.tool)
        if spec is None or not spec.effect_when or step.call.tool in expected:
            continue
        effective = of_call(replace(spec, effect=Effect.WRITE), step.call.args)  # no read rule applies
        if effective.effect is Effect.DESTRUCTIVE:
            yield Finding("destructive_by_argument", f"{called(step)} is destructive", (step.step,))


def late_reads(case: Case, step: Transition) -> list[Transition]:
    """Return reads that came too late for a call: requested with it, or after it had no effect.

    A read after an effective call may return only what that call wrote.
    """
    seen = {other.step for other in case.seen_before(step)} | {step.step}
    return [
        other
        for other in case.steps
        if other.step not in seen
        and not other.effect.changes_environment
        and (case.place(other) == case.place(step) or not took_effect(step))
    ]


def known_before(case: Case, step: Transition) -> KnownValues:
    """Return the values known before a call was requested; do not modify them."""

    def values_before() -> Iterator[KnownValues | JsonValue]:
        yield from (case.policy, dict(case.task.input))
        yield _once(case.shared, "described", lambda: _described(case))
        for role in ("user", "system"):
            yield from (text for _, text in case.messages_of(role, before=step))
        yield from ([interrupt.reply] for interrupt in case.interrupts if interrupt.after < step.step)
        yield from (_values_in(case, other) for other in case.seen_before(step))

    return _once(case.cache, ("known", step.step), values_before)


def _described(case: Case) -> Iterator[JsonValue]:
    """Yield the tools' descriptions, which are equal in all episodes of a run."""
    for spec in case.specs.values():
        yield [spec.description, dict(spec.args_schema)]


def _values_in(case: Case, step: Transition) -> KnownValues:
    answer = step.answer
    values = [answer.content, answer.artifact, answer.error, dict(answer.update or {})]
    if answer.error is None and not answer.unanswered and not step.effect.changes_environment:
        values.append(list(step.call.args.values()))  # a successful read proves that its arguments exist
    return _once(case.cache, ("told", step.step), lambda: [values])


def _once(
    memory: dict[object, Any], key: object, values: Callable[[], Iterable[KnownValues | JsonValue]]
) -> KnownValues:
    """Return the values, computed on first use."""
    if key not in memory:
        collected = KnownValues()
        for value in values():
            if isinstance(value, KnownValues):
                collected.take(value)
            else:
                collected.add(value)
        memory[key] = collected
    known_values: KnownValues = memory[key]
    return known_values


def write_before_read(case: Case) -> Iterator[Finding]:
    """Report writes whose value appeared only afterwards, that is, was guessed correctly."""
    for step in case.changes:
        if case.place(step) is None:
            continue
        if text := _appeared_later(case, step):
            yield Finding("write_before_read", text, (step.step,))


def _appeared_later(case: Case, step: Transition) -> str:
    for name, value in made_up(step.call.args, known_before(case, step)):
        for other in late_reads(case, step):
            if value.casefold() in {str(leaf).casefold() for leaf in leaves(other.answer.content)}:
                source = f"{other.call.tool} returned it only in step {other.step}"
                return f"{called(step)}: {name} '{brief(value)}' was guessed, {source}"
    return ""
