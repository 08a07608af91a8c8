"""How a transition is spelled as a row of the file, how it is asked for, and how a row is read back.

What a row says is its payload. Reading compares it with the checksum that was written beside it (in a file
of version 1, that has none, with its own id) and with the columns that it was found by, so that a damaged
file is named and never answers for another call. Indexes hold numbers of 8 or 16 bytes in place of names and
digests: each put touches as many pages of an index as it has rows, wherever they lie.
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

PAGE = 256  # rows read at a time: bounds memory and holds no snapshot between pages

# seq is never used twice, so that its order stays the order recorded even where rows get deleted.
# Text columns hold JSON's ASCII spelling; the payload alone holds the transition.
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
    """The values of `INSERT`.

    Raises:
        NotSerializable: it has no JSON form.
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
    """The 16 bytes of an id.

    Raises:
        ValueError: it is none.
    """
    return bytes.fromhex(name.replace("-", ""))


def exact_number(tenant: str, environment: str, tool: str, key: str) -> int:
    """What rows of the same call in the same world are found by; rows that meet are told apart by name."""
    return number_of(f"{tenant} {environment} {tool} {key}")  # no blank is in a key


def spelled(text: str) -> str:
    """Spell any text, also lone surrogates and NUL, so that SQLite keeps it; plain names stay as they are."""
    return _spelled_name(text) if len(text) <= _SHORT else _spell(text)[1:-1]


@lru_cache(maxsize=4096)
def _spelled_name(text: str) -> str:
    """Names of tools, worlds and tenants stand in row after row."""
    return _spell(text)[1:-1]


def page_query(version: int, columns: Mapping[str, object]) -> tuple[str, tuple[object, ...]]:
    """The query for a page of rows after some row, up to another, and the values to bind after these two.

    Args:
        version: of the file.
        columns: columns and what they have to be; with a key, all of them.
    """
    wanted = {column: value for column, value in columns.items() if value is not None}
    if "key" in wanted and version >= 3:
        number = exact_number(*(str(wanted[name]) for name in ("tenant", "world", "tool", "key")))
        wanted = {"exact": number, **wanted}
    return _page_query(version, tuple(wanted)), tuple(wanted.values())


@lru_cache(maxsize=32)
def _page_query(version: int, columns: Sequence[str]) -> str:
    # One pass over the table in all: an index would be sorted for each page.
    way = "indexed by transitions_exact" if "key" in columns else "not indexed"
    where = " and ".join(["t.seq > ?", "t.seq <= ?", *(f"t.{column} = ?" for column in columns)])
    beside = "null" if version < 2 else "p.checksum"
    join = "" if version < 2 else "left join places p on p.seq = t.seq"
    return (  # made of our own words; what was asked for is bound
        f"select {_COLUMNS}, {beside} from transitions t {way} {join} "  # noqa: S608
        f"where {where} order by t.seq limit {PAGE}"
    )


def read_row(path: Path, version: int, row: Sequence[object]) -> Transition:
    """Turn a row of `page_query` into its transition.

    Raises:
        StoreError: it is not what was written.
    """
    seq, name, *names, payload, stored = row
    transition, id_ = _read(path, seq, payload, stored, checked=version >= 2)
    if not _is_named(name, id_) or tuple(names) != _names(transition):
        raise damaged(path, f"row {seq}: its columns say something else than its content")
    return transition


def read_checked(path: Path, row: Sequence[object]) -> Transition:
    """Turn a row of `CHECKED` into its transition.

    Raises:
        StoreError: it is not what was written.
    """
    seq, payload, stored = row
    return _read(path, seq, payload, stored, checked=True)[0]


def column_filters(
    *, tenant: str | None, environment: Environment | None, tool: str | None, key: str | None = None
) -> dict[str, object]:
    """Filters as the columns spell them."""
    return {
        "tenant": None if tenant is None else spelled(tenant),
        "world": None if environment is None else spelled(str(environment)),
        "tool": None if tool is None else spelled(tool),
        "key": key,
    }


def _read(
    path: Path, seq: object, payload: object, stored: object, *, checked: bool
) -> tuple[Transition, JsonValue]:
    """A transition from its payload, and the id that the payload says."""
    if checked and stored is None:
        raise damaged(path, f"row {seq}: it has content and no place")
    if not isinstance(payload, str) or (checked and number_of(payload) != stored):  # quicker than its id
        raise damaged(path, f"row {seq}: its content is not what was written")
    try:
        record = read_json(payload, checked=checked)
        return transition_from_record(record, checked=checked), record.get("id", "")
    except NotSerializable as error:
        raise damaged(path, f"row {seq}: {error}") from error


def _names(transition: Transition) -> tuple[str, str, str, str]:
    """What a row can be found by: tenant, world, tool, key."""
    call = transition.call
    return (spelled(transition.tenant), spelled(str(transition.environment)), spelled(call.tool), call.key)


def _is_named(name: object, id_: JsonValue) -> bool:
    """Whether the column of the id says what the payload does; files before version 3 keep it as text."""
    try:
        return name == id_ or name == packed(id_)
    except (ValueError, AttributeError):  # damage: no id at all
        return False
