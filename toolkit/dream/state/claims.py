"""What a model claims that a write changed, as state: views that show the thing say so from then on.

Rules that were mined or declared go first and are not overruled where they rest on enough; what no rule
tells is the model's word, at the model's support. Fields that no view shows are kept as known fields, so
that a read which shows them later has to agree. A write that names a thing without telling what became of
it makes the thing's known fields unknown again: open world.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from dreamgym_kit.dream.state.entities import Record, mentioned, records, with_field
from dreamgym_kit.dream.state.history import HistoryStep
from dreamgym_kit.dream.state.models import ToolModels
from dreamgym_kit.dream.state.stated import DECLARED
from dreamgym_kit.dream.state.values import MISSING, is_number, is_scalar, spell
from dreamgym_kit.dream.state.views import State, View, ViewKey
from dreamgym_kit.serialization import JsonValue

ENOUGH = 5
"""Pairs of a read around a write, from which on a rule is believed before the model."""
_NEVER_CHANGED = 20  # pairs of reads of the very thing around a write that show which fields it changes
_DOUBTED = 0.5
_UNKNOWN = " -> ?"
_MODEL = "the model"
_NO_ANSWER = re.compile(r"time[sd]?[ -]?out|no answer|no response|connection|unavailable", re.IGNORECASE)


class Claim(NamedTuple):
    """One changed fact."""

    entity: str
    field: str
    value: JsonValue


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of things beside the views.

    Attributes:
        fields: by thing and field, what a write was said to have set.
        shown: by thing and field, what a write's answer showed of it.
        told: by id, how many writes there had been when a record of it was told last, and the id's name.
        written: by id, the number of the last write that named it, and a half for one that may have acted.
    """

    fields: Mapping[str, Mapping[str, JsonValue]] = field(default_factory=dict)
    shown: Mapping[str, Mapping[str, JsonValue]] = field(default_factory=dict)
    told: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    written: Mapping[str, float] = field(default_factory=dict)

    def there(self, entity: str, named: str) -> bool:
        """Whether the agent was told of it under this name of its id, and nothing was done to it since."""
        writes, name = self.told.get(entity, (-1, ""))
        return name == named and self.written.get(entity, -1) <= writes


def claims_of(changes: Iterable[Mapping[str, JsonValue]]) -> tuple[Claim, ...]:
    """An answer's changes; what is no change of a fact is left out."""
    return tuple(
        Claim(str(change["entity"]), str(change["field"]), change["value"])
        for change in changes
        if {"entity", "field", "value"} <= set(change)
    )


def believed(models: ToolModels, step: HistoryStep, view: View) -> bool:
    """Whether what a write does to a view is known better than by the model: declared, or often recorded."""
    said = models.stated.get(step.tool)
    if said is not None and said.source == DECLARED and said.speaks_of(view.tool):
        return True
    rule = models.rules.get((step.tool, models.form(step)), {}).get(view.tool)
    return rule is not None and rule.same + rule.changed >= ENOUGH


def changing_fields(models: ToolModels, tool: str) -> frozenset[str] | None:
    """The fields that recordings show a write to change; None where they do not show enough to say so."""
    rules = [
        rule
        for (write, _), by_read in models.rules.items()
        if write == tool
        for read, rule in by_read.items()
        if ":" not in read
    ]
    if sum(rule.about.total() for rule in rules) < _NEVER_CHANGED:  # of other things it says nothing
        return None
    found = set()
    for rule in rules:
        if rule.program is None:
            return None
        for path, _ in rule.program:
            if not path or path[-1].kind != "key":
                return None
            found.add(str(path[-1].key))
    return frozenset(found)


def claimed(
    models: ToolModels,
    before: State,
    after: State,
    step: HistoryStep,
    claims: Iterable[Claim],
    support: float,
) -> State:
    """The state after a write whose changes a model told.

    Args:
        models: rules; they are believed first.
        before: the state that the write met.
        after: what the rules make of it.
        step: the write and its answer.
        claims: what the model says that it changed, and that nothing else was.
        support: 0..1, of the model's answer.
    """
    views = dict(after.views)
    told = _Told(before, step, tuple(claims), support)
    for key, view in before.views.items():
        if ":" in view.tool or believed(models, step, view):
            continue
        views.pop(key, None)
        made = told.view_after(view, after.views.get(key))
        if made is not None:
            views[key] = made
    return replace(after, views=views)


