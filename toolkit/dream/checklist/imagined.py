"""An experience model that goes on where recordings end: worlds nobody read whole are composed before.

All siblings of a request stand in one base state; only their own writes differ. What is answered from an
imagined read is never called recorded: it is `analogous`, as what other worlds say.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dreamgym_kit.dream.chain import ChainedExperience
from dreamgym_kit.dream.following import world_of
from dreamgym_kit.dream.state.history import Recording, Step
from dreamgym_kit.dream.state.mining import renamed
from dreamgym_kit.dream.state.values import spell
from dreamgym_kit.plain import escaped_args
from dreamgym_kit.ports import Situation
from dreamgym_kit.vocabulary import Answer, Call, Provenance, World

_WHY = "in a world composed from recorded ones"


class ImaginedExperience:
    """Implements `ports.ExperienceModel`: the chain, over recorded worlds and imagined ones.

    Args:
        chain: answers from state and rules.
        imagined: by world, reads that nobody made there.
        name: tells it from what was composed of other work.
    """

    waits = False

    def __init__(
        self,
        chain: ChainedExperience,
        imagined: Mapping[World, Sequence[Step]],
        *,
        name: str = "imagined",
    ) -> None:
        self.name = name
        self.following = chain.following
        self._chain = chain
        self._reads = imagined
        self._keys = {
            world: frozenset((step.tool, step.spelled) for step in reads) for world, reads in imagined.items()
        }
        self._settled: set[str] = set()

    async def answer(self, call: Call, situation: Situation) -> Answer:
        """See `ExperienceModel.answer`."""
        if situation.world not in self._reads:
            return await self._chain.answer(call, situation)
        self._settle(situation)
        said = await self._chain.answer(call, situation)
        key = (call.tool, spell(escaped_args(call.args)))
        if said.provenance is Provenance.RECORDED and key in self._keys[situation.world]:
            return replace(said, provenance=Provenance.ANALOGOUS, why=_WHY, cites=())
        return said

    def _settle(self, situation: Situation) -> None:
        """Put the world up, once."""
        following, world = self._chain.following, world_of(situation)
        with following.lock:
            if world not in self._settled:
                self._settled.add(world)
                knowledge = following.knowledge(situation.tenant)
                reads = tuple(self._reads[situation.world])
                knowledge.pool.add(renamed(Recording(f"imagined {world}", world, reads), knowledge.models))
