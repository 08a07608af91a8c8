"""The named values that a call can see: its arguments, the records they name, records those name, and so on.

args.qty                                     an argument
environment.engine.state                     a field of the environment itself
order_id<args.order_id>.status               a field of the record that an argument names
order_id<args.order_id>?                     whether there is such a record
order_id<args.order_id>.user_id>user.email   a field of a record that a field names
user.payment_methods<args.method>.balance    an entry of a map of records, by its key
order.items[item_id=args.item_id].price      an element of a list of records, by its own key
sum(order.items.price), len(order.items)     of a list
item.item_ids, last_item.item_ids            each element of the list arguments, and the last
sum(item.x), sumdiff(item.y,item.x)          over those elements, added up in their order
next.create.id                               the id that a counter of this world gives next
count(create), last.create.title, done       what was done before in this episode
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from dreamgym_kit.dream.programs.collections import VIEW, WHOLE, Path, args_key, is_record
from dreamgym_kit.dream.programs.environment_fields import ENVIRONMENT, FIELD, VALUE
from dreamgym_kit.dream.programs.records import WorldState
from dreamgym_kit.dream.programs.values import (
    GONE,
    UNKNOWN,
    ValueKey,
    at_path,
    figure,
    has_digits,
    is_key,
    is_known,
    is_number,
    is_scalar,
    is_thing,
    same,
    value_key,
)
from dreamgym_kit.serialization import JsonValue

_MAX_NUMBERS = 60  # names that arithmetic is tried with; pairs of them are
SHARED = "all "
"""Prefix of the names of texts that all known records of a collection have."""
_MAX_SHARING = 20  # known records; of more, one field is seldom the same in all, and looking takes long
_ID_ENDINGS = ("id", "id_", "sku", "key")
_AMOUNTS = ("price", "amount", "cost", "total", "qty", "quantity")
_STATES = ("status", "state", "kind", "type")
RESULT = "result"
"""The name of a write's answer in the scope of its effects."""


class Scope(dict[str, Any]):
    """Names and values.

    Attributes:
        items_of_args: for each element of the call's list arguments, the names of that element alone.
        rows: by prefix of names, the record that these names describe.
        unseen: prefixes of unknown records: they may have any field.
        seen_earlier: by argument that may name a thing, whether an earlier answer contained its value.
    """

    __slots__ = (
        "_extra",
        "_index",
        "_keys",
        "_numbers",
        "_parent",
        "items_of_args",
        "maker",
        "rows",
        "seen_earlier",
        "unseen",
    )

    def __init__(self, values: Mapping[str, Any] | None = None) -> None:
        super().__init__(values or {})
        self.items_of_args: list[dict[str, Any]] = []
        self.rows: dict[str, tuple[str, JsonValue]] = {}
        self.unseen: tuple[str, ...] = ()
        self.seen_earlier: dict[str, bool] = {}
        self.maker: Callable[[str], JsonValue] | None = None
        self._index: dict[ValueKey, list[str]] | None = None
        self._keys: dict[str, ValueKey | None] = {}
        self._parent: Scope | None = None
        self._extra: Mapping[str, Any] = {}
        self._numbers: list[tuple[str, float]] | None = None

    def child(self, extra: Mapping[str, Any], left_out: tuple[str, ...] = ()) -> "Scope":
        """Return a copy with `extra` names, without the left out names and the names of their parts."""
        scope = Scope(self)
        for name in left_out:
            for part in [part for part in self if part == name or part.startswith((f"{name}.", f"{name}<"))]:
                del scope[part]
        scope.update({name: value for name, value in extra.items() if value is not UNKNOWN})
        scope.items_of_args, scope.rows, scope.unseen = self.items_of_args, self.rows, self.unseen
        scope.maker, scope.seen_earlier = self.maker, self.seen_earlier
        if not left_out:
            scope._parent, scope._extra = self, extra
        return scope

    def make_up(self, like: str) -> Any:
        """Return a new value of this form; UNKNOWN where none may be made up."""
        return UNKNOWN if self.maker is None else self.maker(like)

    def absent(self) -> set[str]:
        """Return the arguments that name a record known not to exist."""
        gone = (prefix for prefix in self.rows if self.get(f"{prefix}?") is False)
        return {prefix.rpartition("<args.")[2][:-1] for prefix in gone if "<args." in prefix}

    def key_of(self, name: str) -> ValueKey | None:
        """Return the key of a name's value; None where the value is unknown. Call it on a complete scope."""
        if name not in self._keys:
            value = self.get(name, UNKNOWN)
            self._keys[name] = value_key(value) if is_known(value) else None
        return self._keys[name]

    def names_of(self, value: object) -> list[str]:
        """Return the names that have this value."""
        if self._parent is not None:
            own = [name for name, item in self._extra.items() if same(item, value)]
            return [*(name for name in self._parent.names_of(value) if name not in self._extra), *own]
        if self._index is None:
            self._index = {}
            for name, item in self.items():
                if is_known(item):
                    self._index.setdefault(value_key(item), []).append(name)
        return self._index.get(value_key(value), [])

    def numbers(self) -> list[tuple[str, float]]:
        """Return the numbers for arithmetic, the nearest first, without ids."""
        if self._numbers is None:
            numbers = [
                (name, float(number))
                for name, value in self.items()
                if (number := figure(value)) is not None
                and not (isinstance(value, int) and name.lower().endswith(("id", "number")))
            ]
            numbers.sort(key=lambda entry: (entry[0].count(">") + entry[0].count("."), len(entry[0])))
            self._numbers = numbers[:_MAX_NUMBERS]
        return self._numbers


