"""Experience model that only repeats what was seen: no guesses.

A recording answers a call when tool, arguments, world and seed are the same *and* the same
world-changing calls came before it, in the same order. So a read after a write is never answered
from a recording made before that write. A call recorded several times in that very state is answered
in the order seen, and the last answer repeats (a poll that ended "done" stays "done").
"""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable

from dreamgym_kit.plain import is_exact
from dreamgym_kit.ports import Situation
from dreamgym_kit.vocabulary import Answer, Call, Provenance, Transition, World

Recordings = Callable[[World, str], Iterable[Transition]]
"""Gives the transitions recorded in one world for one tenant, in the order recorded."""

_State = tuple[str, str]  # call key, history digest


class RecordedExperience:
    """Implements `ports.ExperienceModel` over recorded transitions; reads a world once, when first met."""

    waits = False

    def __init__(self, recordings: Recordings) -> None:
        self._recordings = recordings
        self._worlds: dict[tuple[World, str], dict[_State, list[Transition]]] = {}
        self._lock = threading.Lock()

    async def answer(self, call: Call, situation: Situation) -> Answer:
        """See `ExperienceModel.answer`."""
        if not all(is_exact(value) for value in call.args.values()):
            why = f"an argument of {call.tool} has no JSON form by which a recording could be found"
            return Answer(provenance=Provenance.ABSTAINED, support=0.0, why=why)
        known = self._world(situation.world, situation.tenant)
        seen = known.get((call.key, situation.after))
        if not seen:
            return _abstain(call, situation, known)
        chosen = seen[min(situation.seen, len(seen) - 1)]
        return Answer(
            content=chosen.answer.content,
            artifact=chosen.answer.artifact,
            error=chosen.answer.error,
            error_type=chosen.answer.error_type,
            update=chosen.answer.update,
            provenance=Provenance.RECORDED,
            support=1.0,
            cites=(chosen.id,),
        )

    def _world(self, world: World, tenant: str) -> dict[_State, list[Transition]]:
        known = self._worlds.get((world, tenant))
        if known is None:
            with self._lock:
                known = self._worlds.get((world, tenant))
                if known is None:
                    known = self._worlds[world, tenant] = _by_state(self._recordings(world, tenant))
        return known


def _by_state(recorded: Iterable[Transition]) -> dict[_State, list[Transition]]:
    """Group by call and state; within a group, one episode's own order, without repeats of it.

    Two recordings of one state by different episodes say the same thing twice, not one after the
    other: only the episode that called most often in that state tells an order.
    """
    groups: dict[_State, dict[str, list[Transition]]] = defaultdict(lambda: defaultdict(list))
    for entry in recorded:
        if entry.answer.provenance is Provenance.REAL:
            groups[entry.call.key, entry.after][entry.episode].append(entry)
    return {state: max(episodes.values(), key=len) for state, episodes in groups.items()}


def _abstain(call: Call, situation: Situation, known: dict[_State, list[Transition]]) -> Answer:
    elsewhere = any(key == call.key for key, _ in known)
    if elsewhere:
        why = f"{call.tool} was recorded in world {situation.world}, but after other writes than these"
    elif not known:
        why = f"nothing was recorded in world {situation.world}"
    else:
        why = f"{call.tool} was never recorded with these arguments in world {situation.world}"
    return Answer(provenance=Provenance.ABSTAINED, support=0.0, why=why)
