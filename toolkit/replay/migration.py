"""All transitions of one store into another, and whether they came over whole.

Idempotent by the ids: a migration that broke off is repeated, and rows that came over stay. Rows keep
everything they say (tenant, split, provenance, times) and their order. What came over is read back and held
against what was sent, row by row and as one checksum that does not depend on the order of the rows.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from dreamgym_kit.errors import StoreError
from dreamgym_kit.plain import JsonValue
from dreamgym_kit.ports import TransitionStore
from dreamgym_kit.replay.records import dump_transition
from dreamgym_kit.vocabulary import Transition

_BATCH_ROWS = 500
_BATCH_BYTES = 8 * 2**20
_NAMED = 5


@dataclass(frozen=True, slots=True)
class MigrationReport:
    """What a migration found in the store that it filled."""

    rows: int  # in the store that was read
    new: int  # that were not in the other one before
    there: int  # rows there that have their ids; more than `rows` where one is there twice
    others: int  # rows there that the store that was read does not have
    checksum: str  # of the rows as they were read, 64 hex digits
    checksum_there: str  # of the same rows as they are there
    missing: tuple[str, ...] = ()  # ids, the first five
    differing: tuple[str, ...] = ()  # ids of rows that say something else there, the first five
    in_order: bool = True  # they stand there in the order that they were recorded in

    @property
    def whole(self) -> bool:
        """Whether every row is there as it was read."""
        return self.there == self.rows and self.checksum == self.checksum_there

    def to_json(self) -> dict[str, JsonValue]:
        """The same as JSON data, stable for machines."""
        return {
            "rows": self.rows,
            "new": self.new,
            "there": self.there,
            "others": self.others,
            "checksum": self.checksum,
            "checksum_there": self.checksum_there,
            "missing": list(self.missing),
            "differing": list(self.differing),
            "in_order": self.in_order,
            "whole": self.whole,
        }


def migrate(
    source: TransitionStore, target: TransitionStore, heard: Callable[[int], None] = lambda _: None
) -> MigrationReport:
    """Put all rows of one store into another and read them back; `heard` is told how many were put so far.

    Raises:
        StoreError: one of them failed; what came over stays, and repeating goes on.
    """
    sent: dict[str, bytes] = {}
    new = 0
    put = 0
    for batch in _batches(source.scan(), sent):
        try:
            new += target.put(batch)
        except StoreError as error:
            told = f"{error} ({put} transitions came over; migrate again, it goes on with the rest)"
            raise type(error)(told) from error
        put += len(batch)
        heard(put)
    return _compared(sent, new, target.scan())


def _batches(rows: Iterable[Transition], sent: dict[str, bytes]) -> Iterator[list[Transition]]:
    """The rows, some at a time; `sent` learns what each says."""
    batch: list[Transition] = []
    size = 0
    for row in rows:
        spelled = dump_transition(row)
        sent[row.id] = _digest(spelled)
        batch.append(row)
        size += len(spelled)
        if len(batch) >= _BATCH_ROWS or size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _compared(sent: dict[str, bytes], new: int, rows: Iterable[Transition]) -> MigrationReport:
    places = {name: place for place, name in enumerate(sent)}
    seen: set[str] = set()
    found: list[bytes] = []
    differing: list[str] = []
    others, last, in_order = 0, -1, True
    for row in rows:
        place = places.get(row.id)
        if place is None:
            others += 1
            continue
        said = _digest(dump_transition(row))
        if said != sent[row.id]:
            differing.append(row.id)
        seen.add(row.id)
        found.append(said)
        in_order = in_order and place > last
        last = place
    return MigrationReport(
        rows=len(sent),
        new=new,
        there=len(found),
        others=others,
        checksum=_checksum(sent.values()),
        checksum_there=_checksum(found),
        missing=tuple([name for name in sent if name not in seen][:_NAMED]),
        differing=tuple(differing[:_NAMED]),
        in_order=in_order,
    )


def _digest(spelled: str) -> bytes:
    return hashlib.sha256(spelled.encode("ascii")).digest()


def _checksum(digests: Iterable[bytes]) -> str:
    """A sum: the same in any order, and another one with a row twice."""
    total = sum(int.from_bytes(digest, "big") for digest in digests) % 2**256
    return f"{total:064x}"
