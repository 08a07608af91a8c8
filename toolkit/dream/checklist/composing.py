"""Imagined worlds, composed by code from recorded ones: an alike request's, with roles substituted.

The recorded world of a request of the same wording is taken as it is, so whatever hangs together in it
still does. What its own request named becomes what the new one names, ids become ids that are nobody's
there, other names are drawn anew. What nobody read of it is taken from a recorded thing that is most like
it. No model samples a world: in trials the very thing that the request is about was missing from half of
the sampled ones.
"""

import random
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from dreamgym_kit.dream.checklist.features import Fields
from dreamgym_kit.dream.checklist.focus import focus_of
from dreamgym_kit.dream.checklist.gate import alike
from dreamgym_kit.dream.checklist.labels import Work
from dreamgym_kit.dream.checklist.things import Advances, Things, gather, touched_by
from dreamgym_kit.dream.checklist.wording import Reading, Wordings
from dreamgym_kit.dream.state.entities import records
from dreamgym_kit.dream.state.history import Step
from dreamgym_kit.dream.state.values import copy_json, is_key, spell
from dreamgym_kit.plain import JsonValue

_TOKEN = re.compile(r"\w+(?:[-.@/]\w+)*")
_NEAR = 0.5  # of the words of two wordings that are shared, below which one is no donor for the other
_DEEP = 2  # lists of lists that are filled


class Donor(NamedTuple):
    """A recorded request and what was read of its world before anybody acted."""

    world: str
    reading: Reading
    reads: tuple[Step, ...]
    things: Things


@dataclass(frozen=True, slots=True)
class Shelf:
    """What is composed from.

    Attributes:
        donors: by wording.
        whole: things of which every read is known, by kind: what such a thing's reads say.
        values: open-class values by kind of value, ids among them.
        wordings: how requests are read.
        fields: which fields are closed.
        looks: by wording, the reads without which a world is no donor.
        tools: by kind, the reads that tell of such a thing when they are asked for it.
    """

    donors: Mapping[str, Sequence[Donor]]
    whole: Mapping[str, Sequence["Whole"]]
    values: Mapping[str, Sequence[str]]
    wordings: Wordings
    fields: Fields
    looks: Mapping[str, frozenset[str]] = field(default_factory=dict)
    tools: Mapping[str, frozenset[str]] = field(default_factory=dict)


class Whole(NamedTuple):
    """A thing of which every read was made: its id, its fields, and the reads that name it."""

    one: str
    fields: Mapping[str, JsonValue]
    reads: tuple[Step, ...]
    things: Things


def shelf_of(
    works: Iterable[Work],
    reads: Mapping[str, Sequence[Step]],
    wordings: Wordings,
    fields: Fields,
    looks: Mapping[str, frozenset[str]],
) -> Shelf:
    """Put recorded worlds on the shelf; `reads` are their clean reads (see `clean_reads`)."""
    things = {world: gather([some], _never) for world, some in reads.items()}
    donors: dict[str, list[Donor]] = defaultdict(list)
    seen: set[tuple[str, str]] = set()
    for work in works:
        if work.world in reads and (work.world, work.text) not in seen:
            seen.add((work.world, work.text))
            reading = wordings.read(work.text)
            known = things[work.world]
            if _is_read(known, reading, looks.get(reading.wording, frozenset())):
                donors[reading.wording].append(Donor(work.world, reading, tuple(reads[work.world]), known))
    values: dict[str, list[str]] = defaultdict(list)
    for value, kind in sorted(wordings.values.items()):
        values[kind].append(value)
    tools = _telling(things.values())
    return Shelf(dict(donors), _wholes(reads, things, tools), dict(values), wordings, fields, looks, tools)


def clean_reads(episodes: Iterable[Sequence[Step]], advances: Advances) -> list[Step]:
    """The reads of one world's episodes that show nothing of what a write before them touched, each once."""
    found: dict[tuple[str, str], Step] = {}
    for steps in episodes:
        touched: set[str] = set()
        for step in steps:
            if step.writes:
                touched.update(touched_by(step.args) if advances(step) else ())
            elif _is_clean(step, touched):
                found.setdefault((step.tool, step.spelled), step)
    return list(found.values())


