"""Known records: in the recorded initial state of each world, and in one running episode."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dreamgym_kit.dream.observed import Wrap
from dreamgym_kit.dream.programs.collections import VIEW, WHOLE, Collections, Fact, RecordedCalls, RowKey
from dreamgym_kit.dream.programs.values import GONE, UNKNOWN, ValueKey, same, value_key
from dreamgym_kit.serialization import JsonValue

_CONTESTED = 0.45  # confidence at most where recordings contradict each other


class BaseFact(NamedTuple):
    """The fields of a record that one recorded episode saw before anything changed it."""

    episode: str
    key: JsonValue
    fields: Mapping[str, Any]
    whole: bool
    at: float  # place or time of the episode; higher is newer
    is_first: bool  # whether the episode had made no write yet


class Base:
    """The recorded initial state of each world.

    `episodes_with`: by (world, value), the episodes in which an answer or a successful call had this value.
    """

    def __init__(self, episodes_with: Mapping[tuple[str, ValueKey], set[str]] | None = None) -> None:
        self.facts: dict[tuple[str, str], dict[RowKey, list[BaseFact]]] = defaultdict(dict)
        """By (world, collection)."""
        self._contested: dict[tuple[str, RowKey], bool] = {}
        self._merged: dict[tuple[str, RowKey], dict[str, Any] | None] = {}
        self._having: dict[tuple[str, str], dict[str, dict[ValueKey, dict[RowKey, None]]]] = {}
        self.wraps: dict[tuple[str, RowKey], Wrap] = {}
        """By world and view, the wrapping that the tool put around this answer."""
        self.listed: dict[tuple[str, str], set[str]] = defaultdict(set)
        """By (world, collection), the episodes that read a complete list of it."""
        self.episodes_with = episodes_with or {}

    def add(self, of: RecordedCalls, facts: Sequence[Fact], wrap: Wrap, *, is_first: bool) -> None:
        """Add the facts that an episode's answer shows. Call it in order of time."""
        for fact in facts:
            if fact.collection.startswith(VIEW):
                self.wraps[of.world, fact.row] = wrap
            base_fact = BaseFact(of.id, fact.key, fact.fields, fact.whole, of.number, is_first)
            self.facts[of.world, fact.collection].setdefault(fact.row, []).append(base_fact)
            self._merged.pop((of.world, fact.row), None)
            for field, rows in self._having.get((of.world, fact.collection), {}).items():
                if field in fact.fields:
                    rows.setdefault(value_key(fact.fields[field]), {})[fact.row] = None

    def row(self, world: str, row: RowKey, without: str | None = None) -> dict[str, Any] | None:
        """Return a record's known fields, not counting those that only the episode `without` saw."""
        facts = self.facts.get((world, row[0]), {}).get(row)
        if facts is None:
            return None
        if without is not None and any(fact.episode == without for fact in facts):
            return _merged([fact for fact in facts if fact.episode != without])
        if (world, row) not in self._merged:
            self._merged[world, row] = _merged(facts)
        return self._merged[world, row]

    def is_contested(self, world: str, row: RowKey) -> bool:
        """Whether sights of a record in the initial state contradict each other.

        One change over time is no contradiction: all later sights then agree.
        """
        if (world, row) not in self._contested:
            first = [fact for fact in self.facts.get((world, row[0]), {}).get(row, ()) if fact.is_first]
            fields = {name for fact in first for name in fact.fields} if len(first) > 1 else ()
            self._contested[world, row] = any(_has_two_values(first, field) for field in fields)
        return self._contested[world, row]

    def having(self, world: str, collection: str, field: str, value: JsonValue) -> list[RowKey]:
        """Return the records that were seen with this value of a field."""
        fields = self._having.setdefault((world, collection), {})
        if field not in fields:
            rows = fields[field] = {}
            for row, facts in self.facts.get((world, collection), {}).items():
                for fact in facts:
                    if field in fact.fields:
                        rows.setdefault(value_key(fact.fields[field]), {})[row] = None
        return list(fields[field].get(value_key(value), ()))


def _merged(facts: Sequence[BaseFact]) -> dict[str, Any] | None:
    """Merge the newest sight of each field; a sight before any write precedes later ones."""
    got: dict[str, Any] | None = None
    whole: frozenset[str] = frozenset()
    for fact in sorted(facts, key=lambda sight: sight.is_first):
        got = got or {WHOLE: False}
        if fact.whole:
            for name in whole.difference(fact.fields):  # it had that field once
                got.pop(name, None)
            whole = frozenset(fact.fields)
        got |= fact.fields
        got[WHOLE] = got[WHOLE] or fact.whole
    return got


def _has_two_values(facts: Sequence[BaseFact], field: str) -> bool:
    sights = [(fact.at, value_key(fact.fields[field])) for fact in facts if field in fact.fields]
    others = [at for at, value in sights if value != sights[-1][1]]
    return bool(others) and max(others) >= min(at for at, value in sights if value == sights[-1][1])


def _has(record: Any, field: str, value: JsonValue) -> bool:
    return isinstance(record, dict) and same(record.get(field, UNKNOWN), value)


