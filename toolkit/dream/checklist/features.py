"""Facts that may decide whether a candidate belongs on the list: without ids, names or raw numbers.

Closed fields of its own thing and of those in the other roles, whether any and whether several have a
value, its place among its kind, whether two roles are the same thing, which reads fail, and the words of
the request. Numbers are told as ranges between mined cuts: so small a model does not learn to compare.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from dreamgym_kit.dream.checklist.focus import is_single, owner_kind
from dreamgym_kit.dream.checklist.growing import Known, Name
from dreamgym_kit.dream.checklist.patterns import Candidate, Scene
from dreamgym_kit.dream.checklist.things import Things
from dreamgym_kit.dream.checklist.wording import CLOSED
from dreamgym_kit.dream.state.trees import Feature
from dreamgym_kit.dream.state.values import as_number, spell
from dreamgym_kit.plain import JsonValue

OWN, SAYS, THE, ANY, MANY, SAME, FAILS, PLACE = (
    "own",
    "says",
    "the",
    "any",
    "many",
    "same",
    "fails",
    "place",
)
_SEVERAL = 2


@dataclass(frozen=True, slots=True)
class Fields:
    """Which fields tell: closed ones, and numbers with the cuts between their ranges; by (kind, field)."""

    closed: frozenset[tuple[str, str]]
    cuts: Mapping[tuple[str, str], tuple[float, ...]] = field(default_factory=dict)
    numbers: frozenset[tuple[str, str]] = frozenset()

    def told(self, kind: str, name: str, value: JsonValue) -> str | None:
        """A value as a fact says it; None where it is none of those that tell."""
        key = (kind, name)
        if key in self.closed:
            return value if isinstance(value, str) else spell(value)
        if self.cuts.get(key):
            number = as_number(value)
            return None if number is None else self._range(self.cuts[key], number)
        return None

    def _range(self, cuts: tuple[float, ...], number: float) -> str:
        at = bisect_right(cuts, number)
        low = f"from {cuts[at - 1]:g}" if at else ""
        high = f"below {cuts[at]:g}" if at < len(cuts) else ""
        return f"{low} {high}".strip()


def fields_of(worlds: Iterable[Things]) -> Fields:
    """Which fields of recorded things are closed, and which are numbers; without cuts yet."""
    seen: dict[tuple[str, str], set[str]] = defaultdict(set)
    numeric: dict[tuple[str, str], bool] = defaultdict(lambda: True)
    for things in worlds:
        for one, fields in things.fields.items():
            for name, value in fields.items():
                key = (things.kinds[one], name)
                seen[key].add(spell(value))
                numeric[key] &= as_number(value) is not None
    numbers = frozenset(key for key, values in seen.items() if numeric[key] and len(values) > 2)
    closed = frozenset(key for key, values in seen.items() if len(values) <= CLOSED and key not in numbers)
    return Fields(closed, {}, numbers)


def facts_of(
    scene: Scene, candidate: Candidate, fields: Fields, shared: Mapping[Feature, Hashable] | None = None
) -> dict[Feature, Hashable]:
    """All facts around a candidate; `shared` are those of the scene, where they are at hand."""
    facts = dict(shared if shared is not None else scene_facts(scene, fields))
    facts.update(_own_facts(scene, candidate, fields))
    return facts


def scene_facts(scene: Scene, fields: Fields) -> dict[Feature, Hashable]:
    """The facts that all candidates of a scene share."""
    facts: dict[Feature, Hashable] = {(SAYS, word): True for word in scene.reading.words}
    for role, ids in scene.focus.roles.items():
        facts.update(_role_facts(scene, role, ids, fields))
    facts.update(_sameness(scene))
    return facts


def own_seen(scene: Scene, candidate: Candidate, fields: Fields) -> dict[Name, Known]:
    """A candidate's own facts as trees ask for them."""
    seen = _grouped(_own_facts(scene, candidate, fields))
    for one in candidate.things:
        seen.update(_numbers(scene.things, one, (OWN,), fields))
        for kind, owner in scene.things.owners.get(one, {}).items():
            seen.update(_numbers(scene.things, owner, (OWN, kind), fields))
    return seen


def scene_seen(scene: Scene, fields: Fields) -> dict[Name, Known]:
    """What candidates of a scene share, as trees ask for it: values of a fact together, numbers as such."""
    seen = _grouped(iter(scene_facts(scene, fields).items()))
    seen[(SAYS,)] = frozenset((*scene.reading.words, *(f"<{kind}>" for kind in scene.reading.mentions)))
    for role, ids in scene.focus.roles.items():
        if is_single(role, ids):
            seen.update(_numbers(scene.things, ids[0], (THE, role), fields))
    return seen


