"""What a write changed, by the reads before and after it in its own episode.

The difference of one read's records before and after, where exactly one write that worked lies between
them. A write around which nothing was read again has no known changes: there, they are not learned.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dreamgym_kit.dream.decision import MAX_CHANGES
from dreamgym_kit.dream.state.entities import records
from dreamgym_kit.dream.state.observed import failed, observation
from dreamgym_kit.dream.state.values import is_scalar, spell
from dreamgym_kit.plain import JsonValue
from dreamgym_kit.vocabulary import Transition

Change = Mapping[str, JsonValue]
_Facts = dict[tuple[str, str], JsonValue]  # (entity, field) -> value


@dataclass(slots=True)
class _Read:
    """A read as it was told last."""

    facts: _Facts
    writes: list[int] = field(default_factory=list)  # steps of writes that worked since


def observed_changes(steps: Sequence[Transition]) -> dict[int, tuple[Change, ...]]:
    """By step of a write that worked, the facts that it changed; a write that nobody tells of is left out.

    Writes that changed more than `MAX_CHANGES` facts are left out too: no decision can say that.
    """
    reads: dict[str, _Read] = {}
    found: dict[int, _Facts] = {}
    for step in steps:
        seen = observation(step.answer)
        if step.effect.changes_world:
            if not failed(seen):
                for read in reads.values():
                    read.writes.append(step.step)
            continue
        if failed(seen):
            continue
        facts = _facts(step, seen)
        before = reads.get(step.call.key)
        if before is not None and len(before.writes) == 1:
            changed = {
                key: value
                for key, value in facts.items()
                if key in before.facts and spell(before.facts[key]) != spell(value)
            }
            found.setdefault(before.writes[0], {}).update(changed)
        reads[step.call.key] = _Read(facts)
    return {
        step: tuple(
            {"entity": entity, "field": name, "value": value} for (entity, name), value in facts.items()
        )
        for step, facts in found.items()
        if len(facts) <= MAX_CHANGES
    }


def _facts(step: Transition, seen: JsonValue) -> _Facts:
    return {
        (record.entity, name): value
        for record in records(seen, step.call.args)
        for name, value in record.scalars()
        if is_scalar(value)
    }
