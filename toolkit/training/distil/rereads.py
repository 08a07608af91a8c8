"""What a write changed, by the reads before and after it in its own episode, whichever reads they were.

A fact that was told after the write before and again before the write after belongs to the one write between.
What a write did is known where a fact of a thing that it names was told on both sides, or where any fact is
found changed. Of other writes nobody knows: there, changes are not learned.
"""

from collections.abc import Mapping, Sequence

from dreamgym_kit.dream.decision import MAX_CHANGES
from dreamgym_kit.dream.state.entities import mentioned, records
from dreamgym_kit.dream.state.observed import failed, observation
from dreamgym_kit.dream.state.values import spell
from dreamgym_kit.plain import JsonValue
from dreamgym_kit.vocabulary import Transition

Change = Mapping[str, JsonValue]
_Fact = tuple[str, str]  # entity, field


def observed_changes(steps: Sequence[Transition]) -> dict[int, tuple[Change, ...]]:
    """By step of a write that worked, the facts that it changed; a write that nobody tells of is left out.

    Writes that changed more than `MAX_CHANGES` facts are left out too: no decision can say that.
    """
    writes: list[Transition] = []  # that worked
    told: dict[_Fact, tuple[int, JsonValue]] = {}  # how many writes there had been, and the value
    found: dict[int, dict[_Fact, JsonValue]] = {}
    for step in steps:
        seen = observation(step.answer)
        if failed(seen):
            continue
        if step.effect.changes_world:
            writes.append(step)
            continue
        for record in records(seen, step.call.args):
            for name, value in record.scalars():
                fact = record.entity, name
                since, before = told.get(fact, (-1, None))
                if since >= 0 and since == len(writes) - 1:
                    write = writes[-1]
                    changed = spell(before) != spell(value)
                    if changed or record.entity in mentioned(dict(write.call.args)):
                        found.setdefault(write.step, {}).update({fact: value} if changed else {})
                told[fact] = len(writes), value
    return {
        step: tuple(
            {"entity": entity, "field": name, "value": value} for (entity, name), value in facts.items()
        )
        for step, facts in found.items()
        if len(facts) <= MAX_CHANGES
    }
