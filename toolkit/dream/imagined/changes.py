"""Apply an episode's writes to the base-state answers of later reads.

A write reports the entities that it created, changed and removed, with their fields: the model does, or the
write's drafted program. If code cannot derive a read's answer (a filter without a matching field, a row with
unknown fields), it raises `UnclearChange`, and the model answers for the state after the writes.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dreamgym_kit.dream.contradictions import KnownFacts
from dreamgym_kit.dream.environment_facts import names_in
from dreamgym_kit.dream.programs.effects import Assign, Delete, Effect, Keep
from dreamgym_kit.dream.programs.forms import Get, Program
from dreamgym_kit.dream.programs.model import OutcomeForm, ToolProgram
from dreamgym_kit.dream.programs.scope import RESULT, Parameters, Scope
from dreamgym_kit.dream.programs.trees import leaf_of
from dreamgym_kit.dream.programs.values import UNKNOWN
from dreamgym_kit.dream.things import kind_of
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.types import Answer, Call, ToolSpec, Transition

KINDS = ("create", "update", "delete")
RECORD = re.compile(r"(\w+<args\.(\w+)>)(?:\.(\w+(?:\.\w+)*))?")
"""A name in a program: the record that an argument names, the argument, and a field of the record."""
PROGRAM_ERRORS = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What a program that nobody checked may raise on values that its author did not think of."""


@dataclass(frozen=True, slots=True)
class EntityChange:
    """A write's change to one entity."""

    entity: str  # its ID
    kind: str  # an item of `KINDS`
    fields: Mapping[str, JsonValue] = field(default_factory=dict)


class UnclearChange(ValueError):
    """Code cannot derive a read's answer after the writes."""


def changes_in(history: Sequence[Transition]) -> list[EntityChange]:
    """Return the changes that an episode's writes report, in order; skips malformed ones."""
    return [
        EntityChange(str(row["entity"]), str(row["change"]), fields)
        for step in history
        if step.effect.changes_environment and step.answer.error is None
        for row in step.answer.changes
        if row.get("change") in KINDS and isinstance(fields := row.get("fields"), Mapping)
    ]


def names_changed(call: Call, changes: Sequence[EntityChange]) -> bool:
    """Whether a call names a thing that the episode created or removed: no base-state fact applies to it."""
    made = {change.entity.casefold() for change in changes if change.kind != "update"}
    return bool(made & names_in(dict(call.args)))


def after_changes(base: Answer, call: Call, changes: Sequence[EntityChange]) -> Answer:
    """Return a base-state answer with the writes applied.

    Raises:
        UnclearChange: the answer after the writes cannot be derived.
    """
    if base.error is not None:
        raise UnclearChange
    content = base.content
    for change in _merged(changes):
        if change.kind == "create":
            content = _with_row(content, call, change)
        elif change.kind == "delete":
            content, _ = _without_rows(content, change.entity)
        else:
            content, applied = _updated(content, change)
            if not applied and isinstance(content, Mapping) and _asks_only_for(call, change):
                fields = {name: value for name, value in change.fields.items() if name in content}
                content, applied = {**content, **fields}, bool(fields)  # its ID stands in the call alone
            if not applied and change.entity.casefold() in names_in(dict(call.args)):
                raise UnclearChange
    if content != base.content and base.artifact is not None:
        raise UnclearChange  # the structured artifact would no longer agree with the text
    return replace(base, content=content)


def made_in(changes: Sequence[EntityChange], call: Call, like: JsonValue) -> dict[str, JsonValue] | None:
    """Return the thing that the episode created and a call asks for, in the form of another answer, `like`.

    None if the call asks for something else, or a field of that form is unknown.
    """
    for change in _merged(changes):
        if change.kind == "create" and _asks_only_for(call, change) and isinstance(like, Mapping):
            return {name: change.fields[name] for name in like} if set(like) <= set(change.fields) else None
    return None


def _asks_only_for(call: Call, change: EntityChange) -> bool:
    return [str(value).casefold() for value in call.args.values()] == [change.entity.casefold()]


def _merged(changes: Sequence[EntityChange]) -> list[EntityChange]:
    """Fold later updates into created entities, and drop created entities that were removed again."""
    made: dict[str, EntityChange] = {}
    others: list[EntityChange] = []
    for change in changes:
        if change.kind == "create":
            made[change.entity] = change
        elif change.entity in made and change.kind == "delete":
            del made[change.entity]
        elif change.entity in made:
            before = made[change.entity]
            made[change.entity] = replace(before, fields={**before.fields, **change.fields})
        else:
            others.append(change)
    return [*others, *made.values()]


