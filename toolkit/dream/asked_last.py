"""Two experience models in a row: the second is asked only where the first abstains."""

from dreamgym_kit.interfaces import ExperienceModel, Situation
from dreamgym_kit.types import Answer, Call


class AskedLast:
    """Implements `interfaces.ExperienceModel`."""

    waits = True

    def __init__(self, first: ExperienceModel | None, last: ExperienceModel) -> None:
        self._first, self._last = first, last

    async def answer(self, call: Call, situation: Situation) -> Answer:
        """See `ExperienceModel.answer`."""
        told = await self._first.answer(call, situation) if self._first is not None else None
        if told is not None and (told.final or not told.unanswered):
            return told
        return await self._last.answer(call, situation)
