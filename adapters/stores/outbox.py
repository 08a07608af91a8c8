"""A buffer behind an address, to be written: what its server cannot take now waits in a file and follows.

The file is JSON lines in the form of `buffer export`, so `buffer import` reads it too. An add is on the disk
when it returns; a line that a killed process left half was never acknowledged, and goes at the next add.
Ids are made of content, so delivering twice is delivering once: what is delivered is removed only after the
store acknowledged it, and a delivery killed in between is repeated. Adding takes a short lock, delivering
another: nobody who adds waits for a network. Lines that somebody made unreadable are never removed.

A server that was away is tried again, but not before `RETRY_S` have passed for each second that it took to
fail, so that a run whose server is away hardly waits for it. Nothing overtakes: while rows wait, new ones go
behind them. Reading never looks into the file: what waits is delivered first, and where that cannot be, or
the server is away, the question fails by name instead of being answered from half a buffer.
"""

import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from dreamgym_kit.errors import NotSerializable, RunDirectoryError, StoreError, StoreUnavailable
from dreamgym_kit.interfaces import Hit, HybridQuery, Room, TransitionStore
from dreamgym_kit.replay.records import dump_transition, load_transition, storable
from dreamgym_kit.replay.transfer import batches
from dreamgym_kit.rollout.atomic_files import RunLock, locked, replacing, sync_folder, write_whole
from dreamgym_kit.rollout.line_log import append_lines, read_lines
from dreamgym_kit.types import Environment, Transition

RETRY_S = 15.0
_BATCH_ROWS = 200  # of one message to a server: what it took is not sent again


@dataclass(frozen=True, slots=True)
class Delivered:
    """What became of the rows that waited."""

    sent: int = 0  # that the store has now
    new: int = 0  # of these, how many it did not have before
    unreadable: tuple[str, ...] = ()  # "FILE:7: why"; such lines stay in the file


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    raw: bytes
    end: int  # offset behind it
    row: Transition | str  # or why it is none


class Spool:
    """Rows that wait for one buffer.

    Args:
        path: the file; it and its folder are made when the first row is added.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = path.with_suffix(".lock")

    def add(self, transitions: Sequence[Transition]) -> None:
        """Keep rows behind those that wait; they survive a killed process and a power cut from then on.

        Raises:
            StoreError: they cannot be kept, and none was.
        """
        with storable(self.path):
            data = b"".join(dump_transition(row).encode("ascii") + b"\n" for row in transitions)
        with self._named("written"):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with locked(self._lock):
                append_lines(self.path, data, sync=True)

    def ids(self) -> set[str]:
        """The rows that wait."""
        return {line.row.id for line in self._lines() if isinstance(line.row, Transition)}

    def waits(self) -> bool:
        """Whether anything is to be delivered."""
        try:
            return self.path.stat().st_size > 0
        except OSError:
            return False

    def state(self) -> tuple[int, int] | None:
        """Changes whenever rows are added or removed; None: nothing waits."""
        try:
            status = self.path.stat()
        except OSError:
            return None
        return status.st_ino, status.st_size

    def deliver(self, store: TransitionStore, progress: Callable[[int], None] = lambda _: None) -> Delivered:
        """Put what waits into a store, oldest first, and remove it here; `progress` is told how many so far.

        Raises:
            StoreError: the store is away or refused; what it did not acknowledge still waits.
            RunDirectoryError: another process delivers just now.
        """
        if not self.waits():
            return Delivered()
        with RunLock(self.path.with_suffix(".delivering")):
            # An interrupted put can leave rows that the store's indexes miss, so resend rows even if known.
            put: Callable[[Sequence[Transition]], int] = getattr(store, "put_again", store.put)
            sent = new = done = 0  # `done`: offset up to which all was acknowledged, or cannot be read
            unreadable: list[_Line] = []
            try:
                for lines in batches(((line, len(line.raw)) for line in self._lines()), _BATCH_ROWS):
                    rows = [line.row for line in lines if isinstance(line.row, Transition)]
                    new += put(rows) if rows else 0
                    sent += len(rows)
                    unreadable += [line for line in lines if not isinstance(line.row, Transition)]
                    done = lines[-1].end
                    progress(sent)
            finally:  # what a store that went away half-way acknowledged is not sent again
                self._remove(done, unreadable)
        return Delivered(sent, new, tuple(f"{self.path}:{line.number}: {line.row}" for line in unreadable))

    def _lines(self) -> Iterator[_Line]:
        """Whole lines only: what stands behind the last line's end is being written, or never was."""
        with self._named("read"):
            for number, (start, raw) in enumerate(read_lines(self.path), 1):
                if raw.strip():
                    yield _Line(number, raw, start + len(raw), _row(raw))

    def _remove(self, done: int, lines: Sequence[_Line]) -> None:
        """Take out what was delivered; what others added meanwhile stands behind it and stays."""
        if not done:
            return
        with self._named("written"), locked(self._lock):
            with self.path.open("rb") as old, replacing(self.path) as new:
                write_whole(new, b"".join(line.raw for line in lines))
                old.seek(done)
                while block := old.read(2**20):
                    write_whole(new, block)
            if not self.waits():
                self.path.unlink()
            sync_folder(self.path.parent)

    @contextmanager
    def _named(self, action: str) -> Iterator[None]:
        try:
            yield
        except (OSError, RunDirectoryError) as refusal:
            error = refusal.__cause__ if isinstance(refusal, RunDirectoryError) else refusal
            if not isinstance(error, OSError):  # a link in its place
                raise
            reason = error.strerror or type(error).__name__
            raise StoreError(
                f"{self.path}: cannot be {action} ({reason}); recordings wait there for a server that is away"
            ) from error


def _row(raw: bytes) -> Transition | str:
    try:
        return load_transition(raw.strip())
    except NotSerializable as error:
        return str(error)


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

    far = True  # see `factory.is_far`

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
        self._announced = False
        self._closed = False
        self.added = 0  # rows that puts called new, whether the server has them or they wait
        self._store: TransitionStore | None = None
        began = time.monotonic()
        try:
            self._store = connect()
        except StoreUnavailable as error:
            self._is_away(error, time.monotonic() - began)
        self._reached()

    @property
    def waiting(self) -> int:
        """How many rows wait now, whichever process keeps them."""
        with self._lock:
            self._read_waiting()
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

    def remove(self, ids: Sequence[str]) -> int:
        """See `TransitionStore.remove`; what waits has to be delivered first."""
        return self._present().remove(ids)

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
        with storable(self._spool.path):
            fresh = {row.id: row for row in transitions if row.id not in self._waiting}
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
                try:
                    delivered = self._spool.deliver(store)
                finally:
                    self._read_waiting()
                if delivered.sent:
                    self._announced = False
                    self._tell(f"{delivered.sent} recordings that waited were delivered: {self._spool.path}")
            return store

    def _connected(self) -> TransitionStore:
        if self._closed:
            raise StoreError(f"{self._spool.path}: its buffer was closed; open it again")
        if self._store is None:
            self._store = self._connect()
        return self._store

    def _read_waiting(self) -> None:
        """Know what waits; to read thousands of rows at each try in vain takes long."""
        state = self._spool.state()
        if state is None or state != self._read:
            self._waiting, self._read = self._spool.ids(), state

    def _is_away(self, error: Exception, took_s: float) -> None:
        # One that is silent until its deadline holds up who records; asked seldom, it does so little.
        self._again_at = time.monotonic() + self._retry_s * max(1.0, took_s)
        if not self._announced:
            self._announced = True
            self._tell(f"warning: {error}; what is recorded waits in {self._spool.path} meanwhile")