def element_names(value: JsonValue) -> dict[str, Any]:
    """Return names for one element of a list."""
    names: dict[str, Any] = {"element": value}
    if isinstance(value, dict):
        names |= {f"element.{field}": item for field, item in value.items()}
    return names


class Parameters:
    """A tool's arguments: names, defaults, and which are required."""

    def __init__(self, schema: Mapping[str, JsonValue]) -> None:
        properties = schema.get("properties")
        given: Mapping[str, Any] = properties if isinstance(properties, dict) else {}
        self.names = frozenset(given)
        self.defaults: dict[str, JsonValue] = {
            name: property_schema["default"]
            for name, property_schema in given.items()
            if isinstance(property_schema, dict) and "default" in property_schema
        }
        self.required = tuple(sorted(self.names - set(self.defaults)))  # those that have no default

    @classmethod
    def required_only(cls, names: frozenset[str]) -> "Parameters":
        """Return the parameters of a tool without a schema whose calls always have these arguments."""
        return cls({"properties": {name: {} for name in names}})


def scope_of(
    state: WorldState,
    parameters: Mapping[str, Parameters],
    tool: str,
    args: Mapping[str, JsonValue],
    *,
    writes: bool,
) -> Scope:
    """Return the names that a call can see in a state."""
    build = _Builder(state, tool, args)
    mine = parameters.get(tool)
    for name, default in mine.defaults.items() if mine is not None else ():
        if name not in args and default is not None:
            build.scope[f"args.{name}"] = default
    build.add_arguments()
    for view in sorted(state.collections.views):
        required = parameters[view].required if view in parameters else ()
        if all(name in args for name in required):
            build.add_row(VIEW + view, VIEW + view, args_key({name: args[name] for name in required}), 0)
    build.add_environment()
    if writes:
        build.add_rows_like_the_call()
        build.add_shared()
    build.add_done()
    build.add_items()
    return build.scope


