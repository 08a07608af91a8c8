"""What is known of records: as recordings say that a world begins, and in one episode since."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dreamgym_kit.dream.observed import Wrap
from dreamgym_kit.dream.programs.collections import VIEW, WHOLE, Collections, Fact, RecordedCalls, RowKey
from dreamgym_kit.dream.programs.values import GONE, UNKNOWN, ValueKey, same, value_key
from dreamgym_kit.serialization import JsonValue

_CONTESTED = 0.45  # confidence at most where recordings contradict each other


class BaseFact(NamedTuple):
    """What one recorded episode was told of a record before anything had changed it."""

    episode: str
    key: JsonValue
    fields: Mapping[str, Any]
    whole: bool
    at: float  # its place or time: of two sights the higher one is newer
    is_first: bool  # whether the episode had written nothing at all


class Base:
    """What recordings tell of each world as an episode finds it.

    `heard`: episodes by (world, value): an answer contained the value, or a successful call received it.
    """

    def __init__(self, heard: Mapping[tuple[str, ValueKey], set[str]] | None = None) -> None:
        self.told: dict[tuple[str, str], dict[RowKey, list[BaseFact]]] = defaultdict(dict)
        """By (world, collection)."""
        self._contested: dict[tuple[str, RowKey], bool] = {}
        self._merged: dict[tuple[str, RowKey], dict[str, Any] | None] = {}
        self._having: dict[tuple[str, str], dict[str, dict[ValueKey, dict[RowKey, None]]]] = {}
        self.wraps: dict[tuple[str, RowKey], Wrap] = {}
        """By world and view, what the tool put around that very answer."""
        self.listed: dict[tuple[str, str], set[str]] = defaultdict(set)
        """By (world, collection), the episodes that read a complete list of it."""
        self.heard = heard or {}

    def add(self, of: RecordedCalls, facts: Sequence[Fact], wrap: Wrap, *, is_first: bool) -> None:
        """An episode was told this; newer episodes come later."""
        for fact in facts:
            if fact.collection.startswith(VIEW):
                self.wraps[of.world, fact.row] = wrap
            told = BaseFact(of.id, fact.key, fact.fields, fact.whole, of.number, is_first)
            self.told[of.world, fact.collection].setdefault(fact.row, []).append(told)
            self._merged.pop((of.world, fact.row), None)
            for field, rows in self._having.get((of.world, fact.collection), {}).items():
                if field in fact.fields:
                    rows.setdefault(value_key(fact.fields[field]), {})[fact.row] = None

    def row(self, world: str, row: RowKey, without: str | None = None) -> dict[str, Any] | None:
        """A record's known fields; `without` names an episode that must not explain itself."""
        told = self.told.get((world, row[0]), {}).get(row)
        if told is None:
            return None
        if without is not None and any(one.episode == without for one in told):
            return _merged([one for one in told if one.episode != without])
        if (world, row) not in self._merged:
            self._merged[world, row] = _merged(told)
        return self._merged[world, row]

    def is_contested(self, world: str, row: RowKey) -> bool:
        """Whether sights of a record as the world begins contradict each other.

        A change at one time is no contradiction: all sights from then on say the same.
        """
        if (world, row) not in self._contested:
            first = [one for one in self.told.get((world, row[0]), {}).get(row, ()) if one.is_first]
            fields = {name for one in first for name in one.fields} if len(first) > 1 else ()
            self._contested[world, row] = any(_has_two_values(first, field) for field in fields)
        return self._contested[world, row]

    def having(self, world: str, collection: str, field: str, value: JsonValue) -> list[RowKey]:
        """The records that were told with this value of a field."""
        fields = self._having.setdefault((world, collection), {})
        if field not in fields:
            rows = fields[field] = {}
            for row, told in self.told.get((world, collection), {}).items():
                for one in told:
                    if field in one.fields:
                        rows.setdefault(value_key(one.fields[field]), {})[row] = None
        return list(fields[field].get(value_key(value), ()))


def _merged(told: Sequence[BaseFact]) -> dict[str, Any] | None:
    """The newest sight of each field; one from before any write counts more than one from after some."""
    got: dict[str, Any] | None = None
    whole: frozenset[str] = frozenset()
    for one in sorted(told, key=lambda sight: sight.is_first):
        got = got or {WHOLE: False}
        if one.whole:
            for name in whole.difference(one.fields):  # it had that field once
                got.pop(name, None)
            whole = frozenset(one.fields)
        got |= one.fields
        got[WHOLE] = got[WHOLE] or one.whole
    return got


