"""Where records are in a tool suite's answers, and the facts that answers show of each record.

A *collection* is a set of records with a key: all orders, all users. Collections are found by values that
recur in several places; names only break ties.

    document    a read whose answer repeats its one argument in a field: `get_order(order_id)`
    list        an answer that holds records with a key of their own: `list_parts()`
    projection  `{field: value}` of one record: `get_part_information(part_id, field)`
    view        any other read: its answer is stored under its arguments
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from dreamgym_kit.dream.programs.environment_fields import ENVIRONMENT, VALUE, EnvironmentFields
from dreamgym_kit.dream.programs.values import (
    UNKNOWN,
    SeenStep,
    ValueKey,
    at_path,
    has_digits,
    is_key,
    is_scalar,
    is_thing,
    same,
    value_key,
)
from dreamgym_kit.dream.things import kind_of, kinds_of
from dreamgym_kit.serialization import JsonValue

VIEW = "view:"
WHOLE = "\0whole"
"""Beside a known record's fields: whether all of them are known."""
_ID_ENDINGS = ("id", "sku", "key")
_KEY_ENDINGS = ("id", "_no", "key", "sku", "code")
_UNIQUE_ENDINGS = ("id", "no", "email", "code", "key")
_UNIQUE = 0.95  # values of a field for each record, by which it can name one
_MOSTLY = 0.95  # share of answers that have to show a form
_PROOFS = 2  # elements with the same answer in lists of different lengths
_JOINS = 0.1  # share of a list's keys that are a collection's, if it is a list of those records
_PLAIN = 3  # fields that records of two kinds may have in common: id, name, type
_ALIKE = 0.7  # share of fields by which two answers are records of one collection

Path = tuple[str, ...]
RowKey = tuple[str, ValueKey]
"""Collection, and the key of a record in it."""


class Document(NamedTuple):
    """A tool whose whole answer is one record. Its field `by` has the argument's value."""

    collection: str
    key_field: str
    key_arg: str | None
    by: str


class ListSite(NamedTuple):
    """A list of records in a tool's answer."""

    path: Path
    collection: str
    key_field: str


class Projection(NamedTuple):
    """A tool that answers one field of one record."""

    collection: str
    key_arg: str
    field_arg: str


class Fact(NamedTuple):
    """What an answer shows of one record."""

    collection: str
    key: JsonValue
    fields: Any  # a mapping, or GONE
    whole: bool  # whether these are all its fields
    row: RowKey  # which record: its collection and key

    @classmethod
    def of(cls, collection: str, key: JsonValue, fields: Any, *, whole: bool) -> "Fact":
        """Return a fact about the record with this key."""
        return cls(collection, key, fields, whole, (collection, value_key(key)))


class RecordedCalls(NamedTuple):
    """One recorded episode, as mining uses it."""

    id: str
    world: str
    steps: tuple[SeenStep, ...]
    number: float = 0  # place or time; a higher one is newer, and shows the present state of its world


def is_record(collection: str) -> bool:
    """Whether a collection is of records: neither answers of one read nor a field of the environment."""
    return not collection.startswith((VIEW, ENVIRONMENT))


def args_key(args: Mapping[str, JsonValue]) -> JsonValue:
    """Return the key of a view: its sorted arguments."""
    return dict(sorted(args.items()))


