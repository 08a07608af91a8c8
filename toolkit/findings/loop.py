"""Running in circles: the same call again and again, and the same answer each time."""

from collections import defaultdict
from collections.abc import Iterator

from dreamgym_kit.canonical import digest
from dreamgym_kit.findings.case import Case, called
from dreamgym_kit.vocabulary import Finding

_SAME_ANSWERS = 4  # polling three times for something that does not come is patience
_SAME_ERRORS = 3


def loop(case: Case) -> Iterator[Finding]:
    """Name each call that was made over and over while nothing changed.

    Four equal answers, or three equal errors, without a write that succeeded in between; other calls may
    lie in between, so circles of any length are found. Waiting that paid off is no circle: the last answer
    was another one. Critical where the episode ended at a limit.
    """
    groups: dict[tuple[str, str, int], list[int]] = defaultdict(list)
    names: dict[tuple[str, str, int], str] = {}
    written = 0
    for step in case.steps:
        answer = step.answer
        if step.effect.changes_world and answer.error is None:
            written += 1  # told by repeated_write
            continue
        if answer.abstained:
            continue
        key = (step.call.key, digest([answer.content, answer.error]), written)
        groups[key].append(step.step)
        names[key] = called(step) + (": the same error" if answer.error is not None else ": the same answer")
        if len(groups[key]) == 1 and answer.error is not None:
            names[key] = called(step) + ": the same error"
    errors = {step.step for step in case.steps if step.answer.error is not None}
    last = {key[0]: key for key, _ in sorted(groups.items(), key=lambda group: group[1][-1])}
    for key, steps in groups.items():
        if last[key[0]][:2] != key[:2]:
            continue
        if len(steps) >= (_SAME_ERRORS if steps[0] in errors else _SAME_ANSWERS):
            severity = "critical" if case.stop == "limit" else "warning"
            yield Finding("loop", f"{names[key]} {len(steps)} times", tuple(steps), severity)