def _is_clean(step: Step, touched: set[str]) -> bool:
    """Whether nothing that is shown was touched; the owner of listed rows may have been."""
    shown = {record.entity for record in records(step.seen, step.args) if record.named}
    if step.failed or not shown:
        shown = {str(value) for value in step.args.values()}
    return touched.isdisjoint(shown)


def composed(shelf: Shelf, text: str, *, seed: str) -> list[Step]:
    """The reads of an imagined world for this request; equal seeds give equal worlds.

    Empty where no recorded request is like it.
    """
    chance = random.Random(f"imagined {seed} {text}")  # noqa: S311  reproducible, not secret
    reading = shelf.wordings.read(text)
    donors = _donors(shelf, reading)
    if not donors:
        return []
    donor = chance.choice(donors)
    whole = _completed(shelf, donor.reads, donor.things, chance)
    renamed = _renaming(shelf, donor, whole, reading, chance)
    return [_substituted(step, renamed) for step in whole]


def completed(shelf: Shelf, reads: Sequence[Step], *, seed: str) -> list[Step]:
    """A recorded world's reads, and those that nobody made of its things; what was told stays as it is."""
    chance = random.Random(f"completed {seed}")  # noqa: S311  reproducible, not secret
    return _completed(shelf, reads, gather([reads], _never), chance)


def _donors(shelf: Shelf, reading: Reading) -> Sequence[Donor]:
    exact = shelf.donors.get(reading.wording)
    if exact:
        return exact
    fitting = [
        wording
        for wording, some in shelf.donors.items()
        if some and set(some[0].reading.mentions) == set(reading.mentions)
    ]
    if not fitting:
        return ()
    near = max(sorted(fitting), key=lambda wording: alike(wording, reading.wording))
    return shelf.donors[near] if alike(near, reading.wording) >= _NEAR else ()


def _is_read(things: Things, reading: Reading, looks: frozenset[str]) -> bool:
    near = {*focus_of(things, reading).own, *reading.values}
    return looks <= {tool for tool, of in things.asked if of in near}


def _telling(worlds: Iterable[Things]) -> dict[str, frozenset[str]]:
    """By kind, the reads that ever said something of such a thing; a crawl also asks those that never do."""
    found: dict[str, set[str]] = defaultdict(set)
    for things in worlds:
        for tool, of in things.asked - things.failing:
            if of in things.kinds:
                found[things.kinds[of]].add(tool)
    return {kind: frozenset(tools) for kind, tools in found.items()}


def _wholes(
    reads: Mapping[str, Sequence[Step]], worlds: Mapping[str, Things], tools: Mapping[str, frozenset[str]]
) -> dict[str, list[Whole]]:
    """The things of which every read is known that ever tells of their kind."""
    found: dict[str, list[Whole]] = defaultdict(list)
    for world, things in worlds.items():
        by_key: dict[str, list[Step]] = defaultdict(list)
        for step in reads[world]:
            for value in step.args.values():
                by_key[str(value)].append(step)
        for one, kind in things.kinds.items():
            mine = by_key.get(one, [])
            if tools.get(kind) and {step.tool for step in mine} >= tools[kind]:
                found[kind].append(Whole(one, things.fields.get(one, {}), tuple(mine), things))
    return dict(found)


def _completed(shelf: Shelf, reads: Sequence[Step], things: Things, chance: random.Random) -> list[Step]:
    """A world's reads, and those that nobody made of the things in it, from things most like them."""
    steps = list(reads)
    known = things.copy()
    taken = set(known.kinds)
    todo = [(one, _DEEP) for one in known.kinds]
    while todo:
        one, depth = todo.pop(0)
        kind = known.kinds[one]
        whole = _most_alike(shelf, kind, known.fields.get(one, {}), chance)
        if whole is None or depth == 0:
            continue
        made = _as_read_of(whole, one, known, shelf, taken, chance)
        for step in made:
            key = next((str(value) for value in step.args.values() if is_key(value)), "")
            if (step.tool, key) in known.asked:
                continue
            known.hear(step)
            steps.append(step)
            new = [record.entity for record in records(step.seen, step.args) if record.entity not in taken]
            taken.update(new)
            todo += [(row, depth - 1) for row in new if row in known.kinds]
    return steps


