"""The things that a call is about, as far as they are known: those that it names, and those linked to them.

A thing goes by its role: the kind of its record ("order" of `order_id`), or its argument's name where two
are of one kind. No id and no name leaves here, so that what is learned of one order holds for all.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from dreamgym_kit.dream.state.claims import records_of
from dreamgym_kit.dream.state.entities import is_id_name
from dreamgym_kit.dream.state.likeness import Usuals, well_known
from dreamgym_kit.dream.state.values import is_key
from dreamgym_kit.dream.state.views import State
from dreamgym_kit.serialization import JsonValue

_ID_ENDING = re.compile(r"(?<=.)_?(?:ids?|no|number|key|ref|code|uuid|sku)$", re.IGNORECASE)
_BELIEVED = 0.5  # confidence from which a view says what a thing is like
_LINKS = 2  # steps from a named thing: payment, order, customer


@dataclass(frozen=True, slots=True)
class Thing:
    """One thing.

    Attributes:
        entity: its id, as text.
        role: how facts name it.
        named: whether the call names it; the others are linked to one that is.
        there: "yes", "denied", "unheard" (of in a world that is well known) or "unknown".
        fields: what is known of it, without ids.
    """

    entity: str
    role: str
    named: bool
    there: str
    fields: Mapping[str, JsonValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Seen:
    kind: str | None  # None: no record of it is known
    fields: Mapping[str, JsonValue]
    links: tuple[tuple[str, str], ...]  # (kind, entity)


def things_of(state: State, usual: Usuals, tool: str, args: Mapping[str, JsonValue]) -> tuple[Thing, ...]:
    """Named things first, in the order of the arguments; each role once."""
    named = [(name, str(value), _seen(state, str(value))) for name, value in references(usual, tool, args)]
    kinds = [seen.kind or kind_of(name) for name, _, seen in named]
    things: dict[str, Thing] = {}
    for (name, entity, seen), kind in zip(named, kinds, strict=True):
        role = kind if kinds.count(kind) == 1 else kind_of(name)
        if role not in things:
            there = _there(state, entity)
            things[role] = Thing(entity, role, named=True, there=there, fields=seen.fields)
    ring = [link for _, _, seen in named for link in seen.links]
    for _ in range(_LINKS):
        further: list[tuple[str, str]] = []
        for kind, entity in ring:
            if kind not in things:
                seen = _seen(state, entity)
                things[kind] = Thing(entity, kind, named=False, there="yes", fields=seen.fields)
                further += seen.links
        ring = further
    return tuple(things.values())


def references(usual: Usuals, tool: str, args: Mapping[str, JsonValue]) -> Iterator[tuple[str, JsonValue]]:
    """The arguments that name things: by their own name, or because values of calls that went well did."""
    for name, value in args.items():
        known = usual.get((tool, name))
        if is_key(value) and (is_id_name(name) or (known is not None and known.is_reference)):
            yield name, value


def kind_of(name: str) -> str:
    """The kind of thing that a field or argument of this name holds the id of."""
    return _ID_ENDING.sub("", name)


def _there(state: State, entity: str) -> str:
    if state.denies(entity):
        return "denied"
    if state.has_seen(entity):
        return "yes"
    return "unheard" if well_known(state) else "unknown"


def _seen(state: State, entity: str) -> _Seen:
    """What views say of a thing; what was said after more writes counts before what was said earlier."""
    fields: dict[str, JsonValue] = {}
    kind: str | None = None
    links: dict[tuple[str, str], None] = {}
    shown = [
        (view, record)
        for view, record in records_of(state, entity)
        if not view.failed and view.confidence >= _BELIEVED
    ]
    for view, record in sorted(shown, key=lambda entry: (entry[0].step, entry[0].confidence)):
        if record.kind_is_known:
            kind = kind_of(record.named)
        for name, value in record.scalars():
            if is_id_name(name) and is_key(value):
                links[kind_of(name), str(value)] = None
            else:
                fields[name] = value
        for name, value in view.args.items():
            if is_id_name(name) and is_key(value) and str(value) != entity:
                links[kind_of(name), str(value)] = None
    return _Seen(kind, fields, tuple(links))
