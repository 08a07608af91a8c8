"""A dream with a part left out, to see what that part is worth.

    history     each call is answered by itself: what this episode asked, was told and wrote is not known
    state       only recordings of this very call in this very state answer; nothing is composed
    retrieval   only what was recorded in the call's own world answers; a model is shown no examples
    reasoning   no model decides what recordings and rules leave open; or one that was taught without reasons

Answers of a part that is left out become abstentions; how the agent fares then is up to
`simulate.on_unanswered`.
"""

from collections.abc import Collection
from dataclasses import replace

from dreamgym_kit.interfaces import ExperienceModel, Situation
from dreamgym_kit.types import Answer, Call, Source, history_digest

_DROPPED = {
    "state": frozenset({Source.DERIVED, Source.ANALOGOUS}),
    "retrieval": frozenset({Source.ANALOGOUS}),
    "reasoning": frozenset({Source.MODEL}),
}
_NOTHING_WRITTEN = history_digest(())


def without(model: ExperienceModel, parts: Collection[str]) -> ExperienceModel:
    """The model without these parts; the very model where there are none."""
    return _Without(model, frozenset(parts)) if parts else model


class _Without:
    """Implements `interfaces.ExperienceModel`."""

    def __init__(self, model: ExperienceModel, parts: frozenset[str]) -> None:
        self._model, self._forgets = model, "history" in parts
        self._dropped = {said: part for part in sorted(parts) for said in _DROPPED.get(part, ())}
        self.waits = model.waits

    async def answer(self, call: Call, situation: Situation) -> Answer:
        """See `ExperienceModel.answer`."""
        if self._forgets:
            situation = replace(situation, history=(), after=_NOTHING_WRITTEN, seen=0)
        told = await self._model.answer(call, situation)
        part = self._dropped.get(told.source)
        if part is None:
            return told
        why = f"{told.source} answers are left out (simulate.disable: {part})"
        return Answer(source=Source.UNANSWERED, confidence=0.0, why=why)