def _most_alike(
    shelf: Shelf, kind: str, fields: Mapping[str, JsonValue], chance: random.Random
) -> Whole | None:
    """A thing of the kind that agrees in the most closed fields; by chance among those."""
    some = shelf.whole.get(kind, ())
    if not some:
        return None

    def agreeing(whole: Whole) -> int:
        return sum(
            (kind, name) in shelf.fields.closed and whole.fields.get(name) == value
            for name, value in fields.items()
        )

    most = max(map(agreeing, some))
    return chance.choice([whole for whole in some if agreeing(whole) == most])


def _as_read_of(
    whole: Whole, one: str, known: Things, shelf: Shelf, taken: set[str], chance: random.Random
) -> list[Step]:
    """What is read of a whole thing, as if it had been read of another."""
    renamed: dict[str, str] = {whole.one: one}
    mine, fields = whole.things.owners.get(whole.one, {}), known.fields.get(one, {})
    for kind, owner in mine.items():
        renamed[owner] = known.owners.get(one, {}).get(kind) or _new_id(shelf, kind, taken, chance)
    for row in whole.things.children(whole.one):
        renamed.setdefault(row, _new_id(shelf, whole.things.kinds[row], taken, chance))
    kind = whole.things.kinds[whole.one]
    for name, value in fields.items():  # what differs in open fields is carried over: a price to its payments
        theirs = whole.fields.get(name)
        if (kind, name) not in shelf.fields.closed and isinstance(theirs, str) and isinstance(value, str):
            renamed.setdefault(theirs, value)
    return [_told_of(_substituted(step, renamed), one, fields) for step in whole.reads]


def _told_of(step: Step, one: str, fields: Mapping[str, JsonValue]) -> Step:
    """The read with what is known of the thing already."""
    seen = copy_json(step.seen)
    for record in records(seen, step.args):
        if record.entity == one:
            record.fields.update({name: value for name, value in fields.items() if name in record.fields})
    return step._replace(seen=seen)


def _renaming(
    shelf: Shelf, donor: Donor, steps: Sequence[Step], reading: Reading, chance: random.Random
) -> dict[str, str]:
    """From what the donor's world names to what the new one does; one to one within each kind."""
    said: dict[str, str] = {}
    for kind, values in reading.mentions.items():
        said.update(zip(donor.reading.mentions.get(kind, ()), values, strict=False))
    used = set(said.values())
    names = dict.fromkeys(
        token
        for step in steps
        for text in _texts([dict(step.args), step.seen])
        for token in (text, *_TOKEN.findall(text))
        if token in shelf.wordings.values or token in donor.things.kinds
    )
    renamed = dict(said)
    for name in names:
        if name not in renamed:
            kind = shelf.wordings.values.get(name) or donor.things.kinds[name]
            renamed[name] = _new_id(shelf, kind, used, chance, like=name)
    return renamed


def _new_id(shelf: Shelf, kind: str, taken: set[str], chance: random.Random, like: str = "") -> str:
    """A value of a kind that nothing is called by yet; `taken` learns of it."""
    free = [value for value in shelf.values.get(kind, ()) if value not in taken]
    if free:
        value = chance.choice(free)
    else:
        value = like or f"{kind}-1"
        while value in taken or value == like:
            value = (
                re.sub(r"\d", lambda _: str(chance.randrange(10)), value)
                if re.search(r"\d", value)
                else (f"{value}{chance.randrange(10)}")
            )
    taken.add(value)
    return value


def _substituted(step: Step, renamed: Mapping[str, str]) -> Step:
    args = {name: _replaced(value, renamed) for name, value in step.args.items()}
    return step._replace(args=args, spelled=spell(args), seen=_replaced(step.seen, renamed))


def _replaced(value: JsonValue, renamed: Mapping[str, str]) -> JsonValue:
    if isinstance(value, dict):
        return {renamed.get(key, key): _replaced(item, renamed) for key, item in value.items()}
    if isinstance(value, list):
        return [_replaced(item, renamed) for item in value]
    if isinstance(value, str):
        if value in renamed:
            return renamed[value]
        return _TOKEN.sub(lambda found: renamed.get(found.group(), found.group()), value)
    return value


def _texts(value: JsonValue) -> Iterable[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, str):
        yield value


def _never(_: Step) -> bool:
    return False