class _Told:
    """What a model told of one write, for the views that no rule is sure about."""

    def __init__(self, before: State, step: HistoryStep, claims: tuple[Claim, ...], support: float) -> None:
        self._claims, self._support, self._step = claims, support, step
        self._touched = {*mentioned(dict(step.args)), *mentioned(step.seen)} | {one.entity for one in claims}
        self._made = {
            one.named for one in records(step.seen, {}) if one.named and not before.has_heard(one.entity)
        }
        self._somewhere = {
            claim
            for claim in claims
            for view, record in records_of(before, claim.entity)
            if claim.field in record.fields
        }

    def view_after(self, view: View, ruled: View | None) -> View | None:
        """A view after the write; None where nobody can tell any more."""
        if self._made and self._may_list(view):
            return None
        shown = [claim for claim in self._claims if _shows(view, claim.entity)]
        seen = view.observation
        for claim in shown:
            changed = with_field(seen, view.args, claim.entity, claim.field, claim.value)
            seen = changed if changed is not None else seen
        if seen is not view.observation:
            return self._view(view, seen)
        if shown:  # the thing, but not what changed: another side of it, or what nobody has seen yet
            known = all(claim in self._somewhere for claim in shown)
            return self._view(view) if known else view.believed(_DOUBTED, f"{self._step.tool}{_UNKNOWN}")
        named = {record.entity for record in records(view.observation, view.args)} | {
            *mentioned(dict(view.args))
        }
        doubted = sorted(self._touched & named)
        if doubted:  # nobody says what became of it there
            for entity in doubted:
                view = view.believed(_DOUBTED, _doubt(entity))
            return view
        return ruled if ruled is not None and ruled.confidence > self._support else self._view(view)

    def _may_list(self, view: View) -> bool:
        """Whether a thing that was made may be among the rows of a view."""
        if not self._touched.isdisjoint(view.args.values() if view.args else ()):
            return True
        return _has_list(view.observation, self._made)

    def _view(self, view: View, seen: JsonValue = MISSING) -> View:
        return View(
            view.tool,
            view.spelled,
            view.observation if seen is MISSING else seen,
            confidence=min(view.confidence, self._support),
            source=view.source if seen is MISSING else "rule",
            step=view.step,
            through=view.through | {_MODEL},
            like=view if seen is MISSING else None,
        )


def _has_list(seen: JsonValue, named: set[str]) -> bool:
    """Whether there is a list that is empty, or whose rows have an id of one of these names."""
    if isinstance(seen, dict):
        return any(_has_list(item, named) for item in seen.values())
    if not isinstance(seen, list):
        return False
    return not seen or any(
        (isinstance(row, dict) and not named.isdisjoint(row))
        or (isinstance(row, (dict, list)) and _has_list(row, named))
        for row in seen
    )


def _shows(view: View, entity: str) -> bool:
    return entity in view.index and any(
        record.entity == entity for record in records(view.observation, view.args)
    )


def known_after(
    known: Known, models: ToolModels, before: State, step: HistoryStep, claims: Iterable[Claim]
) -> Known:
    """What is known beside the views after an answered call; `before`: the state that it met."""
    fields, shown = _copied(known.fields), _copied(known.shown)
    told, written = dict(known.told), dict(known.written)
    named = set(mentioned(list(step.args.values()))) if step.writes else set()
    advances = models.advances(step)
    writes = before.writes + advances
    if advances:
        told_changes = tuple(claims)
        named |= {claim.entity for claim in told_changes}
        only = frozenset(claim.field for claim in told_changes) or changing_fields(models, step.tool)
        for entity in named:
            if not told_changes:  # nobody says what it did: what it may have changed is unknown again
                fields[entity] = _left(fields.get(entity, {}), only)
            shown[entity] = _left(shown.get(entity, {}), only)
        for claim in told_changes:
            fields.setdefault(claim.entity, {})[claim.field] = claim.value
    if advances or _may_have_acted(step):
        written.update(dict.fromkeys(named, writes + (0.0 if advances else 0.5)))
    for record in () if step.failed else records(step.seen, step.args):
        if record.named and not (advances and record.entity in named):  # a write may have been its end
            told[record.entity] = (writes, record.named)
        _take_record(record, fields, shown, advances=advances)
    return Known(_filled(fields), _filled(shown), told, written)


