"""When a store lets rows go by itself: after so many that were put, and where it is asked to."""

from collections.abc import Callable
from contextlib import suppress

from dreamgym_kit.errors import StoreError
from dreamgym_kit.interfaces import Room

CROWD = 1_000  # rows put between two looks at how many there are


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