def _is(record: Mapping[str, JsonValue], entity: str) -> bool:
    """Whether a record describes this entity: a naming field has its ID."""
    return any(_same(value, entity) for name, value in _naming(record))


def _naming(record: Mapping[str, JsonValue]) -> list[tuple[str, JsonValue]]:
    """Return the fields that name a record: `id` fields, else its first scalar field."""
    scalars = [
        (name, value)
        for name, value in record.items()
        if isinstance(value, (str, int)) and not isinstance(value, bool)
    ]
    own = [pair for pair in scalars if pair[0].casefold() in ("id", "_id", "uuid")]
    return own or scalars[:1]


def _same(left: JsonValue, right: JsonValue) -> bool:
    return str(left).casefold() == str(right).casefold()


def _updated(value: JsonValue, change: EntityChange) -> tuple[JsonValue, bool]:
    if isinstance(value, Mapping):
        applied, inner = False, {}
        for name, item in value.items():
            inner[name], changed = _updated(item, change)
            applied = applied or changed
        if _is(inner, change.entity):
            fields = {name: new for name, new in change.fields.items() if name in inner}
            return {**inner, **fields}, applied or bool(fields)
        return inner, applied
    if isinstance(value, (list, tuple)):
        pairs = [_updated(item, change) for item in value]
        return [item for item, _ in pairs], any(changed for _, changed in pairs)
    return value, False


def _without_rows(value: JsonValue, entity: str) -> tuple[JsonValue, int]:
    """Remove an entity's rows from lists, and adjust their count fields; also returns the number removed."""
    if isinstance(value, Mapping):
        gone, inner = 0, dict(value)
        for name, item in value.items():
            shorter, left = _without_rows(item, entity)
            if isinstance(item, (list, tuple)) and left:
                inner = _recounted(inner, len(item), -left)
            if left:
                inner[name] = shorter
            gone += left
        return inner, gone
    if isinstance(value, (list, tuple)):
        rows, gone = [], 0
        for item in value:
            names_it = isinstance(item, (str, int)) and not isinstance(item, bool) and _same(item, entity)
            if names_it or (isinstance(item, Mapping) and _is(item, entity)):
                gone += 1
                continue
            row, _ = _without_rows(item, entity)
            rows.append(row)
        return rows, gone
    return value, 0


def _recounted(record: Mapping[str, JsonValue], length: int, by: int) -> dict[str, JsonValue]:
    """Adjust every integer field that equaled a list's old length."""
    return {
        name: value + by
        if isinstance(value, int) and not isinstance(value, bool) and value == length
        else value
        for name, value in record.items()
    }


def _with_row(value: JsonValue, call: Call, change: EntityChange) -> JsonValue:
    """Add a created entity to the value's lists of its kind.

    Raises:
        UnclearChange: it may not belong there, or a field of its row is unknown.
    """
    if isinstance(value, (list, tuple)):
        return _longer(value, call, change)
    if not isinstance(value, Mapping):
        return value
    changed = dict(value)
    for name, rows in value.items():
        if isinstance(rows, (list, tuple)):
            new = _longer(rows, call, change)
            if len(new) != len(rows):
                changed = _recounted(changed, len(rows), 1)
            changed[name] = new
    return changed


def _longer(rows: Sequence[JsonValue], call: Call, change: EntityChange) -> list[JsonValue]:
    """Append a created entity's row if its kind and the call's arguments fit. Raises like `_with_row`."""
    records = [row for row in rows if isinstance(row, Mapping)]
    if not any(records) or len(records) < len(rows):
        raise UnclearChange  # no row shows their form
    keys = list(dict.fromkeys(name for row in records for name in row))
    if not _alike(keys, change.fields):
        return list(rows)
    for name, given in call.args.items():
        if given is None or any(_same(given, value) for value in change.fields.values()):
            continue
        if name in change.fields:
            return list(rows)  # the call filters for other entities
        raise UnclearChange
    if any(name not in change.fields for name in keys if all(name in row for row in records)):
        raise UnclearChange
    return [*rows, {name: change.fields[name] for name in keys if name in change.fields}]


