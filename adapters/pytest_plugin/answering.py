"""What answers tool calls in a test's dream: the test's own words, then the cassette, then a buffer if asked.

What none of them answers is a miss: the episode ends there, and the test says what came nearest.
"""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from dreamgym_kit.adapters.pytest_plugin.differences import call_miss, shown_call
from dreamgym_kit.dream.recorded import RecordedExperience
from dreamgym_kit.plain import to_plain
from dreamgym_kit.ports import ExperienceModel, Situation
from dreamgym_kit.report.clean import clean
from dreamgym_kit.vocabulary import Answer, Call, Provenance, Transition, World


class CassetteExperience:
    """Implements `ports.ExperienceModel` for one run of a test's agent.

    Args:
        said: what the test says that tools answer, by name: a value, an exception, or a function of the
            call's arguments that gives or raises one.
        recorded: everything in the cassette.
        further: what is asked last (a buffer with its tool models).
    """

    def __init__(
        self,
        said: Mapping[str, Any],
        recorded: Sequence[Transition],
        further: ExperienceModel | None = None,
    ) -> None:
        self.waits = further.waits if further is not None else False
        self.misses: list[str] = []
        self.mistakes: list[str] = []  # of the test, in what it says that tools answer
        self._said, self._recorded, self._further = said, recorded, further
        self._cassette = RecordedExperience(self._of_world)

    async def answer(self, call: Call, situation: Situation) -> Answer:
        """See `ExperienceModel.answer`."""
        if call.tool in self._said:
            return await self._told_by_the_test(call)
        told = await self._cassette.answer(call, situation)
        if told.abstained and not told.final and self._further is not None:
            told = await self._further.answer(call, situation)
        if told.abstained:
            self.misses.append(call_miss(call, situation, self._recorded))
        return told

    async def _told_by_the_test(self, call: Call) -> Answer:
        said = self._said[call.tool]
        why = _cannot_take(said, call.args)
        if why is None:
            return await _scripted(said, call)
        asked = shown_call(call.tool, call.args)
        self.mistakes.append(
            f"answers: the function for '{clean(call.tool)}' does not take {asked}: {clean(why)}"
        )
        return Answer(provenance=Provenance.ABSTAINED, support=0.0, why=self.mistakes[-1])

    def _of_world(self, world: World, tenant: str) -> list[Transition]:  # noqa: ARG002  a cassette has one
        return [entry for entry in self._recorded if entry.world == world]


def _cannot_take(said: Any, args: Mapping[str, Any]) -> str | None:
    """Why a function cannot be called so; None where it can, or is none."""
    if not callable(said) or _is_failure(said):
        return None
    try:
        takes = inspect.signature(said)
    except (TypeError, ValueError):  # some that are written in C do not say
        return None
    try:
        takes.bind(**args)
    except TypeError as error:
        return str(error)
    return None


async def _scripted(said: Any, call: Call) -> Answer:
    """The test's own answer; what it raises is what the tool fails with."""
    try:
        value = said(**call.args) if callable(said) and not _is_failure(said) else said
        if inspect.isawaitable(value):
            value = await value
        if _is_failure(value):
            raise value
    except Exception as error:  # noqa: BLE001  a test may raise anything in a tool's place
        return Answer(provenance=Provenance.SCRIPTED, error=str(error), error_type=type(error).__name__)
    return Answer(content=to_plain(value), provenance=Provenance.SCRIPTED)


def _is_failure(value: Any) -> bool:
    return isinstance(value, Exception) or (isinstance(value, type) and issubclass(value, Exception))
