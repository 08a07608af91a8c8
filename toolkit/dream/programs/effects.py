"""Effects of writes: changed fields of reachable records, new and deleted records, and views of them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Struct

from dreamgym_kit.dream.programs.collections import VIEW, WHOLE
from dreamgym_kit.dream.programs.environment_fields import FIELD, VALUE
from dreamgym_kit.dream.programs.forms import Program
from dreamgym_kit.dream.programs.scope import RESULT, Scope
from dreamgym_kit.dream.programs.synthesis import direct, edited_map, explain, partly
from dreamgym_kit.dream.programs.values import GONE, UNKNOWN, ValueKey, is_scalar, same, value_key

_MAX_SIGHTS = 80
_BY_CHANCE = 0.05  # how likely a field has the same value after each write although none set it
DELETED = 0.6  # share of sights that find a record gone


class Sighting(NamedTuple):
    """A record before a write, and at its next sight."""

    scope: Scope  # of the write, with its answer
    before: Any  # a mapping, GONE, or None where nothing was known
    after: Any  # a mapping or GONE


class Keep(Struct, frozen=True, tag=True):
    """The record stays as it is."""

    seen: int


class Delete(Struct, frozen=True, tag=True):
    """The record is gone."""

    seen: int


class Forget(Struct, frozen=True, tag=True):
    """A view, or a field of the environment, changes in an unknown way."""

    seen: int


class Rewrite(Struct, frozen=True, tag=True):
    """A view gets a new answer; `from_before`: computed from the old one."""

    form: Program
    from_before: bool
    seen: int


class Assign(Struct, frozen=True, tag=True):
    """Fields are set; `unknown` ones change, nobody knows how.

    `named`: (argument that names a field, argument that gives its value, whether in lower case).
    """

    fields: Mapping[str, Program]
    unknown: tuple[str, ...]
    named: tuple[str, str, bool] | None
    seen: int

    @property
    def sure(self) -> bool:
        """Whether the effect of every changed field is known."""
        return not self.unknown


class Insert(Struct, frozen=True, tag=True):
    """A write makes a record. `shown`: the fields that such records have."""

    key: Program | None
    fields: Mapping[str, Program]
    shown: frozenset[str]
    seen: int


Effect = Keep | Delete | Forget | Rewrite | Assign


def learn_effect(sights: Sequence[Sighting], *, of_view: bool = False) -> Effect:
    """Return the effect of a write on the record, or the view, behind a prefix of names."""
    sights = sights[:_MAX_SIGHTS]
    if of_view:
        return _view_effect(sights)
    if sum(sight.after is GONE for sight in sights) >= DELETED * len(sights):
        return Delete(len(sights))
    there = [sight for sight in sights if sight.after is not GONE]
    changed, new = _differences(there)
    named = _named_field(there)
    fields: dict[str, Program] = {}
    unknown: list[str] = []
    for field in changed:
        if named and _is_named(field, named[0], there):
            continue
        pairs = [
            (sight.scope.child({"old": sight.before[field]}), sight.after[field])
            for sight in there
            if isinstance(sight.before, dict) and field in sight.before and field in sight.after
        ]
        of_records = all(
            isinstance(old := scope["old"], dict) and old and all(isinstance(v, dict) for v in old.values())
            for scope, _ in pairs
        )
        form = (edited_map(pairs, field, 3) if of_records else None) or explain(pairs, field)
        form = form or edited_map(pairs, field, 3) or partly(pairs, field, 3)
        if form:
            fields[field] = form
        else:
            unknown.append(field)
    for field in new:
        if field not in changed and field != WHOLE and not named:
            form = _always_given(there, field)
            if form:
                fields[field] = form
    if not fields and not unknown and not named:
        return Keep(len(there))
    return Assign(fields, tuple(unknown), named, len(there))


def _differences(sights: Sequence[Sighting]) -> tuple[list[str], list[str]]:
    """Return the fields that changed, and the fields that were unknown before."""
    changed: Counter[str] = Counter()
    new: Counter[str] = Counter()
    for sight in sights:
        for field, value in sight.after.items():
            if not isinstance(sight.before, dict) or field not in sight.before:
                new[field] += 1
            elif not same(sight.before[field], value):
                changed[field] += 1
    return list(changed), list(new)


def _named_field(sights: Sequence[Sighting]) -> tuple[str, str, bool] | None:
    """`update(id, field, new_value)`: the argument that names the field and the one that gives its value."""
    args = sorted({name for sight in sights for name in sight.scope if name.startswith("args.")})
    for field in args:
        for value in args:
            rows = [
                (sight.after[sight.scope[field]], sight.scope[value])
                for sight in sights
                if isinstance(sight.scope.get(field), str)
                and sight.scope[field] in sight.after
                and value in sight.scope
            ]
            if field == value or len(rows) < 2:
                continue
            hits = sum(same(got, given) for got, given in rows)
            lower = sum(isinstance(given, str) and same(got, given.lower()) for got, given in rows)
            if max(hits, lower) >= 0.9 * len(rows):
                return field.removeprefix("args."), value.removeprefix("args."), hits < lower
    return None


def _is_named(field: str, arg: str, sights: Sequence[Sighting]) -> bool:
    """Whether a field changes (nearly) only where the argument names it."""
    explained = [
        same(sight.before.get(field, UNKNOWN), sight.after.get(field, UNKNOWN))
        or sight.scope.get(f"args.{arg}") == field
        for sight in sights
        if isinstance(sight.before, dict)
    ]
    return explained.count(True) >= 0.9 * len(explained)


def _always_given(sights: Sequence[Sighting], field: str) -> Program | None:
    """Explain a field that was unknown before each write and always equals an argument."""
    pairs = [
        (sight.scope, sight.after[field])
        for sight in sights
        if field in sight.after and not (isinstance(sight.before, dict) and field in sight.before)
    ]
    stayed = any(
        isinstance(sight.before, dict)
        and field in sight.before
        and same(sight.before[field], sight.after.get(field, UNKNOWN))
        for sight in sights
    )
    if stayed or len(pairs) < 3 or len({value_key(value) for _, value in pairs}) < 2:
        return None
    named = direct(pairs, field)
    return named if named and named.names[0].startswith("args.") else None


def _view_effect(sights: Sequence[Sighting]) -> Effect:
    """Return the effect of a write on a view that its arguments name."""
    pairs, whole, changed, compared = [], [], 0, 0
    for sight in sights:
        if not isinstance(sight.after, dict) or "" not in sight.after:
            continue
        ok, out = sight.after[""]
        if isinstance(sight.before, dict) and "" in sight.before:
            compared += 1
            was_ok, was = sight.before[""]
            changed += not same(sight.before[""], sight.after[""])
            if was_ok and ok and isinstance(was, (dict, list)):
                pairs.append((sight.scope.child({"old": was}), out))
        whole.append((sight.scope, out, ok))
    if not changed and (pairs or compared):
        return Keep(len(sights))
    form = explain(pairs) if pairs else None
    if form:
        return Rewrite(form, True, len(pairs))
    if len(whole) >= 2 and all(ok for *_, ok in whole):
        form = explain([(scope, out) for scope, out, _ in whole])
        if form:
            return Rewrite(form, False, len(whole))
    return Forget(len(sights))


def learn_field_effect(
    field: str, sights: Sequence[Sighting], at_start: Counter[ValueKey], *, shown: bool
) -> Effect | None:
    """Return the effect of a write on a field of the environment; None where the sights do not decide it.

    Args:
        field: its name.
        sights: of the field after the write.
        at_start: values that worlds begin with, each with the number of worlds.
        shown: whether the write's own answers show the field.
    """
    there = [sight for sight in sights[:_MAX_SIGHTS] if VALUE in sight.after]
    with_before = [sight for sight in there if isinstance(sight.before, dict) and VALUE in sight.before]
    values = Counter(value_key(sight.after[VALUE]) for sight in there)
    changed = any(not same(sight.before[VALUE], sight.after[VALUE]) for sight in with_before)
    if not changed and there:
        value, fresh = values.most_common(1)[0][0], len(there) - len(with_before)
        usual = (at_start[value] + 1) / (at_start.total() + 2)  # share of worlds that begin with this value
        is_set = len(values) == 1 and fresh > 1 and usual**fresh <= _BY_CHANCE
        if with_before and not is_set:
            return Keep(len(with_before))
        if len(values) == 1 and not is_set:
            return Keep(0) if shown and at_start else None
    form = _becomes(field, there, with_before, with_answer=changed)
    if form:
        return Assign({VALUE: form}, (), None, len(there))
    if with_before or not there:
        return Forget(len(there)) if there else None
    scalars = all(is_scalar(sight.after[VALUE]) for sight in there)
    return Keep(0) if shown and scalars else None  # it varies independently of the call


def _becomes(
    field: str, there: Sequence[Sighting], with_before: Sequence[Sighting], *, with_answer: bool
) -> Program | None:
    """Explain the new value of a field of the environment, if possible without the write's answer."""
    ending = field.removeprefix(FIELD).rpartition(".")[2].partition("@")[0]
    for left_out in [(field, RESULT), (field,)] if with_answer else [(field, RESULT)]:
        for some in (there, with_before):
            pairs = [
                (
                    sight.scope.child({"old": sight.before[VALUE]} if sight in with_before else {}, left_out),
                    sight.after[VALUE],
                )
                for sight in some
            ]
            form = explain(pairs, ending) if len(pairs) > 1 else None
            if form:
                return form
    return None


def learn_insert(key_field: str | None, made: Sequence[tuple[Scope, Any, Mapping[str, Any]]]) -> Insert:
    """Learn the record that a write makes, from the first sight of each: (scope, key, fields)."""
    key = explain([(scope, value) for scope, value, _ in made], key_field or "", 1, 0, arithmetic=False)
    shown = frozenset(field for *_, record in made for field in record)
    fields: dict[str, Program] = {}
    for field in sorted(shown - {key_field}):
        form = explain([(scope, record[field]) for scope, _, record in made if field in record], field, 2)
        if form:
            fields[field] = form
    return Insert(key, fields, shown, len(made))


def is_view(collection: str) -> bool:
    """Whether a collection is the answers of one read."""
    return collection.startswith(VIEW)
