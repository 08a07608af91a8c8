"""Experience models in order: each is asked where those before it left a call unanswered."""

from dataclasses import replace

from dreamgym_kit.interfaces import ExperienceModel, Situation
from dreamgym_kit.types import Answer, Call, Source

SURE = 0.9
"""Confidence from which on a derived write is given without a second opinion."""


class FallbackChain:
    """Implements `interfaces.ExperienceModel`.

    Args:
        first: is always asked.
        then: is asked where `first` leaves the call unanswered and no other source may be asked.
        second_opinion: ask `then` also about a write that `first` derived with a confidence below `SURE`, and
            give the more confident of both answers.
    """

    waits = True

    def __init__(
        self, first: ExperienceModel, then: ExperienceModel, *, second_opinion: bool = False
    ) -> None:
        self.first, self.then, self._second_opinion = first, then, second_opinion

    async def answer(self, call: Call, situation: Situation) -> Answer:
        """See `ExperienceModel.answer`. An unanswered call keeps the first model's nearest recording."""
        answer = await self.first.answer(call, situation)
        if answer.final or not (answer.unanswered or self._doubts(answer, situation)):
            return answer
        other = await self.then.answer(call, situation)
        if other.unanswered:
            return _unanswered(answer, other) if answer.unanswered else answer
        return other if answer.unanswered or other.confidence > answer.confidence else answer

    def _doubts(self, answer: Answer, situation: Situation) -> bool:
        derived = answer.source in (Source.DERIVED, Source.ANALOGOUS) and answer.confidence < SURE
        return self._second_opinion and derived and situation.tool.effect.changes_environment


def _unanswered(first: Answer, then: Answer) -> Answer:
    return replace(then, nearest=then.nearest or first.nearest, why=f"{first.why}; {then.why}")