def _grouped(facts: Iterator[tuple[Feature, Hashable]]) -> dict[Name, Known]:
    found: dict[Name, set[Hashable]] = defaultdict(set)
    for feature, value in facts:
        if feature[0] in (ANY, MANY):
            found[feature[:-1]].add(feature[-1])
        elif feature[0] != SAYS:
            found[feature].add(value)
    for name in [name for name in found if name[0] == ANY]:
        found[(MANY, *name[1:])] |= set()  # known to be none, where nothing is there twice
    return {name: frozenset(values) for name, values in found.items()}


def _numbers(things: Things, one: str, name: Name, fields: Fields) -> Iterator[tuple[Name, float]]:
    kind = things.kinds.get(one, "")
    for told, value in things.fields.get(one, {}).items():
        number = as_number(value)
        if (kind, told) in fields.numbers and number is not None:
            yield (*name, told), number


def numbers_of(scene: Scene, candidate: Candidate, fields: Fields) -> Iterator[tuple[tuple[str, str], float]]:
    """The numbers around a candidate that cuts are mined of: of its own things and of those singled out."""
    near = [*candidate.things, *(ids[0] for role, ids in scene.focus.roles.items() if is_single(role, ids))]
    for one in dict.fromkeys(near):
        for name, value in scene.things.fields.get(one, {}).items():
            key = (scene.things.kinds[one], name)
            number = as_number(value)
            if key in fields.numbers and number is not None:
                yield key, number


def _own_facts(scene: Scene, candidate: Candidate, fields: Fields) -> Iterator[tuple[Feature, Hashable]]:
    for one, role in zip(candidate.things, candidate.pattern.roles, strict=True):
        for name, value in _told(scene.things, one, fields):
            yield (OWN, name), value
        for name, fails in _failing(scene.things, one):
            yield (OWN, FAILS, name), fails
        ids = _siblings(scene, one, role)
        if len(ids) > 1:
            last = "last" if one == ids[-1] else "between"
            yield (OWN, PLACE), "first" if one == ids[0] else last
        else:
            yield (OWN, PLACE), "only"
        for kind, owner in scene.things.owners.get(one, {}).items():
            for name, value in _told(scene.things, owner, fields):
                yield (OWN, kind, name), value


def _siblings(scene: Scene, one: str, role: str) -> list[str]:
    """The things of a candidate's kind that belong to the same owner, in their order."""
    owner = scene.things.owners.get(one, {}).get(owner_kind(role))
    if owner is None:
        return [one]
    kinds = scene.things.kinds
    return [other for other in scene.things.children(owner) if kinds[other] == kinds[one]]


def _role_facts(
    scene: Scene, role: str, ids: tuple[str, ...], fields: Fields
) -> Iterator[tuple[Feature, Hashable]]:
    if is_single(role, ids):
        for name, value in _told(scene.things, ids[0], fields):
            yield (THE, role, name), value
        for name, fails in _failing(scene.things, ids[0]):
            yield (FAILS, role, name), fails
    if "<" not in role:
        return
    counted: dict[tuple[str, str], int] = defaultdict(int)
    for one in ids:
        for told in _told(scene.things, one, fields):
            counted[told] += 1
    for (name, value), count in counted.items():
        yield (ANY, role, name, value), True
        if count >= _SEVERAL:
            yield (MANY, role, name, value), True


def _sameness(scene: Scene) -> Iterator[tuple[Feature, Hashable]]:
    """Whether the owner of what is named is itself what is named."""
    for role, ids in scene.focus.roles.items():
        if ">" not in role:
            continue
        kind = role.partition(">")[0]
        for other, named in scene.focus.roles.items():
            if other.startswith(f"{kind}:") and len(ids) == len(named) == 1:
                yield (SAME, role, other), ids == named


def _told(things: Things, one: str, fields: Fields) -> Iterator[tuple[str, str]]:
    kind = things.kinds.get(one, "")
    for name, value in things.fields.get(one, {}).items():
        told = fields.told(kind, name, value)
        if told is not None:
            yield name, told


def _failing(things: Things, one: str) -> Iterator[tuple[str, bool]]:
    """The reads that somebody asked of a thing, and whether they fail."""
    return ((tool, (tool, of) in things.failing) for tool, of in things.asked if of == one)
