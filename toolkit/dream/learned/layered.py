"""Recordings and rules first; the learned model where they abstain, or where it is surer about a write.

What was recorded after the same writes, and what reads are known to say, is never asked about. Of a write
that rules composed without being nearly sure, the answer with the higher calibrated support is given.
"""

from dataclasses import replace

from dreamgym_kit.interfaces import ExperienceModel, Situation
from dreamgym_kit.types import Answer, Call, Source

SURE = 0.9
"""Support from which on a composed write is given without asking anybody else."""

_BY_RULES = (Source.DERIVED, Source.ANALOGOUS)


class LayeredExperience:
    """Implements `interfaces.ExperienceModel` over the chain and the learned model behind it."""

    waits = True

    def __init__(self, chain: ExperienceModel, learned: ExperienceModel) -> None:
        self._chain, self.learned = chain, learned

    async def answer(self, call: Call, situation: Situation) -> Answer:
        """See `ExperienceModel.answer`."""
        told = await self._chain.answer(call, situation)
        writes = situation.tool.effect.changes_environment
        doubtful = writes and told.source in _BY_RULES and told.confidence < SURE
        if told.final or not (told.unanswered or doubtful):
            return told
        decided = await self.learned.answer(call, situation)
        if decided.unanswered:
            return replace(told, why=f"{told.why}; {decided.why}") if told.unanswered else told
        return decided if told.unanswered or decided.confidence > told.confidence else told
