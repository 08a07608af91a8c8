"""A write made blindly: before the read that it depends on."""

from collections.abc import Iterator, Mapping

from dreamgym_kit.findings.case import Case, brief, called, severity_of
from dreamgym_kit.findings.made_up_argument import known_before, late_reads
from dreamgym_kit.findings.values import ids, leaves, made_up
from dreamgym_kit.plain import JsonValue
from dreamgym_kit.vocabulary import Finding, Transition

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
                told = f"{other.call.tool} told it only in step {other.step}"
                return f"{called(step)}: {name} '{brief(value)}' was guessed, {told}"
    return ""


def _never_looked(case: Case, step: Transition) -> str:
    if step.call.tool.lower().startswith(_ADDS):
        return ""
    given, known = _state_values(case.task.input), known_before(case, step)
    for name, value in step.call.args.items():
        about = {one for one in ids({name: value}) - given if known.gave(one)}
        reader = _reader_of(case, name)
        if not about or reader is None:
            continue
        looked = [other for other in case.seen_before(step) if other.answer.error is None]
        if not any(about & (ids(dict(one.call.args)) | ids(one.answer.content)) for one in looked):
            return f"{called(step)}: nothing was read about it before, though {reader} tells of it"
    return ""


def _reader_of(case: Case, argument: str) -> str | None:
    """A reading tool that takes an argument of this name."""
    for name, spec in case.specs.items():
        fields = spec.args_schema.get("properties")
        reads = not spec.effect.changes_world and not spec.effect.runs_in_dream
        if reads and isinstance(fields, Mapping) and argument in fields:
            return name
    return None


def _state_values(task_input: Mapping[str, JsonValue]) -> set[str]:
    return ids({name: value for name, value in task_input.items() if name != "messages"})
