"""Walks recordings and tells each call with the facts that were known when it was made.

Every call of every recorded episode is met once, in a state that follows the true answers; what only its
own episode has seen of the world beforehand is left out. Of one episode in `_UNKNOWN` the world is met as
if nobody had recorded it, so that what is learned covers such worlds too.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from dreamgym_kit.dream.learned.codec import MAX_CHANGES
from dreamgym_kit.dream.learned.facts import Facts, facts_of
from dreamgym_kit.dream.learned.outcomes import form_of_failure
from dreamgym_kit.dream.learned.things import Thing, things_of
from dreamgym_kit.dream.state.claims import differs
from dreamgym_kit.dream.state.dreaming import Knowledge, follow
from dreamgym_kit.dream.state.entities import records
from dreamgym_kit.dream.state.history import OFF_RECORD, Recording
from dreamgym_kit.dream.state.models import ToolModels
from dreamgym_kit.dream.state.observed import failed
from dreamgym_kit.dream.state.views import State, ViewKey, args_of
from dreamgym_kit.dream.state.worlds import reads_at, start
from dreamgym_kit.serialization import JsonValue

_UNKNOWN = 3

Changes = tuple[tuple[str, JsonValue, JsonValue], ...]
"""Changed facts, as ("order.status", old value, new value)."""


class Met(NamedTuple):
    """One recorded call with what was known around it."""

    tool: str
    args: Mapping[str, JsonValue]
    facts: Facts
    form: str | None  # of its failure; None where it went well
    changes: Changes | None  # None where more changed than can be said
    looked: (
        frozenset[str] | None
    )  # facts known before and looked at again after; None of what changes nothing
    world: str
    unseen: bool  # whether its world was met as if nobody had recorded it


def met(knowledge: Knowledge) -> Iterator[Met]:
    """Every call of the pooled recordings."""
    for world, episodes in knowledge.pool.episodes.items():
        for number, episode in enumerate(episodes):
            yield from met_in(knowledge, world, episode, unseen=number % _UNKNOWN == _UNKNOWN - 1)


def met_in(knowledge: Knowledge, world: str, episode: Recording, *, unseen: bool = False) -> Iterator[Met]:
    """The calls of one episode, in their order."""
    models, pool = knowledge.models, knowledge.pool
    state = State({}, OFF_RECORD) if unseen else start(pool, models, world, without=episode.id)
    node = pool.root(world)
    for step in episode.steps:
        node = pool.next(node, step)
        things = things_of(state, models.usual, step.tool, step.args)
        changes: Changes | None = ()
        looked: frozenset[str] | None = None
        if models.advances(step):
            changes, looked = _changes(models, things, reads_at(pool, models, node, None))
        yield Met(
            step.tool,
            step.args,
            facts_of(models, state, step.tool, step.args),
            form_of_failure(step.seen, step.args),
            changes,
            looked,
            world,
            unseen,
        )
        state = follow(knowledge, state, step)


def _changes(
    models: ToolModels, things: Iterable[Thing], reads: Mapping[ViewKey, JsonValue]
) -> tuple[Changes | None, frozenset[str]]:
    """What later reads show to be otherwise of the things that the call was about, and all that they show."""
    by_entity = {thing.entity: thing for thing in things}
    changed: dict[str, tuple[JsonValue, JsonValue]] = {}
    looked: set[str] = set()
    for (tool, spelled), seen in reads.items():
        if ":" in tool or tool in models.writes or failed(seen):
            continue
        for record in records(seen, args_of(spelled)):
            thing = by_entity.get(record.entity)
            for name, value in record.scalars() if thing is not None else ():
                assert thing is not None
                if name in thing.fields:
                    looked.add(f"{thing.role}.{name}")
                    if differs(thing.fields[name], value):
                        changed[f"{thing.role}.{name}"] = thing.fields[name], value
    changes = tuple((name, *values) for name, values in changed.items())
    return changes if len(changes) <= MAX_CHANGES else None, frozenset(looked)
