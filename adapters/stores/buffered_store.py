"""A buffer behind an address, to be written: what its server cannot take now waits in a file and follows.

Decides when a server is tried again: not before `RETRY_S` have passed for each second that it took to fail,
so that a run whose server is away hardly waits for it. Nothing overtakes: while rows wait, new ones go behind
them. Reading never looks into the file: what waits is delivered first, and where that cannot be, or the
server is away, the question fails by name instead of being answered from half a buffer.
"""

import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Protocol, runtime_checkable

from dreamgym_kit.adapters.stores.outbox import Delivered, Spool
from dreamgym_kit.errors import NotSerializable, RunDirectoryError, StoreError, StoreUnavailable
from dreamgym_kit.interfaces import Hit, HybridQuery, Room, TransitionStore
from dreamgym_kit.types import Environment, Transition

RETRY_S = 15.0


@runtime_checkable
class MakesRoom(Protocol):
    """A store that lets rows go by itself where `room` was given, and can say how many."""

    def make_room(self) -> int:
        """Let go what has no room now; gives how many rows did so since it was opened."""
        ...


def warned(text: str) -> None:
    """Tell where nobody said how: rows that wait are never kept quiet."""
    warnings.warn(text.removeprefix("warning: "), stacklevel=2)


class BufferedStore:
    """Implements `interfaces.TransitionStore` over one that may be away.

    Args:
        connect: opens the store; asked again after it raised `StoreUnavailable`.
        spool: what waits for it.
        tell: hears in a sentence when rows begin to wait, and when those that waited were delivered.
        retry_s: how long puts leave a server alone that was away, for each second (at least one) that it
            took to find out.

    Raises:
        StoreError: the store cannot be used, however often one asks; that it is away is no error here.
    """

    far = True  # see `opening.is_far`

    def __init__(
        self,
        connect: Callable[[], TransitionStore],
        spool: Spool,
        *,
        tell: Callable[[str], None] = warned,
        retry_s: float = RETRY_S,
    ) -> None:
        self._connect = connect
        self._spool = spool
        self._tell = tell
        self._retry_s = retry_s
        self._lock = threading.RLock()
        self._again_at = 0.0
        self._read = spool.state()  # of the spool when `_waiting` was what waits there
        self._waiting = spool.ids()
        self._told = False
        self._closed = False
        self.added = 0  # rows that puts called new, whether the server has them or they wait
        self._store = self._opened()
        self._reached()

    @property
    def waiting(self) -> int:
        """How many rows wait now, whichever process keeps them."""
        with self._lock:
            state = self._spool.state()
            if state != self._read:
                self._waiting, self._read = self._spool.ids(), state
            return len(self._waiting)

    def put(self, transitions: Sequence[Transition]) -> int:
        """See `TransitionStore.put`; of rows that wait, those count as new that did not wait before."""
        with self._lock:
            if self._closed:
                self._connected()
            new = self._put(transitions)
            self.added += new
            return new

    def exact(
        self, tool: str, key: str, environment: Environment, *, tenant: str = "default"
    ) -> list[Transition]:
        """See `TransitionStore.exact`."""
        return self._present().exact(tool, key, environment, tenant=tenant)

    def scan(
        self, *, tenant: str | None = None, tool: str | None = None, environment: Environment | None = None
    ) -> Iterator[Transition]:
        """See `TransitionStore.scan`."""
        return self._present().scan(tenant=tenant, tool=tool, environment=environment)

    def search(self, query: HybridQuery) -> list[Hit]:
        """See `TransitionStore.search`."""
        return self._present().search(query)

    def evict(self, room: Room, *, now: float | None = None) -> int:
        """See `TransitionStore.evict`; what waits has to be delivered first."""
        return self._present().evict(room, now=now)

    def count(self) -> int:
        """See `TransitionStore.count`; what waits has to be delivered first."""
        return self._present().count()

    def make_room(self) -> int:
        """Let go what has no room now, where the store is there and does so; gives how many left."""
        with self._lock:
            store = self._reached()
            if isinstance(store, MakesRoom):
                with suppress(StoreUnavailable):  # its next opening makes room
                    return store.make_room()
            return 0

    def close(self) -> None:
        """See `TransitionStore.close`; what waits stays where it is."""
        with self._lock:
            self._closed = True
            if self._store is not None:
                self._store.close()

    def _put(self, transitions: Sequence[Transition]) -> int:
        store = self._reached()
        if store is None:
            return self._keep(transitions)
        began = time.monotonic()
        try:
            return store.put(transitions)
        except StoreError as error:  # a key that was revoked meanwhile must not cost a recording either
            took_s = time.monotonic() - began
            added = self._keep(transitions)
            self._is_away(error, took_s)
            return added

    def _keep(self, transitions: Sequence[Transition]) -> int:
        try:
            fresh = {row.id: row for row in transitions if row.id not in self._waiting}
        except NotSerializable as error:
            raise StoreError(f"a transition cannot be stored, so none was: {error}") from error
        if fresh:
            known = self._spool.state() == self._read
            self._spool.add(list(fresh.values()))
            self._waiting |= set(fresh)
            if known:
                self._read = self._spool.state()
        return len(fresh)

    def _reached(self) -> TransitionStore | None:
        """The store, with nothing waiting for it; None where it is away, or was a moment ago."""
        began = time.monotonic()
        if began < self._again_at:
            return None
        try:
            return self._present()
        except (StoreError, RunDirectoryError) as error:  # the latter: another process delivers just now
            self._is_away(error, time.monotonic() - began)
            return None

    def _present(self) -> TransitionStore:
        """The store, with nothing waiting for it."""
        with self._lock:
            store = self._connected()
            if self._waiting:
                delivered = self._delivered(store)
                if delivered.sent:
                    self._told = False
                    self._tell(f"{delivered.sent} recordings that waited were delivered: {self._spool.path}")
            return store

    def _opened(self) -> TransitionStore | None:
        began = time.monotonic()
        try:
            return self._connect()
        except StoreUnavailable as error:
            self._is_away(error, time.monotonic() - began)
            return None

    def _connected(self) -> TransitionStore:
        if self._closed:
            raise StoreError(f"{self._spool.path}: its buffer was closed; open it again")
        if self._store is None:
            self._store = self._connect()
        return self._store

    def _delivered(self, store: TransitionStore) -> Delivered:
        try:
            return self._spool.deliver(store)
        finally:
            state = self._spool.state()
            if (
                state is None or state != self._read
            ):  # to read thousands of rows at each try in vain takes long
                self._waiting, self._read = self._spool.ids(), state

    def _is_away(self, error: Exception, took_s: float) -> None:
        # One that is silent until its deadline holds up who records; asked seldom, it does so little.
        self._again_at = time.monotonic() + self._retry_s * max(1.0, took_s)
        if not self._told:
            self._told = True
            self._tell(f"warning: {error}; what is recorded waits in {self._spool.path} meanwhile")
