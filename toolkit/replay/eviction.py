"""Which rows leave a buffer that is too old or too full, and when a store lets them go by itself.

Decides: dreamt rows go first, always. They have a lifetime and may be no more than a share of the rows;
a real row goes only where a limit on all rows is still passed and no dreamt one is left.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import floor, inf

from dreamgym_kit.errors import StoreError
from dreamgym_kit.interfaces import Room
from dreamgym_kit.settings.schema import ReplaySettings

_DAY_S = 86_400.0
CROWD = 1_000  # rows put between two looks at how many there are


@dataclass(frozen=True, slots=True)
class StoredRow:
    """What the decision needs to know of a row."""

    number: int  # rising in the order recorded
    real: bool
    recorded_at: float  # Unix time, seconds; 0 where nobody knows


def room_of(settings: ReplaySettings) -> Room:
    """How much a buffer may hold, as a person said it."""
    lifetime = None if settings.dreamt_days is None else settings.dreamt_days * _DAY_S
    return Room(settings.rows, settings.dreamt_share, lifetime)


def to_evict(rows: Sequence[StoredRow], room: Room, *, now: float) -> list[int]:
    """The rows that have to leave, given all there are in the order recorded.

    Rows of unknown age outlive any lifetime; the share and the limit on all rows take them in their turn.
    """
    real = [row for row in rows if row.real]
    dreamt = [row for row in rows if not row.real]
    since = -inf if room.dreamt_lifetime_s is None else now - room.dreamt_lifetime_s
    young = [row for row in dreamt if row.recorded_at <= 0 or row.recorded_at >= since]
    allowed, share = len(young), room.dreamt_share
    if share < 1:  # 1e-9: 0.1 / 0.9 is a little less than a ninth
        allowed = min(allowed, floor(len(real) * share / (1 - share) + 1e-9))
    if room.rows is not None:
        allowed = min(allowed, max(0, room.rows - len(real)))
    stay = young[len(young) - allowed :]
    too_many = 0 if room.rows is None else max(0, len(real) - room.rows)
    staying = {row.number for row in (*stay, *real[too_many:])}
    return [row.number for row in rows if row.number not in staying]


class Crowding:
    """Counts what was put since all had room.

    Args:
        evict: lets go what has none, as `TransitionStore.evict`.
        room: how much there is; None: nothing ever leaves.
    """

    def __init__(self, evict: Callable[[Room], int], room: Room | None) -> None:
        self._evict = evict
        self._room = room
        self._new = 0
        self._evicted = 0

    def put(self, new: int) -> None:
        """Rows were stored; they stay so, whatever becomes of others."""
        self._new += new
        if self._new >= CROWD:
            self.relieve_if_it_can()

    def relieve(self) -> int:
        """Let go what has no room now; gives how many rows did so since the store was opened.

        Also where nothing was put here: others may have put more than there is room for.

        Raises:
            StoreError: they cannot leave; the next call tries again.
        """
        if self._room is not None:
            self._evicted += self._evict(self._room)
            self._new = 0
        return self._evicted

    def relieve_if_it_can(self) -> None:
        """`relieve` where something was put, by the way: who wants to know of failures calls that."""
        if self._new:
            with suppress(StoreError):
                self.relieve()
