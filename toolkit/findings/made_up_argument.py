"""A write with a value that nobody gave: in no request, rule, tool description or answer."""

from collections.abc import Iterator

from dreamgym_kit.findings.case import Case, brief, called, severity_of, took_effect
from dreamgym_kit.findings.values import Known, made_up
from dreamgym_kit.vocabulary import Finding, Transition


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
        and not other.effect.changes_world
        and (case.place(other) == case.place(step) or not took_effect(step))
    ]


def known_before(case: Case, step: Transition) -> Known:
    """What the agent had been told when it asked for a call; to be read only."""
    found: Known | None = case.cache.get(("known", step.step))
    if found is None:
        found = case.cache["known", step.step] = _known_before(case, step)
    return found


def _known_before(case: Case, step: Transition) -> Known:
    known = Known()
    known.hear(case.policy)
    known.hear(dict(case.task.input))
    known.take(_described(case))
    for role in ("user", "system"):
        for _, text in case.said(role, before=step):
            known.hear(text)
    for asked in case.asked:
        if asked.after < step.step:
            known.hear([asked.reply])
    for other in case.seen_before(step):
        known.take(_told_by(case, other))
    return known


def _described(case: Case) -> Known:
    """What the tools' descriptions told: the same in every episode of a run."""
    told: Known | None = case.shared.get("described")
    if told is None:
        told = Known()
        for spec in case.specs.values():
            told.hear([spec.description, dict(spec.args_schema)])
        case.shared["described"] = told
    return told


def _told_by(case: Case, step: Transition) -> Known:
    """What an answer told."""
    told: Known | None = case.cache.get(("told", step.step))
    if told is None:
        told = case.cache["told", step.step] = Known()
        answer = step.answer
        told.hear([answer.content, answer.artifact, answer.error, dict(answer.update or {})])
    return told
