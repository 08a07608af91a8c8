"""What answers tool calls in a test's dream: the test's own words, then the cassette, then a buffer if asked.

What none of them answers is a miss: the episode ends there, and the test says what came nearest.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from dreamgym_kit.adapters.pytest_plugin.differences import call_miss
from dreamgym_kit.dream.recorded import RecordedExperience
from dreamgym_kit.plain import to_plain
from dreamgym_kit.ports import ExperienceModel, Situation
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
        self._said, self._recorded, self._further = said, recorded, further
        self._cassette = RecordedExperience(self._of_world)

    async def answer(self, call: Call, situation: Situation) -> Answer:
        """See `ExperienceModel.answer`."""
        if call.tool in self._said:
            return _scripted(self._said[call.tool], call)
        told = await self._cassette.answer(call, situation)
        if told.abstained and self._further is not None:
            told = await self._further.answer(call, situation)
        if told.abstained:
            self.misses.append(call_miss(call, situation, self._recorded))
        return told

    def _of_world(self, world: World, tenant: str) -> list[Transition]:  # noqa: ARG002  a cassette has one
        return [entry for entry in self._recorded if entry.world == world]


def _scripted(said: Any, call: Call) -> Answer:
    """The test's own answer; what it raises is what the tool fails with."""
    try:
        value = said(**call.args) if callable(said) and not _is_failure(said) else said
        if _is_failure(value):
            raise value
    except Exception as error:  # noqa: BLE001  a test may raise anything in a tool's place
        return Answer(provenance=Provenance.SCRIPTED, error=str(error), error_type=type(error).__name__)
    return Answer(content=to_plain(value), provenance=Provenance.SCRIPTED)


def _is_failure(value: Any) -> bool:
    return isinstance(value, Exception) or (isinstance(value, type) and issubclass(value, Exception))
