"""The annotator that needs no model: what the recordings themselves say of a call.

A note names up to three facts of the things that the call names, as the episode had told them before, and
then how the tool took it. It explains nothing; annotators that do have rules, or a model.
"""

from dreamgym_kit.dream.state.entities import mentioned, records
from dreamgym_kit.dream.state.observed import failed, observation
from dreamgym_kit.dream.state.values import spell
from dreamgym_kit.plain import JsonValue
from dreamgym_kit.training.annotation import Annotation, StepNote, Trajectory, Tutorial
from dreamgym_kit.vocabulary import Transition

_MOST = 3


class RecordedNotes:
    """Implements `Annotator` over the recording alone."""

    name = "recordings"

    async def annotate(self, trajectory: Trajectory) -> Annotation:
        """See `Annotator.annotate`."""
        known: dict[str, dict[str, JsonValue]] = {}
        notes = []
        for step in trajectory.steps:
            notes.append(StepNote(step.step, _note(step, known)))
            seen = observation(step.answer)
            if not failed(seen):
                for record in records(seen, step.call.args):
                    known.setdefault(record.entity, {}).update(record.scalars())
        return Annotation(trajectory.key, self.name, tuple(notes), _tutorial(trajectory))


def _note(step: Transition, known: dict[str, dict[str, JsonValue]]) -> str:
    facts = [
        f"{name}.{field} is {spell(value)[:60]}"
        for name in dict.fromkeys(mentioned(dict(step.call.args)))
        for field, value in list(known.get(name, {}).items())[-_MOST:]
    ][:_MOST]
    told = f"It was told before that {', '.join(facts)}." if facts else "Nothing was told of it before."
    return f"{told} {_taken(step)}"


def _taken(step: Transition) -> str:
    if failed(observation(step.answer)):
        return f"{step.call.tool} refuses."
    return f"{step.call.tool} {'is done' if step.effect.changes_world else 'answers'}."


def _tutorial(trajectory: Trajectory) -> Tutorial:
    plan = " then ".join(dict.fromkeys(step.call.tool for step in trajectory.steps))
    refused = list(
        dict.fromkeys(step.call.tool for step in trajectory.steps if failed(observation(step.answer)))
    )
    return Tutorial(
        plan=f"{plan}.",
        success="Judged a success." if trajectory.success else "",
        failure=f"Refused here: {', '.join(refused)}." if refused else "",
    )