class _Builder:
    """Collects the names of one call."""

    def __init__(self, state: WorldState, tool: str, args: Mapping[str, JsonValue]) -> None:
        self.state, self.tool, self.args = state, tool, args
        self.collections = state.collections
        self.scope = Scope()

    def add_arguments(self, depth: int = 2) -> None:
        scope = self.scope
        for name, value in self.args.items():
            scope[f"args.{name}"] = value
            if is_thing(value):
                scope.seen_earlier[f"args.{name}"] = self.state.has_seen(value)
            if isinstance(value, dict):
                scope.update({f"args.{name}.{field}": item for field, item in value.items()})
            if isinstance(value, list):
                scope[f"len(args.{name})"] = len(value)
                scope[f"sorted(args.{name})"] = sorted(value, key=str)
        for name, value in self.args.items():
            if not is_key(value):
                continue
            collection = self.collections.arg_refs.get((self.tool, name))
            if collection is not None:
                self.add_row(f"{collection}<args.{name}>", collection, value, depth)
            elsewhere = self.collections.arg_fields.get((self.tool, name))
            if elsewhere is not None:
                key = self.state.find(*elsewhere, value)
                if key is not None:
                    self.add_row(f"{elsewhere[0]}<args.{name}>", elsewhere[0], key, depth)

    def add_row(self, prefix: str, collection: str, key: JsonValue, depth: int) -> None:
        """Add a record's known fields."""
        scope = self.scope
        scope.rows[prefix] = (collection, key)
        row = self.state.row(collection, key)
        if row is GONE:
            scope[prefix], scope[f"{prefix}?"] = GONE, False
            return
        if not isinstance(row, dict):
            if self.state.is_listed(collection):
                scope[f"{prefix}?"] = False
            else:
                scope.unseen = (*scope.unseen, prefix)
            return
        fields = {name: value for name, value in row.items() if name != WHOLE}
        if row.get(WHOLE):
            scope[prefix] = fields
        scope[f"{prefix}?"] = True
        if collection.startswith(VIEW):
            ok, out = fields[""]
            scope[f"{prefix}.ok"] = ok
            tops = self.collections.environment.tops(collection.removeprefix(VIEW))
            fields = out if isinstance(out, dict) else {"value": out}
            fields = {name: value for name, value in fields.items() if name not in tops}
        self._add_fields(prefix, collection, (), fields, depth, 2)

    def add_environment(self) -> None:
        """Add the known fields of the environment itself."""
        for name in self.collections.environment.all():
            self.scope.rows[FIELD + name] = (ENVIRONMENT + name, "")
            row = self.state.row(ENVIRONMENT + name, "")
            if isinstance(row, dict) and VALUE in row:
                self._add_fields(FIELD[:-1], ENVIRONMENT, (), {name: row[VALUE]}, 0, 2)
        for path in self.collections.environment.written.get(self.tool, ()):
            name = FIELD + self.collections.environment.names[self.tool, path]
            value = self.scope.get(name)
            for arg, given in self.args.items():  # limits apply to the figure after the write
                if is_number(value) and is_number(given):
                    self.scope[f"sum(args.{arg},{name})"] = value + given
                    self.scope[f"diff({name},args.{arg})"] = value - given

    def _add_fields(
        self, prefix: str, collection: str, path: Path, fields: Mapping[str, Any], depth: int, deep: int
    ) -> None:
        scope = self.scope
        for field, value in fields.items():
            if field == WHOLE:
                continue
            name, inner = f"{prefix}.{field}", (*path, field)
            scope[name] = value
            if isinstance(value, dict) and deep:
                of_records = value and all(isinstance(item, dict) for item in value.values())
                is_map = (collection, inner) in self.collections.maps
                if is_map or (collection.startswith(VIEW) and of_records):
                    self._add_map(name, prefix, collection, inner, value)
                else:
                    self._add_fields(name, collection, inner, value, depth, deep - 1)
                    for arg, given in self.args.items():
                        if isinstance(given, str) and given in value:
                            scope[f"{name}<args.{arg}>"] = value[given]
            elif isinstance(value, list):
                self._add_list(name, collection, inner, value, deep)
            elif depth and is_key(value):
                target = self.collections.field_refs.get((collection, ".".join(inner)))
                if target:
                    self.add_row(f"{name}>{target}", target, value, depth - 1)

    def _add_map(self, name: str, prefix: str, collection: str, path: Path, value: Mapping[str, Any]) -> None:
        scope = self.scope
        for arg, given in self.args.items():
            if not isinstance(given, str):
                continue
            scope[f"{name}<args.{arg}>?"] = given in value
            if given in value:
                entry = value[given]
                if isinstance(entry, dict):
                    self._add_fields(f"{name}<args.{arg}>", collection, (*path, "*"), entry, 0, 1)
                else:
                    scope[f"{name}<args.{arg}>"] = entry
        start = prefix.split(">", maxsplit=1)[0]
        for other, given in list(scope.items()):  # by a field of a list's element in the same record
            selected = other.endswith("]." + other.rsplit(".", maxsplit=1)[-1])
            entry = value.get(given) if selected and isinstance(given, str) else None
            if other.startswith(start) and isinstance(entry, dict):
                self._add_fields(f"{name}<{other}>", collection, path, entry, 0, 1)
        self._add_sums(name, list(value.values()))

    def _add_list(self, name: str, collection: str, path: Path, value: list[Any], deep: int) -> None:
        self.scope[f"len({name})"] = len(value)
        if not (value and isinstance(value[0], dict)):
            return
        self._add_sums(name, value)
        for field in self.collections.element_keys.get((collection, path), ()):
            for arg, given in self.args.items():
                if not is_key(given):
                    continue
                hit = next((item for item in value if same(_field(item, field), given)), None)
                if hit is not None:
                    self._add_fields(f"{name}[{field}=args.{arg}]", collection, path, hit, 0, 0)
        if deep:
            self._add_fields(f"{name}[0]", collection, (*path, "0"), value[0], 0, 0)

    def _add_sums(self, name: str, items: list[Any]) -> None:
        records = [item for item in items if isinstance(item, dict)]
        for field in sorted({field for item in records for field, value in item.items() if is_number(value)}):
            values = [item[field] for item in records if is_number(item.get(field))]
            self.scope[f"sum({name}.{field})"] = sum(values)

    def add_rows_like_the_call(self) -> None:
        """Add records that already have this call's arguments in fields of the same names."""
        scope, state = self.scope, self.state
        for collection, fields in self.collections.fields.items():
            key_field = self.collections.key_fields[collection]
            mine = [
                arg
                for arg, value in self.args.items()
                if arg in fields and arg != key_field and is_scalar(value)
            ]
            if not any((collection, arg) in self.collections.field_refs for arg in mine):
                continue
            prefix = f"{collection}?{'+'.join(mine)}"
            for row_key in state.having(collection, mine[0], self.args[mine[0]]):
                row = state.at(row_key)
                if not isinstance(row, dict):
                    continue
                key = row.get(key_field, row_key[1][1])
                if not all(same(row.get(arg, UNKNOWN), self.args[arg]) for arg in mine):
                    continue
                if prefix not in scope.rows:
                    self.add_row(prefix, collection, key, 0)
                for field, value in row.items():
                    if isinstance(value, str) and field not in mine and field.endswith(_STATES):
                        before = scope.get(f"{prefix}.any {field}", [])
                        scope[f"{prefix}.any {field}"] = sorted({*before, value})
                        scope[f"{prefix}.any {field}={value}"] = True
                        scope.setdefault(f"{prefix}.first {field}={value}.{key_field}", key)

    def add_shared(self) -> None:
        """Add the texts that all known records of a small collection have in a field: often their owner."""
        for collection in self.collections.fields:
            keys = self.state.rows_of(collection) if is_record(collection) else []
            records = (self.state.at(key) for key in keys if len(keys) <= _MAX_SHARING)
            known = [record for record in records if isinstance(record, dict)]
            for field, value in known[0].items() if known else ():
                if isinstance(value, str) and all(row.get(field) == value for row in known):
                    self.scope[f"{SHARED}{collection}.{field}"] = value

    def add_done(self) -> None:
        """Add counts and arguments of earlier writes in this episode."""
        scope, state = self.scope, self.state
        scope.update({f"count({tool})": count for tool, count in state.count.items()})
        scope["done"] = (self.tool, value_key(dict(self.args))) in state.done
        scope.update({f"last.{tool}.{arg}": value for (tool, arg), value in state.last.items()})

    def add_items(self) -> None:
        """Add names for each element of the list arguments, and sums over them."""
        scope = self.scope
        lists = {name: value for name, value in self.args.items() if isinstance(value, list)}
        if not lists:
            return
        size = max(map(len, lists.values()))
        record_lists = [
            (name, value)
            for name, value in scope.items()
            if isinstance(value, list)
            and value
            and isinstance(value[0], dict)
            and not name.startswith("args.")
        ]
        numbers: dict[str, list[float]] = defaultdict(list)
        for place in range(size):
            item = self._item(lists, place, record_lists)
            scope.items_of_args.append(item)
            for name, value in item.items():
                if is_number(value):
                    numbers[name].append(value)
        if scope.items_of_args:
            for name, value in scope.items_of_args[-1].items():
                last = f"last_{name}" if name.startswith("item.") else name.replace("<item.", "<last_item.")
                scope[last] = value
        whole = {name: values for name, values in numbers.items() if len(values) == size}
        scope.update({f"sum({name})": sum(values) for name, values in whole.items()})
        amounts = [name for name in whole if name.endswith(_AMOUNTS)]
        for left in amounts:
            for right in amounts:
                if left != right:
                    self._add_difference(left, right, whole)

    def _add_difference(self, left: str, right: str, numbers: Mapping[str, list[float]]) -> None:
        """Sum differences element by element, as code does, so that floats agree bit for bit."""
        total = 0.0
        for left_number, right_number in zip(numbers[left], numbers[right], strict=True):
            total += left_number - right_number
        self.scope[f"sumdiff({left},{right})"] = total
        self.scope[f"round2(sumdiff({left},{right}))"] = round(total, 2)
        if right < left:
            self.scope[f"abs(sumdiff({left},{right}))"] = abs(total)

    def _item(
        self, lists: Mapping[str, list[Any]], place: int, record_lists: list[tuple[str, list[Any]]]
    ) -> dict[str, Any]:
        names: dict[str, Any] = {}
        for arg, values in lists.items():
            if place >= len(values):
                continue
            value = values[place]
            names[f"item.{arg}"] = value
            if not is_key(value):
                continue
            for name, records in record_lists:
                for field in sorted(
                    {key for record in records for key in _keys(record) if key.endswith(_ID_ENDINGS)}
                ):
                    hit = next((record for record in records if same(_field(record, field), value)), None)
                    if hit is None:
                        continue
                    names |= {f"item.{arg}[{name}.{field}].{key}": item for key, item in hit.items()}
                    self._add_paired(names, lists, place, hit)
            target = self.collections.arg_refs.get((self.tool, arg))
            if target:
                self._add_named(names, arg, target, value, place)
        return names

    def _add_paired(
        self, names: dict[str, Any], lists: Mapping[str, list[Any]], place: int, record: Mapping[str, Any]
    ) -> None:
        """Add map entries: this element names the record, the other list arguments name the entries."""
        for field, value in record.items():
            for collection, key_field in self.collections.key_fields.items():
                row = self.state.row(collection, value) if field == key_field and is_key(value) else None
                if not isinstance(row, dict):
                    continue
                for owner, path in sorted(self.collections.maps):
                    entries = at_path(row, path) if owner == collection else None
                    if not isinstance(entries, dict):
                        continue
                    for arg, values in lists.items():
                        if place < len(values) and isinstance(values[place], str):
                            name = f"item.{arg}@{collection}.{path[-1]}"
                            names[f"{name}?"] = values[place] in entries
                            entry = entries.get(values[place])
                            names |= {f"{name}.{key}": item for key, item in _items(entry)}

    def _add_named(self, names: dict[str, Any], arg: str, target: str, value: JsonValue, place: int) -> None:
        row = self.state.row(target, value)
        prefix = f"{target}<item.{arg}>"
        self.scope.rows[f"{prefix}{place}"] = (target, value)
        if isinstance(row, dict) or row is GONE or self.state.is_listed(target):
            names[f"{prefix}?"] = isinstance(row, dict)
        if isinstance(row, dict):
            names |= {f"{prefix}.{key}": item for key, item in self.collections.flat(target, row, 1)}