class Collections:
    """Where records are in the answers of some recordings; see the module.

    Attributes:
        documents, lists, projections, views: by tool.
        kinds: by tool, the documents of a look-up that answers records of several kinds.
        batches: by view, the list argument whose elements are the keys of its answer.
        key_fields: by collection, its key.
        fields: by collection, the fields of its whole records.
        tool_fields: by tool, the fields that its document shows.
        maps: (collection, path) of fields whose keys are ids, not names.
        element_keys: by (collection, path) of a list in a record, the fields that tell its elements apart.
        arg_refs, field_refs: by (tool, argument) and (collection, field), the collection that it refers to.
        arg_fields: by (tool, argument), (collection, field) where it names a record by another unique field.
        arg_maps: by (tool, argument), (collection, path) of the map whose keys it takes.
        environment: what answers show of the environment itself.
    """

    def __init__(self, reads: frozenset[str], episodes: Sequence[RecordedCalls]) -> None:
        self.reads = reads
        self.documents: dict[str, Document] = {}
        self.kinds: dict[str, list[Document]] = {}
        self.lists: dict[str, list[ListSite]] = {}
        self.projections: dict[str, Projection] = {}
        self.views: set[str] = set()
        self.key_fields: dict[str, str] = {}
        self.fields: dict[str, set[str]] = defaultdict(set)
        self.tool_fields: dict[str, set[str]] = {}
        self.maps: set[tuple[str, Path]] = set()
        self.element_keys: dict[tuple[str, Path], list[str]] = {}
        self.arg_refs: dict[tuple[str, str], str] = {}
        self.field_refs: dict[tuple[str, str], str] = {}
        self.arg_fields: dict[tuple[str, str], tuple[str, str]] = {}
        self.arg_maps: dict[tuple[str, str], tuple[str, Path]] = {}
        steps: dict[str, list[SeenStep]] = defaultdict(list)
        for episode in episodes:
            for step in episode.steps:
                steps[step.tool].append(step)
        self._shapes: dict[str, set[str]] = defaultdict(set)  # by collection: the fields of all its records
        self._find_projections(steps)
        self._records_by_fields = _records_at_start(reads, episodes)
        answers_of_writes = self._find_documents(steps)
        self._find_lists(steps)
        for tool, field, arg, fields in answers_of_writes:
            self._add_document(tool, field, arg, set(fields))
        structured = {*self.documents, *self.kinds, *self.projections, *self.lists}
        self.views = {tool for tool in steps if tool in reads and tool not in structured}
        spans = _by_span(reads, episodes)
        self.batches = {tool: arg for tool in self.views if (arg := _batched(spans[tool])) is not None}
        self.environment = EnvironmentFields(
            [
                (episode.world, [step for step in episode.steps if step.tool not in structured])
                for episode in episodes
            ],
            reads,
        )
        self._find_shapes(steps)
        self._find_references(episodes)
        del self._records_by_fields, self._shapes

    def facts(self, step: SeenStep) -> list[Fact]:
        """Return what an answer shows of records, and of its own view."""
        tool, args, out = step.tool, step.args, step.out
        projection, document = self.projections.get(tool), self._document(step)
        if step.ok and isinstance(out, dict):
            named = args.get(projection.field_arg) if projection is not None else None
            if projection is not None and isinstance(named, str) and named in out:
                if projection.key_arg not in args:
                    return []
                key = args[projection.key_arg]
                fields = {**out, self.key_fields[projection.collection]: key}
                return [Fact.of(projection.collection, key, fields, whole=False)]
            if document is not None:
                key = out.get(document.key_field)
                return [Fact.of(document.collection, key, out, whole=True)] if is_key(key) else []
        view = Fact.of(VIEW + tool, args_key(args), {"": [step.ok, out]}, whole=True)
        if step.ok and tool in self.lists:
            return [*self._listed(tool, out), view]
        shown = [
            Fact.of(ENVIRONMENT + name, "", {VALUE: value}, whole=True)
            for name, value in self.environment.shown(step)
        ]
        return [view, *self.parts(step.tool, args, out), *shown] if tool in self.views else shown

    def parts(self, tool: str, args: Mapping[str, JsonValue], out: JsonValue = None) -> list[Fact]:
        """Split an answer about some things into one fact for each.

        Its key is the thing itself, not a list of one: it never replaces the answer to a call of its own.
        """
        arg = self.batches.get(tool, "")
        given = args.get(arg)
        if not isinstance(given, list) or not all(isinstance(item, str) for item in given):
            return []
        answers = out if isinstance(out, dict) else {}
        return [
            Fact.of(
                VIEW + tool,
                args_key({**args, arg: item}),
                {"": [True, {item: answers[item]} if item in answers else {}]},
                whole=True,
            )
            for item in given
        ]

    def _document(self, step: SeenStep) -> Document | None:
        kinds = self.kinds.get(step.tool)
        if kinds is None or not isinstance(step.out, dict):
            return self.documents.get(step.tool)
        return next(
            (document for document in kinds if _repeats(step, document.by, str(document.key_arg))),
            None,
        )

    def _listed(self, tool: str, out: JsonValue) -> Iterator[Fact]:
        for site in self.lists[tool]:
            items = at_path(out, site.path)
            for item in items if isinstance(items, list) else ():
                if isinstance(item, dict) and site.key_field in item:
                    yield Fact.of(site.collection, item[site.key_field], item, whole=False)

    def flat(self, collection: str, fields: Mapping[str, Any], depth: int = 2) -> Iterator[tuple[str, Any]]:
        """Yield the scalars of a record with their names; maps of records are left out."""

        def walk(path: Path, value: Any, left: int) -> Iterator[tuple[str, Any]]:
            if is_scalar(value):
                yield ".".join(path), value
            elif isinstance(value, dict) and left and (collection, path) not in self.maps:
                for name, item in value.items():
                    yield from walk((*path, str(name)), item, left - 1)

        for name, value in fields.items():
            if name != WHOLE:
                yield from walk((name,), value, depth)

    def _find_projections(self, steps: Mapping[str, list[SeenStep]]) -> None:
        for tool, calls in steps.items():
            records = [step for step in calls if step.ok and isinstance(step.out, dict)]
            good = [(step.args, step.out) for step in records if len(step.out) == 1]
            if tool not in self.reads or len(good) < max(2, _MOSTLY * len(records)):
                continue
            for field_arg in sorted({name for args, _ in good for name in args}):
                if all(args.get(field_arg) == next(iter(out)) for args, out in good):
                    others = [name for name in good[0][0] if name != field_arg]
                    if len(others) == 1:
                        self.projections[tool] = Projection(others[0], others[0], field_arg)
                        self.key_fields[others[0]] = others[0]

    def _find_documents(
        self, steps: Mapping[str, list[SeenStep]]
    ) -> list[tuple[str, str | None, str | None, Counter[str]]]:
        """Find the reads that answer one record. Return such writes: tool, field, argument, fields."""
        reads, writes = [], []
        for tool, calls in steps.items():
            good = [step for step in calls if step.ok and isinstance(step.out, dict)]
            if not good or tool in self.projections:
                continue
            best = self._repeated_argument(good)
            fields = Counter(name for step in good for name in step.out)
            if tool not in self.reads:
                writes.append((tool, *(best or (None, None)), fields))
            elif best is not None:
                alone = sum(set(step.args) <= {best[1]} for step in good)
                if alone >= _MOSTLY * len(good):  # other arguments would make it a query
                    reads.append((tool, *best, fields))
            else:
                self._find_kinds(tool, good)
        reads.reverse()

        def rank(read: tuple[str, str, str, Counter[Any]]) -> tuple[bool, bool]:
            field, fields = read[1], set(read[3])
            others = [other for _, other, _, names in reads if other != field and set(names) == fields]
            is_shared = any(self._is_shared(field, other, fields) for other in others)
            return is_shared, not field.lower().rstrip("_").endswith(_KEY_ENDINGS)

        for tool, field, arg, fields in sorted(reads, key=rank):
            self._add_document(tool, field, arg, set(fields))
        return writes

    def _find_kinds(self, tool: str, good: Sequence[SeenStep]) -> None:
        """Find a look-up of several kinds of records: in each answer some field repeats its one argument."""
        steps_by_pair: dict[tuple[str, str], list[SeenStep]] = defaultdict(list)
        for step in good:
            for arg in step.args if len(step.args) == 1 else ():
                field = next((name for name in step.out if _repeats(step, name, arg)), None)
                if field is not None:
                    steps_by_pair[field, arg].append(step)
        if len(steps_by_pair) < 2 or sum(map(len, steps_by_pair.values())) < _MOSTLY * len(good):
            return
        self.kinds[tool], shown = [], set[str]()
        for (field, arg), steps in steps_by_pair.items():
            self._add_document(tool, field, arg, {name for step in steps for name in step.out})
            if tool in self.documents:
                self.kinds[tool].append(self.documents.pop(tool))
                shown |= self.tool_fields[tool]
        if len(self.kinds[tool]) == len(steps_by_pair):
            self.tool_fields[tool] = shown
        else:  # some of its answers would be lost
            del self.kinds[tool]
            self.tool_fields.pop(tool, None)

    def _repeated_argument(self, good: Sequence[SeenStep]) -> tuple[str, str] | None:
        """Return the field that repeats an argument in (nearly) every answer, and that argument."""
        best_score, best_pair = None, None
        names = list(good[0].out)
        for field in sorted({name for step in good for name in step.out}):
            values = [step.out[field] for step in good if field in step.out]
            distinct = len({value_key(value) for value in values if is_scalar(value)})
            for arg in sorted({name for step in good for name in step.args}):
                hits = sum(_repeats(step, field, arg) for step in good)
                named = field in (arg, "id")
                if hits < _MOSTLY * len(good) or not (distinct >= 2 or len(good) == 1 or named):
                    continue
                score = (distinct, named, -names.index(field) if field in names else -99)
                if best_score is None or score > best_score:
                    best_score, best_pair = score, (field, arg)
        return best_pair

    def _is_shared(self, field: str, other: str, fields: set[str]) -> bool:
        """Whether two records of a world have the same value of a field, but not of the other one.

        In two episodes it may be one record that changed between them: then most of its fields are the same.
        """
        first: dict[tuple[str, ValueKey], tuple[str, Mapping[str, Any]]] = {}
        for names, records in self._records_by_fields.items():
            for world, episode, record in records if {field, other} <= names <= fields else ():
                if not is_key(record[field]):
                    continue
                where, before = first.setdefault((world, value_key(record[field])), (episode, record))
                if not same(before[other], record[other]):
                    common = (before.keys() & record.keys()) - {field}
                    differing = sum(not same(before[name], record[name]) for name in common)
                    if where == episode or differing > len(common) / 2:
                        return True
        return False

    def _target(self, tool: str, field: str | None, fields: set[str]) -> str | None:
        """Return the collection whose records a tool answers, perhaps a new one."""
        is_question = False
        for collection, known_fields in self._shapes.items():
            key = self.key_fields[collection]
            keyed = field is None or field == key or tool not in self.reads
            alike = len(fields & known_fields) >= (_ALIKE if keyed else 1) * max(
                len(fields), len(known_fields)
            )
            if key not in fields or not alike or not (keyed or known_fields):
                continue
            if keyed or field is None:
                return collection
            if not self._is_shared(field, key, fields) and not self._is_shared(key, field, fields):
                return collection
            is_question = True  # several records have this value: its answer is a choice among them
        if is_question or tool not in self.reads or len(fields) < 2 or field is None:
            return None
        return field if field not in self.key_fields else f"{field}@{tool}"

    def _add_document(self, tool: str, field: str | None, arg: str | None, fields: set[str]) -> None:
        target = self._target(tool, field, fields)
        if target is None:
            return
        if target not in self.key_fields and field is not None:
            self.key_fields[target] = field
        key = self.key_fields[target]
        self.fields[target] |= fields
        self._shapes[target] |= fields
        self.tool_fields[tool] = fields
        is_look_up = field == key or (tool in self.reads and field is not None)
        self.documents[tool] = Document(target, key, arg if is_look_up else None, field or key)

    def _find_lists(self, steps: Mapping[str, list[SeenStep]]) -> None:
        keys = self._known_keys(steps)
        given_keys = {
            value_key(value)
            for calls in steps.values()
            for step in calls
            for value in step.args.values()
            if is_key(value)
        }
        for tool, calls in sorted(steps.items()):
            if tool not in self.reads or tool in self.documents or tool in self.kinds:
                continue
            for path, lists in _lists_in(calls).items():
                self._add_list(tool, path, lists, keys, given_keys)

    def _known_keys(self, steps: Mapping[str, list[SeenStep]]) -> dict[str, set[ValueKey]]:
        """By collection, the keys of its records."""
        keys: dict[str, set[ValueKey]] = defaultdict(set)
        for document, out in self._documented(steps):
            if document.key_field in out:
                keys[document.collection].add(value_key(out[document.key_field]))
        for tool, projection in self.projections.items():
            for step in steps[tool]:
                if projection.key_arg in step.args:
                    keys[projection.collection].add(value_key(step.args[projection.key_arg]))
        return keys

    def _add_list(
        self,
        tool: str,
        path: Path,
        lists: list[list[JsonValue]],
        keys: dict[str, set[ValueKey]],
        given_keys: set[ValueKey],
    ) -> None:
        records = [item for items in lists for item in items if isinstance(item, dict)]
        if not records or sum(map(len, lists)) != len(records):
            return
        best: tuple[float, str, str | None] | None = None
        for field in sorted({name for record in records for name in record} - {"error"}):
            values = [record.get(field) for record in records]
            if not all(map(is_key, values)) or not all(_one_word(value, field) for value in values):
                continue
            if any(len({value_key(item[field]) for item in items}) < len(items) for items in lists):
                continue
            mine = {value_key(value) for value in values}
            share, joined = max(
                (
                    (self._share(mine, known_keys, collection, records[0]), collection)
                    for collection, known_keys in keys.items()
                    if self.key_fields[collection] == field
                ),
                default=(0.0, None),
            )
            score = share * 3 + (field == "id" or field.lower().rstrip("_").endswith(_KEY_ENDINGS))
            score += len(mine & given_keys) / len(mine) + 0.5 * (field in self.key_fields.values())
            if score >= 0.9 and (best is None or score > best[0]):
                best = (score, field, joined if share >= _JOINS else None)
        if best is None:
            return
        _, field, joined = best
        if joined is None:
            # an equal field name does not prove that it is the same collection
            joined = field if field not in self.key_fields else f"{field}@{tool}"
            self.key_fields[joined] = field
        keys[joined] |= {value_key(record[field]) for record in records}
        self.lists.setdefault(tool, []).append(ListSite(path, joined, field))
        self._shapes[joined].update(*records)

    def _share(
        self, mine: set[ValueKey], known: set[ValueKey], collection: str, record: Mapping[str, JsonValue]
    ) -> float:
        """Return the share of keys that are a collection's; 0 for other fields: both may count from 1."""
        shape = self._shapes[collection]
        others = min(len(shape), len(record)) - 1  # beside the key
        if others > 0 and 2 * (len(shape & record.keys()) - 1) < others:
            return 0.0
        alike = len(record) > _PLAIN and shape == record.keys()  # it can be of no other kind
        return max(len(mine & known) / len(mine), _JOINS * alike)

    def _documented(self, steps: Mapping[str, list[SeenStep]]) -> Iterator[tuple[Document, dict[str, Any]]]:
        for step in (step for calls in steps.values() for step in calls):
            document = self._document(step)
            if step.ok and isinstance(step.out, dict) and document is not None:
                yield document, step.out

    def _find_shapes(self, steps: Mapping[str, list[SeenStep]]) -> None:
        """Find fields that are maps of records, and lists in records whose elements have a key."""
        seen: dict[tuple[str, Path], list[Any]] = defaultdict(list)

        def walk(collection: str, path: Path, value: Any, left: int) -> None:
            if isinstance(value, dict):
                seen[collection, path].append(value)
                for name, item in value.items() if left else ():
                    walk(collection, (*path, name), item, left - 1)
            elif isinstance(value, list) and value and isinstance(value[0], dict):
                seen[collection, path].append(value)

        for document, out in self._documented(steps):
            for name, item in out.items():
                walk(document.collection, (name,), item, 1)
        for (collection, path), values in seen.items():
            self._add_shape(collection, path, values)

    def _add_shape(self, collection: str, path: Path, values: list[Any]) -> None:
        mappings = [value for value in values if isinstance(value, dict)]
        names = Counter(name for value in mappings for name in value)
        of_records = all(isinstance(item, dict) for value in mappings for item in value.values())
        varied = names.total() < 0.5 * len(names) * len(mappings)  # names of fields would recur
        if mappings and of_records and len(names) >= 3 and varied:
            self.maps.add((collection, path))
        items = [
            item for value in values if isinstance(value, list) for item in value if isinstance(item, dict)
        ]
        for field in sorted({name for item in items for name in item}):
            named = field == "id" or field.lower().rstrip("_").endswith(_ID_ENDINGS)
            if named and all(is_key(item.get(field)) for item in items):
                self.element_keys.setdefault((collection, path), []).append(field)

    def _find_references(self, episodes: Sequence[RecordedCalls]) -> None:
        """Find the collection that each argument and field refers to: its keys include their values."""
        seen = _Values()
        for episode in episodes:
            for step in episode.steps:
                self._count_values(episode.world, step, seen)
        self._find_argument_references(seen)
        for (owner, name), values in seen.fields.items():
            if name == self.key_fields.get(owner):
                continue
            collection = self._named_collection(name, values, seen.keys)
            if collection is not None:
                self.field_refs[owner, name] = collection

    def _find_argument_references(self, seen: "_Values") -> None:
        keys, fields = seen.keys, seen.fields
        unique = {
            (collection, name): values
            for (collection, name), values in fields.items()
            if name != self.key_fields.get(collection)
            and "." not in name
            and (
                name.rstrip("_").endswith(_UNIQUE_ENDINGS)
                or all(is_thing(of) and has_digits(str(of)) for _, (_, of) in values)
            )
            and len(values) >= _UNIQUE * len(keys[collection]) >= 5
        }
        for (tool, name), values in seen.args.items():
            collection = self._named_collection(name, values, keys)
            if collection is not None:
                self.arg_refs[tool, name] = collection
            else:
                hits = [
                    (len(values & other) / len(values), where)
                    for where, other in unique.items()
                    if len(values & other) >= max(2, 0.3 * len(values))
                ]
                if hits:
                    self.arg_fields[tool, name] = max(hits)[1]
            for where, other in seen.map_keys.items():
                if len(values & other) >= max(2, 0.3 * len(values)):
                    self.arg_maps[tool, name] = where

    def _count_values(self, world: str, step: SeenStep, seen: "_Values") -> None:
        for name, value in step.args.items():
            for item in value if isinstance(value, list) else [value]:
                if is_key(item):
                    seen.args[step.tool, name].add((world, value_key(item)))
        for fact in self.facts(step):
            if not is_record(fact.collection):
                continue
            seen.keys[fact.collection].add((world, value_key(fact.key)))
            for name, value in self.flat(fact.collection, fact.fields):
                if is_key(value):
                    seen.fields[fact.collection, name].add((world, value_key(value)))
            for where in sorted(self.maps):
                inside = at_path(fact.fields, where[1]) if where[0] == fact.collection else None
                for name in inside if isinstance(inside, dict) else ():
                    seen.map_keys[where].add((world, value_key(name)))

    def _named_collection(
        self,
        name: str,
        values: set[tuple[str, ValueKey]],
        keys: Mapping[str, set[tuple[str, ValueKey]]],
    ) -> str | None:
        """Return the collection whose keys include most of these values."""
        numbers = all(key[0] == "n" for _, key in values)
        last, best = name.split(".")[-1], (0.0, 0.0, "")
        for collection, others in keys.items():
            key_field = self.key_fields[collection]
            share = len(values & others) / len(values)
            named = last == key_field or (key_field.strip("_") == "id" and last.endswith("id"))
            if share >= (0.8 if numbers else 0.3) or (named and share > 0):
                called = kind_of(last, "") in self._kinds_in(collection)  # tells whose 7 it is
                best = max(best, (share + named + called, share + named, collection))
        if best[2] and (len(values & keys[best[2]]) >= 2 or best[1] >= 1):
            return best[2]
        return None

    def _kinds_in(self, collection: str) -> set[str]:
        """Return the kinds of things in the names of the tools that answer these records."""
        lists = [tool for tool, sites in self.lists.items() if any(s.collection == collection for s in sites)]
        documents = [tool for tool, found in self.documents.items() if found.collection == collection]
        return {kind for tool in lists + documents for kind in kinds_of(tool)}