def _has_two_values(told: Sequence[BaseFact], field: str) -> bool:
    sights = [(one.at, value_key(one.fields[field])) for one in told if field in one.fields]
    others = [at for at, value in sights if value != sights[-1][1]]
    return bool(others) and max(others) >= min(at for at, value in sights if value == sights[-1][1])


class WorldState:
    """One episode's world: what the base says, and what was read and done since.

    Attributes:
        count: by tool, the writes that went well.
        done: those writes, with their arguments.
        last: by (tool, argument), what the last write that went well was given.
        line: those writes in their order.
        written: those writes, each with the things that it named and the records with a known change.
        refused: the writes that failed, each with the things that it named.
        open: the writes that nobody saw end, each with its things and the records that it keeps anyway.
        shown: the records that real answers showed since the last of these.
        denied: the things of which an answer said that there are none such.
        heard: the things that this episode's answers named.
        made: records made in this episode.
        lost: keys and names of deleted records.
        tainted: collections in which there may be records that nobody knows of.
        confidence: of records that rest on something less than sure.
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
        self.heard: set[ValueKey] = set()
        self.open: list[tuple[str, frozenset[ValueKey], frozenset[RowKey]]] = []
        self.shown: set[RowKey] = set()
        self.denied: set[ValueKey] = set()
        self.broken = False  # a write was not understood: recordings of this line of writes are no proof
        self._known: dict[RowKey, dict[str, Any] | None] = {}

    def row(self, collection: str, key: JsonValue) -> Any:
        """A record's fields, GONE, or None where nothing is known."""
        return self.at((collection, value_key(key)))

    def at(self, row: RowKey) -> Any:
        """As `row`."""
        if row in self.changed:
            return self.changed[row]
        if row not in self._known:
            self._known[row] = self.base.row(self.world, row, self.without)
        return self._known[row]

    def sure_of(self, row: RowKey) -> float:
        """How sure it is what a record is, 0..1, apart from how an answer is made of it."""
        contested = row not in self.changed and self.base.is_contested(self.world, row)
        return self.confidence.get(row, _CONTESTED if contested else 1.0)

    def put(
        self, collection: str, key: JsonValue, fields: Any, whole: bool, confidence: float | None = None
    ) -> None:
        """A record is now this; UNKNOWN: nobody knows."""
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
        """The key of the record with that field, of a deleted one too."""
        key_field = self.collections.key_fields[collection]
        for row in self.having(collection, field, value):
            for known in (self.base.row(self.world, row, self.without), self.changed.get(row)):
                if isinstance(known, dict) and same(known.get(field, UNKNOWN), value):
                    key: JsonValue = known.get(key_field, row[1][1])
                    return key
        return None

    def has_heard(self, value: JsonValue) -> bool:
        """Whether an answer contained this value, in this episode or in another episode of this world."""
        key = value_key(value)
        if key in self.heard:
            return True
        episodes = self.base.heard.get((self.world, key), ())
        return any(episode != self.without for episode in episodes)

    def is_listed(self, collection: str) -> bool:
        """Whether all records that there were at the start are known: a complete list of them was read."""
        listed = self.base.listed.get((self.world, collection), ())
        return any(episode != self.without for episode in listed)

    def keys(self, collection: str) -> dict[RowKey, JsonValue]:
        """The known records of a collection and their keys, those of the base first."""
        found: dict[RowKey, JsonValue] = {}
        for row, told in self.base.told.get((self.world, collection), {}).items():
            if self.without is None or any(one.episode != self.without for one in told):
                found[row] = told[0].key
        key_field = self.collections.key_fields.get(collection, "")
        for row, fields in self.changed.items():
            if row[0] == collection:
                key = fields.get(key_field, row[1][1]) if isinstance(fields, dict) else row[1][1]
                found.setdefault(row, key)
        return found

    def rows_of(self, collection: str) -> list[RowKey]:
        """The known records of a collection, without their keys."""
        base = self.base.told.get((self.world, collection), {})
        return [*base, *(row for row in self.changed if row[0] == collection and row not in base)]

    def having(self, collection: str, field: str, value: JsonValue) -> list[RowKey]:
        """Records that may have this value of a field: as told, and all that this episode changed."""
        found = self.base.having(self.world, collection, field, value)
        return [*found, *(row for row in self.changed if row[0] == collection and row not in found)]

    def observe(self, facts: Sequence[Fact]) -> None:
        """Something was told."""
        for fact in facts:
            self.put(fact.collection, fact.key, fact.fields, fact.whole)
