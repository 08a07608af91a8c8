"""How a transition is spelled as an object of Weaviate, how it is asked for, and how one is read back.

What a row says is its payload, text with a checksum. Names that rows are found by are JSON strings, quotes
and all: the server trims what it filters by, is given UTF-8 only, and so no name meets another, whatever is
in it. Words are split here (`terms_of`), with blanks between them: the server splits at blanks and does
nothing else. What search may not find has neither words nor a vector.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from dreamgym_kit.bounded_json import read_json
from dreamgym_kit.errors import NotSerializable, StoreError
from dreamgym_kit.interfaces import HybridQuery
from dreamgym_kit.replay.records import dump_record, transition_from_record, transition_to_record
from dreamgym_kit.replay.retrieval import fits, may_be_found, search_text, terms_of
from dreamgym_kit.types import Environment, Source, Split, Transition

VECTOR = "text"  # the name of the vector, after what it is made of
READ = ("payload", "checksum", "order")  # properties that make a transition
EVERY_SPLIT = tuple(str(split) for split in Split)
_LONG = 200  # characters of a name as it is filtered by
_spell = json.JSONEncoder().encode


@dataclass(frozen=True, slots=True)
class Row:
    """A transition, ready to be sent."""

    id: str
    size: int  # characters of its payload
    text: str  # that its vector is made of; "" where search may not find it
    properties: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Found:
    """A transition that the server gave."""

    number: int  # rising in the order recorded, never that of another row
    order: int
    transition: Transition


@dataclass(frozen=True, slots=True)
class Asked:
    """What rows have to be; None: anything."""

    tenant: str | None = None
    environment: Environment | None = None
    tool: str | None = None
    key: str | None = None

    def names(self) -> dict[str, str]:
        """The properties to filter by."""
        environment = None if self.environment is None else str(self.environment)
        values = {"tenant": self.tenant, "world": environment, "tool": self.tool, "key": self.key}
        return {name: named(value) for name, value in values.items() if value is not None}

    def fits(self, row: Transition) -> bool:
        """Whether a row is what was asked for: the server's word is not taken for it."""
        return (
            self.tenant in (None, row.tenant)
            and self.environment in (None, row.environment)
            and self.tool in (None, row.call.tool)
            and self.key in (None, row.call.key)
        )


def row_of(transition: Transition, *, lifetime_s: float | None) -> Row:
    """Spell a transition.

    Args:
        transition: what is to be stored.
        lifetime_s: after which an answer that no real tool gave may be deleted by the server.

    Raises:
        NotSerializable: it has no JSON form.
    """
    record = transition_to_record(transition)
    payload = dump_record(record)
    text = search_text(transition) if may_be_found(transition) else ""
    properties: dict[str, object] = {
        "payload": payload,
        "checksum": _checksum(payload),
        "tenant": named(transition.tenant),
        "world": named(str(transition.environment)),
        "tool": named(transition.call.tool),
        "key": named(transition.call.key),
        "episode": named(transition.episode),
        "split": str(transition.split),
        "provenance": transition.answer.source.on_disk,
        "recorded_at": transition.recorded_at,
        "terms": " ".join(terms_of(text)),
    }
    expires = _expires(transition, lifetime_s)
    if expires is not None:
        properties["expires"] = expires
    return Row(transition.id, len(payload), text, properties)


def search_text_of(row: Found) -> str:
    """The text that a row's vector is made of."""
    return search_text(row.transition)


def named(name: str) -> str:
    """Spell any text so that just this text is found by it; plain names stay readable."""
    spelled = _spell(name)
    if len(spelled) <= _LONG:
        return spelled
    return "#" + hashlib.blake2b(spelled.encode(), digest_size=32).hexdigest()


def read_object(place: str, item: Any, wanted: Asked) -> Found:
    """Turn an object with the properties `READ` into its transition.

    Raises:
        StoreError: it is not what was written, or not what was asked for.
    """
    payload, stored, order = (item.properties.get(name) for name in READ)
    if not isinstance(payload, str) or not isinstance(order, int) or _checksum(payload) != stored:
        raise _damaged(place, item, "its content is not what was written")
    try:
        record = read_json(payload, checked=True)
        transition = transition_from_record(record, checked=True)
    except NotSerializable as error:
        raise _damaged(place, item, str(error)) from error
    if record.get("id") != str(item.uuid) or not wanted.fits(transition):
        raise _damaged(place, item, "it was found by something else than its content says")
    return Found((order << 128) | item.uuid.int, order, transition)


def check_match(place: str, match: Found, query: HybridQuery) -> None:
    """Compare a hit with what was asked: what is filtered out is never given, whatever the server says.

    Raises:
        StoreError: it does not fit.
    """
    row = match.transition
    if not fits(row, query):
        raise StoreError(
            f"{place}: row {row.id} is damaged: its properties say something else than its content"
        )


def filter_of(names: Mapping[str, str], *more: Any) -> Any:
    """The filter for rows with these properties that meet `more`; every row where both are none."""
    from weaviate.classes.query import Filter

    each = [Filter.by_property(name).equal(value) for name, value in names.items()]
    return Filter.all_of([*each, *more] or [Filter.by_property("split").contains_any(list(EVERY_SPLIT))])


def query_filter(query: HybridQuery, sources: frozenset[Source]) -> Any:
    """The filter for rows that a search may find."""
    from weaviate.classes.query import Filter

    names = Asked(tenant=query.tenant, environment=query.environment, tool=query.tool).names()
    made = Filter.by_property("provenance").contains_any(sorted(source.on_disk for source in sources))
    more = [made]
    if query.not_episode is not None:
        more.append(Filter.by_property("episode").not_equal(named(query.not_episode)))
    return filter_of({**names, "split": str(Split.TRAIN)}, *more)


def chunks(rows: Sequence[Row], *, most: int, most_size: int) -> list[list[Row]]:
    """Rows in parts that a message holds: at most so many, of at most so many characters, or one."""
    parts: list[list[Row]] = []
    size = 0
    for row in rows:
        if not parts or len(parts[-1]) >= most or size + row.size > most_size:
            parts.append([])
            size = 0
        parts[-1].append(row)
        size += row.size
    return parts


def _expires(transition: Transition, lifetime_s: float | None) -> datetime | None:
    made, at = transition.answer.source, transition.recorded_at
    if lifetime_s is None or made is Source.REAL or at <= 0:
        return None
    try:
        return datetime.fromtimestamp(at + lifetime_s, tz=UTC)
    except (OverflowError, OSError, ValueError):  # a year that no calendar has: it stays
        return None


def _checksum(payload: str) -> str:
    return hashlib.blake2b(payload.encode(), digest_size=16).hexdigest()


def _damaged(place: str, item: Any, problem: str) -> StoreError:
    return StoreError(f"{place}: row {item.uuid} is damaged: {problem}; delete it there and import it again")