class _Values:
    """Values with their world, by place: arguments, keys, fields, and keys of maps."""

    def __init__(self) -> None:
        self.args: dict[tuple[str, str], set[tuple[str, ValueKey]]] = defaultdict(set)
        self.keys: dict[str, set[tuple[str, ValueKey]]] = defaultdict(set)
        self.fields: dict[tuple[str, str], set[tuple[str, ValueKey]]] = defaultdict(set)
        self.map_keys: dict[tuple[str, Path], set[tuple[str, ValueKey]]] = defaultdict(set)


def _repeats(step: SeenStep, field: str, arg: str) -> bool:
    value = step.out.get(field, UNKNOWN) if isinstance(step.out, dict) else UNKNOWN
    return is_key(value) and same(step.args.get(arg, UNKNOWN), value)


def _records_at_start(
    reads: frozenset[str], episodes: Sequence[RecordedCalls]
) -> dict[frozenset[str], list[tuple[str, str, Mapping[str, Any]]]]:
    """Return the records in answers before any write, with world and episode, by their fields."""
    records: dict[frozenset[str], list[tuple[str, str, Mapping[str, Any]]]] = defaultdict(list)
    for episode in episodes:
        for step in episode.steps:
            if step.tool not in reads:
                if step.ok:
                    break
                continue
            lists = [items for some in _lists_in([step]).values() for items in some]
            for record in [step.out if step.ok else None, *(item for items in lists for item in items)]:
                if isinstance(record, dict):
                    records[frozenset(record)].append((episode.world, episode.id, record))
    return records