def name_cost(name: str, field: str = "") -> float:
    """Return the cost of a name: low for simple names, lower if its ending equals the field."""
    cost = 1.0 if name.startswith(("args.", "item.", "element", "old")) else 2.0
    cost += 3 * name.startswith(("last.", SHARED)) + 0.5 * name.count(">") + 0.15 * name.count(".")
    cost += 0.3 * name.count("[") + 0.4 * name.count("(")
    return cost - 0.8 * (bool(field) and ending(name) == field)


def ending(name: str) -> str:
    """Return the last field in a name."""
    for sign in "[>(.":
        name = name.rsplit(sign, maxsplit=1)[-1] if sign != "." else name.rsplit(".", maxsplit=1)[-1]
    return name.rstrip(")]")


def all_names(scopes: list[Scope]) -> Counter[str]:
    """Count the scopes that have each name that a condition may be on."""
    return Counter(name for scope in scopes for name in scope if not name.startswith(SHARED))


def is_id_text(text: str) -> bool:
    """Whether a text looks like an id: two digits or more."""
    return has_digits(text, 2)


def _field(item: Any, field: str) -> Any:
    return item.get(field, UNKNOWN) if isinstance(item, dict) else UNKNOWN


def _keys(item: Any) -> list[str]:
    return list(item) if isinstance(item, dict) else []


def _items(item: Any) -> list[tuple[str, Any]]:
    return list(item.items()) if isinstance(item, dict) else []
