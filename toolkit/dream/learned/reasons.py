"""Why recorded calls were answered as they were, in sentences: what a teaching model would be asked for.

By rules alone: the facts that a mined tree decided on, the outcome, and what later reads show to be changed.
A model of any size can be taught with them in place of a teacher's notes.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from dreamgym_kit.dream.learned.meetings import Met, met_in
from dreamgym_kit.dream.learned.teaching import Taught, lesson
from dreamgym_kit.dream.learned.vocabulary import UNKNOWN
from dreamgym_kit.dream.state.dreaming import Knowledge
from dreamgym_kit.dream.state.history import Recording
from dreamgym_kit.dream.state.volatile import Renaming
from dreamgym_kit.plain import JsonValue


@dataclass(frozen=True, slots=True)
class Reason:
    """Why one call was answered so.

    Attributes:
        text: a sentence.
        changes: what it changed, as entity, field and value; None where nobody looked again.
    """

    text: str
    changes: tuple[Mapping[str, JsonValue], ...] | None


def reasons_of(knowledge: Knowledge, known: Taught, episode: Recording) -> tuple[Reason, ...]:
    """A reason for each call of a recorded episode, in order, with the ids as they were recorded.

    Args:
        knowledge: what was mined; recordings of the episode's world may be in its pool.
        known: words and trees, of the same tools.
        episode: as recorded, not in symbols.
    """
    renaming = Renaming(knowledge.models.fresh)
    in_symbols = Recording(episode.id, episode.world, tuple(map(renaming.step, episode.steps)))
    calls = list(met_in(knowledge, episode.world, in_symbols))
    return tuple(Reason(_sentence(one, known), _changes(one, known, renaming)) for one in calls)


def _sentence(one: Met, known: Taught) -> str:
    told = lesson(one, known.vocabulary, known.trees)
    why = told.said.why if told is not None else ()
    facts = [f"{name} is {'not known' if word == UNKNOWN else word.replace('_', ' ')}" for name, word in why]
    because = f"{' and '.join(facts)}, so " if facts else ""
    return f"{because}{one.tool} {'goes well' if one.form is None else 'is refused'}."


def _changes(one: Met, known: Taught, renaming: Renaming) -> tuple[Mapping[str, JsonValue], ...] | None:
    told = lesson(one, known.vocabulary, known.trees)
    if told is None or told.said.changes is None:
        return None
    changed = []
    for name, _, value in one.changes or ():
        role, _, field = name.partition(".")
        entity = renaming.concrete(one.entities[role], "")
        changed.append({"entity": entity, "field": field, "value": renaming.concrete(value, "")})
    return tuple(changed)