def _take_record(
    record: Record,
    fields: dict[str, dict[str, JsonValue]],
    shown: dict[str, dict[str, JsonValue]],
    *,
    advances: bool,
) -> None:
    if record.named and advances:
        shown.setdefault(record.entity, {}).update(record.scalars())
    elif record.named:  # a view says it from now on
        for kept in (fields, shown):
            if record.entity in kept:
                kept[record.entity] = _left(kept[record.entity], frozenset(record.fields))


def _may_have_acted(step: HistoryStep) -> bool:
    """Whether a failure leaves open if it was done: no answer came, or the line went."""
    if not step.failed:
        return False
    parts = step.seen.get("$answer", {}) if isinstance(step.seen, dict) else {}
    return _NO_ANSWER.search(f"{parts.get('error_type')} {parts.get('error')}") is not None


def _copied(fields: Mapping[str, Mapping[str, JsonValue]]) -> dict[str, dict[str, JsonValue]]:
    return {entity: dict(values) for entity, values in fields.items()}


def _filled(fields: Mapping[str, Mapping[str, JsonValue]]) -> dict[str, Mapping[str, JsonValue]]:
    return {entity: values for entity, values in fields.items() if values}


def _left(fields: Mapping[str, JsonValue], without: frozenset[str] | None) -> dict[str, JsonValue]:
    """The fields but those; none where nobody says which those are."""
    if without is None:
        return {}
    return {name: value for name, value in fields.items() if name not in without}


def said_of(state: State, known: Known, record: Record, read: str) -> dict[str, JsonValue]:
    """What is known of a record's fields: by views that show the same thing, and by told changes."""
    found: dict[str, JsonValue] = {}
    for view, other in records_of(state, record.entity):
        same_kind = record.named == other.named and (record.kind_is_known or view.tool == read)
        if same_kind and is_sure(view, record.entity) and not _overtaken(view, record.entity, known):
            found.update(other.scalars())
    found.update(known.fields.get(record.entity, {}))
    return {name: value for name, value in found.items() if is_scalar(value)}


def _overtaken(view: View, entity: str, known: Known) -> bool:
    """Whether a later write named the thing, and nobody put into this view what became of it."""
    if view.source == "rule" or _MODEL in view.through:
        return False
    return known.written.get(entity, -1) > view.step


def is_sure(view: View, entity: str | None = None) -> bool:
    """Whether a view, or what it says of one thing, was told or recorded, with no doubtful write since."""
    doubts = [rule for rule in view.through if rule.endswith(_UNKNOWN) or rule.startswith(_doubt(""))]
    if entity is not None:
        doubts = [rule for rule in doubts if rule.endswith(_UNKNOWN) or rule == _doubt(entity)]
    told = view.source == "told" or _MODEL in view.through
    return not doubts and (told or entity is not None or view.confidence >= _DOUBTED)


def _doubt(entity: str) -> str:
    return f"doubt about {entity}"


def records_of(state: State, entity: str) -> Iterator[tuple[View, Record]]:
    """The records of a thing in all views, each with its view."""
    seen: set[ViewKey] = set()
    for view, _, _, _ in state.find(entity):
        key = (view.tool, view.spelled)
        if key in seen or ":" in view.tool:
            continue
        seen.add(key)
        for record in records(view.observation, view.args):
            if record.entity == entity:
                yield view, record


def differs(one: JsonValue, other: JsonValue) -> bool:
    """Whether two values cannot both be what a field holds; 5 and 5.0 can."""
    if is_number(one) and is_number(other):
        return bool(one != other)
    return spell(one) != spell(other)
