"""What a successful agent never read cannot have decided: it is filled from elsewhere, the label stays.

Otherwise what happens to be known gives the answer away (payments were looked up, so there was a refund),
or what a crawl knows besides is taken for a reason. Facts are drawn thing by thing from things of the same
kind.
"""

import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from dreamgym_kit.dream.checklist.focus import focus_of
from dreamgym_kit.dream.checklist.labels import Example
from dreamgym_kit.dream.checklist.patterns import Scene
from dreamgym_kit.dream.checklist.things import Things
from dreamgym_kit.plain import JsonValue


class Profile(NamedTuple):
    """One recorded thing: its fields, the reads of it that fail, and what is listed for it."""

    fields: Mapping[str, JsonValue]
    failing: frozenset[str]
    asked: frozenset[str]
    rows: Mapping[str, tuple["Profile", ...]]  # by read
    kind: str


class Donors:
    """Recorded things, by kind, to take facts from."""

    def __init__(self, worlds: Iterable[Things]) -> None:
        self.by_kind: dict[str, list[Profile]] = defaultdict(list)
        for things in worlds:
            for one in things.kinds:
                made = profile_of(things, one)
                if made.asked:  # of a thing that was only listed the rest is unknown
                    self.by_kind[made.kind].append(made)
                elif made.fields:
                    self.by_kind[f"listed {made.kind}"].append(made)

    def draw(self, kind: str, chance: random.Random) -> Profile | None:
        """Any thing of a kind; None where none was recorded."""
        some = self.by_kind.get(kind) or self.by_kind.get(f"listed {kind}")
        return chance.choice(some) if some else None


def profile_of(things: Things, one: str) -> Profile:
    """A thing with what is listed for it."""
    asked = frozenset(tool for tool, of in things.asked if of == one)
    rows = {
        tool: tuple(profile_of(things, row) for row in ids if row != one)
        for (tool, of), ids in things.rows.items()
        if of == one
    }
    failing = frozenset(tool for tool, of in things.failing if of == one)
    return Profile(things.fields.get(one, {}), failing, asked, rows, things.kinds[one])


def filled(example: Example, donors: Donors, chance: random.Random) -> Example:
    """The example with all that its successful agent never read drawn anew."""
    scene = example.scene
    things = scene.things.copy()
    for one in scene.focus.own:
        _redraw(things, one, example.read, donors, chance)
    return example._replace(scene=Scene(things, scene.reading, focus_of(things, scene.reading)))


def _redraw(things: Things, one: str, read: Things, donors: Donors, chance: random.Random) -> None:
    kind = things.kinds.get(one)
    donor = donors.draw(kind, chance) if kind is not None else None
    if donor is None:
        return
    known = read.fields.get(one, {})
    # what has a name of its own says which thing it is, and stays
    fields = {**donor.fields, **_names(things.fields.get(one, {}), things, one), **known}
    things.fields[one] = fields
    for tool in donor.asked | {tool for tool, of in things.asked if of == one}:
        if (tool, one) in read.asked:
            continue
        things.asked.add((tool, one))
        things.failing.discard((tool, one))
        if tool in donor.failing:
            things.failing.add((tool, one))
    for tool, rows in donor.rows.items():
        if (tool, one) not in things.rows and (tool, one) not in read.asked:
            things.rows[tool, one] = tuple(
                _attached(things, one, row, number, tool) for number, row in enumerate(rows)
            )


def _names(fields: Mapping[str, JsonValue], things: Things, one: str) -> dict[str, JsonValue]:
    """Fields that the world's reads go by: a customer found by this name still has it."""
    return {
        name: value
        for name, value in fields.items()
        if isinstance(value, str) and one in things.keyed.get(value, ())
    }


def _attached(things: Things, owner: str, row: Profile, number: int, tool: str) -> str:
    """A listed thing under an id that is nobody's."""
    one = f"{owner} {tool} {number + 1}"
    things.kinds[one], things.fields[one] = row.kind, dict(row.fields)
    things.owners[one] = {things.kinds[owner]: owner}
    return one


def many_filled(
    examples: Sequence[Example], donors: Donors, times: int, *, seed: int = 0
) -> tuple[tuple[Example, ...], ...]:
    """All examples, so many times, each time filled otherwise."""
    chance = random.Random(f"completing {seed}")  # noqa: S311  reproducible, not secret
    return tuple(tuple(filled(example, donors, chance) for example in examples) for _ in range(times))
