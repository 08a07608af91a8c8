"""Encode a transition as a row of the file, query rows, and decode them.

The payload of a row is authoritative. Reading compares it with its stored checksum (version 1 has none:
with its own ID) and with the columns that were queried, so that a damaged file raises an error and never
answers for another call. Indexes have numbers of 8 or 16 bytes instead of names and digests: each put
writes as many index pages as it has rows, because the digests are random.
"""

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from dreamgym_kit.adapters.stores.sqlite_file import damaged
from dreamgym_kit.bounded_json import read_json
from dreamgym_kit.errors import NotSerializable
from dreamgym_kit.replay.records import dump_record, transition_from_record, transition_to_record
from dreamgym_kit.replay.retrieval import number_of
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.types import Environment, Transition

PAGE = 256  # rows read at a time: bounds memory, and no snapshot stays open between pages

# seq is never reused, so that its order stays the recording order even after deletions.
# Text columns have JSON's ASCII escapes; only the payload has the whole transition.
ROW_TABLES = (
    """create table transitions (
        seq integer primary key autoincrement,
        id blob not null unique,
        exact integer not null,
        tenant text not null,
        world text not null,
        tool text not null,
        key text not null,
        payload text not null
    )""",
    "create index transitions_exact on transitions (exact)",
)
INSERT = """insert into transitions (id, exact, tenant, world, tool, key, payload)
    values (?, ?, ?, ?, ?, ?, ?) on conflict (id) do nothing"""
CHECKED = """select t.seq, t.payload, p.checksum from json_each(?) asked
    join transitions t on t.seq = asked.value join places p on p.seq = t.seq"""
_COLUMNS = "t.seq, t.id, t.tenant, t.world, t.tool, t.key, t.payload"
_SHORT = 200  # characters
_spell = json.JSONEncoder().encode


def row_of(transition: Transition) -> tuple[object, ...]:
    """Return the values of `INSERT`.

    Raises:
        NotSerializable: the transition has no JSON form.
    """
    record = transition_to_record(transition)
    tenant, environment, tool, key = _names(transition)
    line = dump_record(record)
    return (
        packed(record["id"]),
        exact_number(tenant, environment, tool, key),
        tenant,
        environment,
        tool,
        key,
        line,
    )


def packed(name: str) -> bytes:
    """Return the 16 bytes of an ID.

    Raises:
        ValueError: not an ID.
    """
    return bytes.fromhex(name.replace("-", ""))


def exact_number(tenant: str, environment: str, tool: str, key: str) -> int:
    """Hash a call and its environment into the `exact` column; collisions are resolved by the names."""
    return number_of(f"{tenant} {environment} {tool} {key}")  # keys have no spaces


def spelled(text: str) -> str:
    """Escape any text for SQLite, also lone surrogates and NUL; plain names stay unchanged."""
    return _spelled_name(text) if len(text) <= _SHORT else _spell(text)[1:-1]


@lru_cache(maxsize=4096)
def _spelled_name(text: str) -> str:
    """Cached, because names of tools, environments and tenants repeat in every row."""
    return _spell(text)[1:-1]


def page_query(version: int, columns: Mapping[str, object]) -> tuple[str, tuple[object, ...]]:
    """Return the query for the next page of rows, and the values to bind after its (from, to) row numbers.

    Args:
        version: schema version of the file.
        columns: required value of each column; with a key, all columns are required.
    """
    wanted = {column: value for column, value in columns.items() if value is not None}
    if "key" in wanted and version >= 3:
        number = exact_number(*(str(wanted[name]) for name in ("tenant", "world", "tool", "key")))
        wanted = {"exact": number, **wanted}
    return _page_query(version, tuple(wanted)), tuple(wanted.values())


@lru_cache(maxsize=32)
def _page_query(version: int, columns: Sequence[str]) -> str:
    # All pages together scan the table once; an index would sort for each page.
    way = "indexed by transitions_exact" if "key" in columns else "not indexed"
    where = " and ".join(["t.seq > ?", "t.seq <= ?", *(f"t.{column} = ?" for column in columns)])
    beside = "null" if version < 2 else "p.checksum"
    join = "" if version < 2 else "left join places p on p.seq = t.seq"
    return (  # only our own text; queried values are bound
        f"select {_COLUMNS}, {beside} from transitions t {way} {join} "  # noqa: S608
        f"where {where} order by t.seq limit {PAGE}"
    )


def read_row(path: Path, version: int, row: Sequence[object]) -> Transition:
    """Decode a row of `page_query`.

    Raises:
        StoreError: the row is damaged.
    """
    seq, name, *names, payload, stored = row
    transition, id_ = _read(path, seq, payload, stored, checked=version >= 2)
    if not _is_named(name, id_) or tuple(names) != _names(transition):
        raise damaged(path, f"row {seq}: its columns differ from its content")
    return transition


def read_checked(path: Path, row: Sequence[object]) -> Transition:
    """Decode a row of `CHECKED`.

    Raises:
        StoreError: the row is damaged.
    """
    seq, payload, stored = row
    return _read(path, seq, payload, stored, checked=True)[0]


def column_filters(
    *, tenant: str | None, environment: Environment | None, tool: str | None, key: str | None = None
) -> dict[str, object]:
    """Return the filters as encoded column values."""
    return {
        "tenant": None if tenant is None else spelled(tenant),
        "world": None if environment is None else spelled(str(environment)),
        "tool": None if tool is None else spelled(tool),
        "key": key,
    }


def _read(
    path: Path, seq: object, payload: object, stored: object, *, checked: bool
) -> tuple[Transition, JsonValue]:
    """Decode a payload into its transition and the ID that it states."""
    if checked and stored is None:
        raise damaged(path, f"row {seq}: has content without an index entry")
    if not isinstance(payload, str) or (
        checked and number_of(payload) != stored
    ):  # faster than comparing its ID
        raise damaged(path, f"row {seq}: its content does not match its checksum")
    try:
        record = read_json(payload, checked=checked)
        return transition_from_record(record, checked=checked), record.get("id", "")
    except NotSerializable as error:
        raise damaged(path, f"row {seq}: {error}") from error


def _names(transition: Transition) -> tuple[str, str, str, str]:
    """Return the encoded columns: tenant, environment, tool, key."""
    call = transition.call
    return (spelled(transition.tenant), spelled(str(transition.environment)), spelled(call.tool), call.key)


def _is_named(name: object, id_: JsonValue) -> bool:
    """Return whether the ID column equals the payload's ID; files before version 3 store it as text."""
    try:
        return name == id_ or name == packed(id_)
    except (ValueError, AttributeError):  # damaged: not an ID
        return False
