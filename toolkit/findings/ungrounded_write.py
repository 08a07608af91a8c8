"""Writes that rest on nothing: a value that nobody gave, or a read that came too late or not at all."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dreamgym_kit.findings.case import Case, brief, called, severity_of, took_effect
from dreamgym_kit.findings.values import Known, ids, leaves, made_up
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.types import Answer, Finding, Transition


def made_up_argument(case: Case) -> Iterator[Finding]:
    """Name each write of a model's with a made-up value.

    A value that a read tells too late was guessed, but rightly: that is `write_before_read`, and so is
    not named here.
    """
    for step in case.changes:
        if case.place(step) is None:
            continue  # code made the call: its values are not the model's
        late = Known()
        for read in late_reads(case, step):
            late.take(_told_by(case, read))
        for name, value in made_up(step.call.args, known_before(case, step)):
            if not late.gave(value):
                text = f"{called(step)}: nobody gave {name} '{brief(value)}'"
                yield Finding("made_up_argument", text, (step.step,), severity_of(step.effect))


def late_reads(case: Case, step: Transition) -> list[Transition]:
    """The reads that told things too late for a call: asked for with it, or after it had done nothing.

    What is read after a call that took effect may only be what that call wrote.
    """
    seen = {other.step for other in case.seen_before(step)} | {step.step}
    return [
        other
        for other in case.steps
        if other.step not in seen
        and not other.effect.changes_environment
        and (case.place(other) == case.place(step) or not took_effect(step))
    ]


def known_before(case: Case, step: Transition) -> Known:
    """What the agent had been told when it asked for a call; to be read only."""
    return _once(case.cache, ("known", step.step), lambda: _known_before(case, step))


def _once(memory: dict[object, Any], key: object, work_out: Callable[[], Known]) -> Known:
    if key not in memory:
        memory[key] = work_out()
    known: Known = memory[key]
    return known


def _known_before(case: Case, step: Transition) -> Known:
    known = Known()
    known.hear(case.policy)
    known.hear(dict(case.task.input))
    known.take(_once(case.shared, "described", lambda: _described(case)))
    for role in ("user", "system"):
        for _, text in case.said(role, before=step):
            known.hear(text)
    for interrupt in case.asked:
        if interrupt.after < step.step:
            known.hear([interrupt.reply])
    for other in case.seen_before(step):
        known.take(_told_by(case, other))
    return known


def _described(case: Case) -> Known:
    """What the tools' descriptions told: the same in every episode of a run."""
    known = Known()
    for spec in case.specs.values():
        known.hear([spec.description, dict(spec.args_schema)])
    return known


def _told_by(case: Case, step: Transition) -> Known:
    return _once(case.cache, ("told", step.step), lambda: _told_in(step.answer))


def _told_in(answer: Answer) -> Known:
    known = Known()
    known.hear([answer.content, answer.artifact, answer.error, dict(answer.update or {})])
    return known


_ADDS = (
    *("add", "append", "book", "comment", "create", "escalate", "file", "log", "mail", "message", "note"),
    *("notify", "open", "post", "raise", "send", "submit"),
)


def write_before_read(case: Case) -> Iterator[Finding]:
    """Name writes whose value was told only afterwards, and changes of a thing that was never looked at.

    The second only where a reading tool takes the same argument and the thing was named by the user: a
    value of the graph's own state needs no looking up, and what only adds (a ticket, a mail) depends on
    nothing.
    """
    for step in case.changes:
        if case.place(step) is None:
            continue
        text = _told_later(case, step) or _never_looked(case, step)
        if text:
            yield Finding("write_before_read", text, (step.step,), severity_of(step.effect))


def _told_later(case: Case, step: Transition) -> str:
    for name, value in made_up(step.call.args, known_before(case, step)):
        for other in late_reads(case, step):
            if value.casefold() in {str(leaf).casefold() for leaf in leaves(other.answer.content)}:
                source = f"{other.call.tool} told it only in step {other.step}"
                return f"{called(step)}: {name} '{brief(value)}' was guessed, {source}"
    return ""


def _never_looked(case: Case, step: Transition) -> str:
    if step.call.tool.lower().startswith(_ADDS):
        return ""
    given, known = _state_values(case.task.input), known_before(case, step)
    for name, value in step.call.args.items():
        about = {id_ for id_ in ids({name: value}) - given if known.gave(id_)}
        reader = _reader_of(case, name)
        if not about or reader is None:
            continue
        looked = [other for other in case.seen_before(step) if other.answer.error is None]
        if not any(about & (ids(dict(other.call.args)) | ids(other.answer.content)) for other in looked):
            return f"{called(step)}: nothing was read about it before, though {reader} tells of it"
    return ""


def _reader_of(case: Case, argument: str) -> str | None:
    """A reading tool that takes an argument of this name."""
    for name, spec in case.specs.items():
        fields = spec.args_schema.get("properties")
        reads = not spec.effect.changes_environment and not spec.effect.runs_in_dream
        if reads and isinstance(fields, Mapping) and argument in fields:
            return name
    return None


def _state_values(task_input: Mapping[str, JsonValue]) -> set[str]:
    return ids({name: value for name, value in task_input.items() if name != "messages"})