def _alike(keys: Sequence[str], fields: Mapping[str, JsonValue]) -> bool:
    """Whether more than half of these keys are fields of the entity."""
    return len(set(keys) & set(fields)) * 2 > len(keys)


def scope_of_write(text: str, call: Call, spec: ToolSpec, facts: KnownFacts) -> Scope:
    """Return what a drafted program can see of a call: its arguments, and what is known of things they name.

    Args:
        text: the program's rules file.
        call: the call of a write.
        spec: its tool; its arguments' defaults count.
        facts: what facts and the episode's calls show.
    """
    args = {**Parameters(spec.args_schema).defaults, **call.args}
    scope = Scope({f"args.{name}": value for name, value in args.items()})
    for prefix, name, _ in RECORD.findall(text):
        if not isinstance(key := args.get(name), (str, int)) or isinstance(key, bool) or prefix in scope.rows:
            continue
        scope.rows[prefix] = (prefix.partition("<")[0], key)
        things = [thing for thing in (*facts.fields, *facts.removed) if thing[1] == str(key)]
        own = (kind_of(name, call.tool), str(key))
        thing = own if own in things else things[0] if len(set(things)) == 1 else None
        if thing is None:
            scope.unseen = (*scope.unseen, prefix)
            continue
        scope[f"{prefix}?"] = thing not in facts.removed
        if thing not in facts.removed:
            scope.update({f"{prefix}.{field}": value for field, value in facts.fields[thing].items()})
    return scope


def outcome_of(program: ToolProgram, scope: Scope) -> tuple[OutcomeForm | None, JsonValue]:
    """Return a call's outcome and its answer; None for an open outcome, `UNKNOWN` for an open answer."""
    leaf = leaf_of(program.tree, scope)
    if leaf is None or len(leaf.counts) != 1:
        return None, None
    form = leaf.counts[0][0]
    says = program.says.get(form)
    if any(law(scope) is False for law in program.laws.get(form, ())):
        return None, None
    return form, says(scope) if says is not None else UNKNOWN


def changes_of(program: ToolProgram, scope: Scope, out: JsonValue) -> list[dict[str, Any]]:
    """Return what a successful write that answered `out` changes, as an imagined write reports it.

    Raises:
        UnclearChange: a value that it sets, or the ID of what it makes, is unknown.
    """
    fields = out.items() if isinstance(out, Mapping) else ()
    after = scope.child({RESULT: out, **{f"{RESULT}.{name}": value for name, value in fields}})
    changes: list[tuple[str, str, dict[str, JsonValue]]] = []
    for prefix, effect in program.effects.items():
        if prefix not in after.rows or effect is None or isinstance(effect, Keep):
            continue  # an optional argument was left out: no record is named
        changed = {} if isinstance(effect, Delete) else _assigned(effect, prefix, after)
        if changed or isinstance(effect, Delete):
            entity = str(after.rows[prefix][1])
            changes.append((entity, "delete" if isinstance(effect, Delete) else "update", changed))
    for name, insert in program.inserts.items():
        key = insert.key(after) if insert.key is not None else UNKNOWN
        if key is UNKNOWN or not isinstance(key, (str, int)):
            raise UnclearChange
        changes.append((str(key), "create", {name: key, **_values(insert.fields, "", after)}))
    return [
        {"entity": entity, "change": kind, "fields": fields, "complete": True}
        for entity, kind, fields in changes
    ]


def _assigned(effect: Effect, prefix: str, scope: Scope) -> dict[str, JsonValue]:
    if not isinstance(effect, Assign) or effect.unknown:
        raise UnclearChange
    changed = _values(effect.fields, prefix, scope)
    if effect.named is not None:
        name, value = (scope.get(f"args.{arg}") for arg in effect.named[:2])
        if not isinstance(name, str) or value is None:
            raise UnclearChange
        changed[name] = value.lower() if effect.named[2] and isinstance(value, str) else value
    return changed


def _values(fields: Mapping[str, Program], prefix: str, scope: Scope) -> dict[str, JsonValue]:
    values: dict[str, JsonValue] = {}
    for name, form in fields.items():
        value = form(scope.child({"old": scope.get(f"{prefix}.{name}", UNKNOWN)}))
        if value is not UNKNOWN:
            values[name] = value
        elif not isinstance(form, Get) or not all(path.startswith("args.") for path in form.names):
            raise UnclearChange  # else an optional argument was left out: the field stays
    return values