class WorldState:
    """One episode's world: the base, and all reads and writes since.

    Attributes:
        count: by tool, the number of successful writes.
        done: those writes, with their arguments.
        last: by (tool, argument), the value in the last successful write.
        line: those writes in their order.
        written: those writes, each with the things that it named and the records with a known change.
        refused: the writes that failed, each with the things that it named.
        open: the writes with an unknown end, each with its things and the records that it leaves alone.
        shown: the records that real answers showed since the last of these.
        denied: the things that an answer reported as missing.
        seen_values: the things that this episode's answers and successful calls name.
        made: records made in this episode.
        lost: keys and names of deleted records.
        tainted: collections that may have unknown records.
        confidence: of records that are not certain.
    """

    def __init__(self, collections: Collections, base: Base, world: str, without: str | None = None) -> None:
        self.collections, self.base, self.world, self.without = collections, base, world, without
        self.changed: dict[RowKey, Any] = {}
        self.count: Counter[str] = Counter()
        self.done: set[tuple[str, ValueKey]] = set()
        self.last: dict[tuple[str, str], JsonValue] = {}
        self.line: tuple[tuple[str, ValueKey], ...] = ()
        self.made: list[RowKey] = []
        self.lost: set[ValueKey] = set()
        self.tainted: set[str] = set()
        self.confidence: dict[RowKey, float] = {}
        self.written: list[tuple[str, frozenset[ValueKey], frozenset[RowKey]]] = []
        self.refused: list[tuple[str, frozenset[ValueKey]]] = []
        self.seen_values: set[ValueKey] = set()
        self.open: list[tuple[str, frozenset[ValueKey], frozenset[RowKey]]] = []
        self.shown: set[RowKey] = set()
        self.denied: set[ValueKey] = set()
        self.broken = False  # a write had unknown effects: recordings of the same writes prove nothing
        self._base_rows: dict[RowKey, dict[str, Any] | None] = {}

    def row(self, collection: str, key: JsonValue) -> Any:
        """Return a record's fields; GONE if it is deleted, None if it is unknown."""
        return self.at((collection, value_key(key)))

    def at(self, row: RowKey) -> Any:
        """Return the same as `row`, by row key."""
        if row in self.changed:
            return self.changed[row]
        if row not in self._base_rows:
            self._base_rows[row] = self.base.row(self.world, row, self.without)
        return self._base_rows[row]

    def sure_of(self, row: RowKey) -> float:
        """Return the confidence in a record's fields, 0..1, apart from how an answer is made of them."""
        contested = row not in self.changed and self.base.is_contested(self.world, row)
        return self.confidence.get(row, _CONTESTED if contested else 1.0)

    def put(
        self, collection: str, key: JsonValue, fields: Any, whole: bool, confidence: float | None = None
    ) -> None:
        """Set a record's fields; GONE: it is deleted, UNKNOWN: they are unknown from now on."""
        row = (collection, value_key(key))
        if fields is GONE or fields is UNKNOWN:
            self.changed[row] = GONE if fields is GONE else None
        else:
            old = self.at(row)
            new = {**old, **fields} if isinstance(old, dict) and not whole else dict(fields)
            new[WHOLE] = whole or (isinstance(old, dict) and old.get(WHOLE, False))
            self.changed[row] = new
        if confidence is not None:
            self.confidence[row] = confidence
        else:
            self.confidence.pop(row, None)

    def find(self, collection: str, field: str, value: JsonValue) -> JsonValue | None:
        """Return the key of the record with this field value; deleted records count too."""
        key_field = self.collections.key_fields[collection]
        for row in self.having(collection, field, value):
            for fields in (self.base.row(self.world, row, self.without), self.changed.get(row)):
                if isinstance(fields, dict) and same(fields.get(field, UNKNOWN), value):
                    key: JsonValue = fields.get(key_field, row[1][1])
                    return key
        return None

    def has_seen(self, value: JsonValue) -> bool:
        """Whether an answer contained this value, in this episode or in another episode of this world."""
        key = value_key(value)
        if key in self.seen_values:
            return True
        episodes = self.base.episodes_with.get((self.world, key), ())
        return any(episode != self.without for episode in episodes)

    def is_listed(self, collection: str) -> bool:
        """Whether a complete list was read: all initial records of the collection are known."""
        listed = self.base.listed.get((self.world, collection), ())
        return any(episode != self.without for episode in listed)

    def keys(self, collection: str) -> dict[RowKey, JsonValue]:
        """Return the known records of a collection with their keys, those of the base first."""
        keys: dict[RowKey, JsonValue] = {}
        for row, facts in self.base.facts.get((self.world, collection), {}).items():
            if self.without is None or any(fact.episode != self.without for fact in facts):
                keys[row] = facts[0].key
        key_field = self.collections.key_fields.get(collection, "")
        for row, fields in self.changed.items():
            if row[0] == collection:
                key = fields.get(key_field, row[1][1]) if isinstance(fields, dict) else row[1][1]
                keys.setdefault(row, key)
        return keys

    def rows_of(self, collection: str) -> list[RowKey]:
        """Return the known records of a collection."""
        base = self.base.facts.get((self.world, collection), {})
        return [*base, *(row for row in self.changed if row[0] == collection and row not in base)]

    def having(self, collection: str, field: str, value: JsonValue) -> list[RowKey]:
        """Return the records seen with this value of a field, and all that this episode changed."""
        rows = self.base.having(self.world, collection, field, value)
        return [*rows, *(row for row in self.changed if row[0] == collection and row not in rows)]

    def named_by(self, collection: str, field: str, value: JsonValue) -> list[RowKey]:
        """Return the records with this value of a field; without any, those that may have lost or got it."""
        rows = self.having(collection, field, value)
        now = [row for row in rows if _has(self.at(row), field, value)]
        return now or [
            row
            for row in rows
            if row in self.changed
            and (
                self.changed[row] is None or _has(self.base.row(self.world, row, self.without), field, value)
            )
        ]

    def observe(self, facts: Sequence[Fact]) -> None:
        """Store the facts of an answer."""
        for fact in facts:
            self.put(fact.collection, fact.key, fact.fields, fact.whole)