def _by_span(
    reads: frozenset[str], episodes: Sequence[RecordedCalls]
) -> dict[str, list[tuple[tuple[str, int], SeenStep]]]:
    """Return the calls of each tool with the span, without a write, in which they were made."""
    calls: dict[str, list[tuple[tuple[str, int], SeenStep]]] = defaultdict(list)
    for episode in episodes:
        writes = 0
        for step in episode.steps:
            writes += step.tool not in reads
            calls[step.tool].append(((episode.id if writes else episode.world, writes), step))
    return calls


def _batched(calls: Sequence[tuple[tuple[str, int], SeenStep]]) -> str | None:
    """Return the list argument of a read whose answer for an element never depends on the other elements."""
    good = [(span, step) for span, step in calls if step.ok and isinstance(step.out, dict)]
    for arg in good[0][1].args if good else ():
        lists = [step.args.get(arg) for _, step in good]
        if not all(isinstance(items, list) for items in lists):
            continue
        sizes: dict[Any, set[int]] = defaultdict(set)  # of the lists that had an element
        answers: dict[Any, set[ValueKey]] = defaultdict(set)
        for span, step in good:
            items, others = step.args[arg], value_key({**step.args, arg: None})
            if not isinstance(step.out, dict) or not set(step.out) <= set(map(str, items)):
                break
            for item in items:
                element = span, others, value_key(item)
                sizes[element].add(len(set(map(value_key, items))))
                answers[element].add(value_key([step.out.get(str(item)), str(item) in step.out]))
        else:
            alone = all(len(different) == 1 for different in answers.values())
            proofs = sum(len(several) > 1 for several in sizes.values())
            return arg if alone and proofs >= _PROOFS else None
    return None


def _lists_in(calls: Sequence[SeenStep]) -> dict[Path, list[list[JsonValue]]]:
    """Return the lists in a tool's answers, by path."""
    sites: dict[Path, list[list[JsonValue]]] = defaultdict(list)
    for step in calls:
        if step.ok and isinstance(step.out, list):
            sites[()].append(step.out)
        elif step.ok and isinstance(step.out, dict):
            for name, value in step.out.items():
                if isinstance(value, list):
                    sites[(name,)].append(value)
    return sites


def _one_word(value: JsonValue, field: str) -> bool:
    return (isinstance(value, str) and len(value.split()) == 1) or field.lower().endswith(("id", "no"))
