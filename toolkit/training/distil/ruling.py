"""The annotator by rules: why a tool answered so is the path of a tree that was mined for it.

No teacher is needed where recordings show the facts that decide. A note names the facts that the tree asked,
at most three, as the episode itself had told them, and what became of the call. Where no tree tells, the note
is what the recording says of itself (`noting`).
"""

from collections.abc import Sequence
from dataclasses import replace

from dreamgym_kit.dream.learned.meetings import Met, met, met_in
from dreamgym_kit.dream.learned.teaching import Taught, lesson, taught
from dreamgym_kit.dream.learned.vocabulary import UNKNOWN
from dreamgym_kit.dream.state.audit import learn
from dreamgym_kit.dream.state.dreaming import Knowledge
from dreamgym_kit.dream.state.history import recordings
from dreamgym_kit.training.annotation import Annotation, StepNote, Trajectory
from dreamgym_kit.training.distil.noting import RecordedNotes


class MinedRules:
    """Implements `Annotator` over trees mined from trajectories.

    Args:
        trajectories: of one tenant; those that teach. What measures is not mined from.
    """

    name = "rules"

    def __init__(self, trajectories: Sequence[Trajectory]) -> None:
        rows = [step for one in trajectories for step in one.steps]
        self._knowledge: Knowledge = learn(recordings(rows), calibrated=False)
        self._taught: Taught = taught(tuple(met(self._knowledge)))
        self._plain = RecordedNotes()

    async def annotate(self, trajectory: Trajectory) -> Annotation:
        """See `Annotator.annotate`."""
        plain = await self._plain.annotate(trajectory)
        world = f"{trajectory.tenant}/{trajectory.world}"
        episodes = self._knowledge.pool.episodes.get(world, [])
        own = next((one for one in episodes if one.id == trajectory.episode), None)
        if own is None or len(own.steps) != len(plain.notes):
            return replace(plain, by=self.name)
        calls = met_in(self._knowledge, world, own, unseen=True)
        notes = (self._note(note, call) for note, call in zip(plain.notes, calls, strict=True))
        return replace(plain, by=self.name, notes=tuple(notes))

    def _note(self, note: StepNote, call: Met) -> StepNote:
        told = lesson(call, self._taught.vocabulary, self._taught.trees)
        if told is None or not told.said.why:
            return note
        facts = ", ".join(
            f"{name} is not known" if word == UNKNOWN else f"{name} is {word}" for name, word in told.said.why
        )
        became = "does it" if call.form is None else "refuses"
        return replace(note, reasoning=f"What decides: {facts}; so {call.tool} {became}.")
