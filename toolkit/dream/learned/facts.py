"""Everything around a call that its outcome may hang on, by name, before any of it is put into words.

`args.topic` is an argument that names no thing; `order.status` what is known of a thing; `order.there`
whether it is there; `order.after.cancel_order` that this was done to it, `order.failed.refund_payment` that
this failed and acted all the same; `amount~payment.amount` how an argument compares; `done` whether this
very call went well before. What is not known has no name: open world.

A thing goes by its role: the kind of its record ("order" of `order_id`), or its argument's name where two
are of one kind. No id and no name leaves here, so that what is learned of one order holds for all.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from dreamgym_kit.dream.state.claims import records_of
from dreamgym_kit.dream.state.entities import is_id_name, mentioned
from dreamgym_kit.dream.state.forms import form_of
from dreamgym_kit.dream.state.likeness import Usuals, well_known
from dreamgym_kit.dream.state.models import LAST, ToolModels
from dreamgym_kit.dream.state.names import Names
from dreamgym_kit.dream.state.observed import failed
from dreamgym_kit.dream.state.values import as_number, is_key, is_scalar, spell
from dreamgym_kit.dream.state.views import State, args_of
from dreamgym_kit.serialization import JsonValue

Facts = Mapping[str, JsonValue]
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


def facts_of(models: ToolModels, state: State, tool: str, args: Mapping[str, JsonValue]) -> Facts:
    """The facts around a call, in a fixed order."""
    things = things_of(state, models.usual, tool, args)
    naming = {name for name, _ in references(models.usual, tool, args)}
    given = {name: value for name, value in args.items() if name not in naming and is_scalar(value)}
    facts: dict[str, JsonValue] = {f"args.{name}": value for name, value in given.items()}
    for name, value in given.items():
        number = as_number(value)
        facts[f"{name}~0"] = "no_number" if number is None else _sign(number)
    for thing in things:
        if thing.named:
            facts[f"{thing.role}.there"] = thing.there
        facts.update({f"{thing.role}.{name}": value for name, value in thing.fields.items()})
        if thing.named:
            facts.update(_done_to(state, thing))
    facts.update(_compared(given, things))
    facts["done"] = "yes" if (tool, spell(dict(args))) in state.done else "no"
    return facts


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


def form_of_failure(seen: JsonValue, args: Mapping[str, JsonValue]) -> str | None:
    """Name the form of a failure: its text without what differs from call to call; None of other answers.

    It rests on nothing that was mined, so what was learned from some recordings holds for others.
    """
    if not failed(seen):
        return None
    return form_of(seen, Names({f"args.{name}": value for name, value in args.items()}))


def _sign(number: float) -> str:
    return "zero" if number == 0 else "below" if number < 0 else "above"


def _done_to(state: State, thing: Thing) -> Iterable[tuple[str, JsonValue]]:
    for tool, spelled in sorted(state.done):
        if thing.entity in mentioned(dict(args_of(spelled))):
            yield f"{thing.role}.after.{tool}", "yes"
    for (name, _), view in state.views.items():
        if name.startswith(LAST):
            last = view.observation
            if failed(last["answer"]) and thing.entity in mentioned(last["args"]):
                yield f"{thing.role}.failed.{name.removeprefix(LAST)}", "yes"


def _compared(given: Facts, things: Iterable[Thing]) -> Iterable[tuple[str, JsonValue]]:
    for name, value in given.items():
        number = as_number(value)
        for thing in things:
            for of, known in thing.fields.items():
                other = as_number(known)
                if number is not None and other is not None:
                    same = "equal" if number == other else "less" if number < other else "more"
                    yield f"{name}~{thing.role}.{of}", same
                elif isinstance(value, str) and isinstance(known, str) and number is None and other is None:
                    yield f"{name}~{thing.role}.{of}", "same" if value == known else "other"


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
