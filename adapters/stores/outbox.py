"""Buffer recordings for a server that may be unreachable; an outbox file holds what it could not take.

The outbox is JSON Lines in the form of `buffer export`, so `buffer import` reads it too. `add` returns after
the rows are on disk; a torn last line was never acknowledged, and the next `add` removes it.
Row IDs are content hashes, so a repeated delivery stores nothing twice: rows are removed only after the store
acknowledged them, and an interrupted delivery is repeated. Adding and delivering use separate locks, so an
`add` never waits for the network. Unreadable lines are never removed.

After a failed attempt the server is left alone for `RETRY_S` times the seconds that the attempt took, so
that an unreachable server hardly slows a run. Order is preserved: while rows wait, new rows queue behind
them. Reads never use the outbox: it is delivered first, and if that fails the read raises an error, because
the answer would come from an incomplete buffer.
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
_BATCH_ROWS = 200  # per request; acknowledged requests are not resent


@dataclass(frozen=True, slots=True)
class Delivered:
    """The result of a delivery."""

    sent: int = 0  # rows that the store acknowledged
    new: int = 0  # of these, rows that the store did not have before
    unreadable: tuple[str, ...] = ()  # "FILE:7: why"; such lines stay in the file


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    raw: bytes
    end: int  # byte offset of the next line
    row: Transition | str  # or why it cannot be read


class Outbox:
    """Rows that wait for one buffer server.

    Args:
        path: the file; created with its folder by the first `add`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = path.with_suffix(".lock")

    def add(self, transitions: Sequence[Transition]) -> None:
        """Append rows durably: after the return they survive a killed process and a power cut.

        Raises:
            StoreError: the file cannot be written; no row was added.
        """
        with storable(self.path):
            data = b"".join(dump_transition(row).encode("ascii") + b"\n" for row in transitions)
        with self._named("written"):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with locked(self._lock):
                append_lines(self.path, data, sync=True)

    def ids(self) -> set[str]:
        """Return the IDs of the waiting rows."""
        return {line.row.id for line in self._lines() if isinstance(line.row, Transition)}

    def waits(self) -> bool:
        """Return whether any row waits."""
        try:
            return self.path.stat().st_size > 0
        except OSError:
            return False

    def state(self) -> tuple[int, int] | None:
        """Return (inode, size), which changes whenever rows are added or removed; None if no row waits."""
        try:
            status = self.path.stat()
        except OSError:
            return None
        return status.st_ino, status.st_size

    def deliver(self, store: TransitionStore, progress: Callable[[int], None] = lambda _: None) -> Delivered:
        """Send the waiting rows to a store, oldest first, and remove them here.

        `progress` is called with the number of rows sent so far.

        Raises:
            StoreError: the store is unreachable or refused; unacknowledged rows stay.
            RunDirectoryError: another process is delivering.
        """
        if not self.waits():
            return Delivered()
        with RunLock(self.path.with_suffix(".delivering")):
            # An interrupted put can leave rows that the store's indexes miss, so resend rows even if known.
            put: Callable[[Sequence[Transition]], int] = getattr(store, "put_again", store.put)
            sent = new = done = 0  # `done`: every line before this offset is acknowledged or unreadable
            unreadable: list[_Line] = []
            try:
                for lines in batches(((line, len(line.raw)) for line in self._lines()), _BATCH_ROWS):
                    rows = [line.row for line in lines if isinstance(line.row, Transition)]
                    new += put(rows) if rows else 0
                    sent += len(rows)
                    unreadable += [line for line in lines if not isinstance(line.row, Transition)]
                    done = lines[-1].end
                    progress(sent)
            finally:  # after an error midway, acknowledged rows are not resent
                self._remove(done, unreadable)
        return Delivered(sent, new, tuple(f"{self.path}:{line.number}: {line.row}" for line in unreadable))

    def _lines(self) -> Iterator[_Line]:
        """Yield complete lines; bytes after the last line end are unfinished or torn."""
        with self._named("read"):
            for number, (start, raw) in enumerate(read_lines(self.path), 1):
                if raw.strip():
                    yield _Line(number, raw, start + len(raw), _row(raw))

    def _remove(self, done: int, lines: Sequence[_Line]) -> None:
        """Remove delivered rows and keep those that others appended meanwhile."""
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
            if not isinstance(error, OSError):  # such as a symbolic link at its path
                raise
            reason = error.strerror or type(error).__name__
            raise StoreError(
                f"{self.path}: cannot be {action} ({reason}); it holds recordings for an unreachable server"
            ) from error


def _row(raw: bytes) -> Transition | str:
    try:
        return load_transition(raw.strip())
    except NotSerializable as error:
        return str(error)


@runtime_checkable
class MakesRoom(Protocol):
    """A store that evicts rows by itself when it has a `room` limit, and counts them."""

    def make_room(self) -> int:
        """Evict rows beyond the limit; return the number evicted since the store was opened."""
        ...


def warn_waiting(text: str) -> None:
    """Issue a Python warning: the default `tell`, so that waiting rows never go unnoticed."""
    warnings.warn(text.removeprefix("warning: "), stacklevel=2)


class BufferedStore:
    """Implements `interfaces.TransitionStore` over a store that may be unreachable.

    Args:
        connect: opens the store; called again after it raised `StoreUnavailable`.
        outbox: holds the rows that the store could not take.
        tell: called with a sentence when rows begin to wait and when they were delivered.
        retry_s: pause before the next attempt, in seconds for each second (at least one) that the failed
            attempt took.

    Raises:
        StoreError: the store refuses permanently; an unreachable store raises nothing here.
    """

    far = True  # see `factory.is_far`

    def __init__(
        self,
        connect: Callable[[], TransitionStore],
        outbox: Outbox,
        *,
        tell: Callable[[str], None] = warn_waiting,
        retry_s: float = RETRY_S,
    ) -> None:
        self._connect = connect
        self._outbox = outbox
        self._tell = tell
        self._retry_s = retry_s
        self._lock = threading.RLock()
        self._again_at = 0.0
        self._read = outbox.state()  # outbox state from which `_waiting` was read
        self._waiting = outbox.ids()
        self._announced = False
        self._closed = False
        self.added = 0  # new rows of all puts, delivered or waiting
        self._store: TransitionStore | None = None
        began = time.monotonic()
        try:
            self._store = connect()
        except StoreUnavailable as error:
            self._is_away(error, time.monotonic() - began)
        self._reached()

    @property
    def waiting(self) -> int:
        """The number of rows in the outbox now, from any process."""
        with self._lock:
            self._read_waiting()
            return len(self._waiting)

    def put(self, transitions: Sequence[Transition]) -> int:
        """See `TransitionStore.put`; rows that go to the outbox are new unless they already wait."""
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
        """See `TransitionStore.remove`; the outbox is delivered first."""
        return self._present().remove(ids)

    def evict(self, room: Room, *, now: float | None = None) -> int:
        """See `TransitionStore.evict`; the outbox is delivered first."""
        return self._present().evict(room, now=now)

    def count(self) -> int:
        """See `TransitionStore.count`; the outbox is delivered first."""
        return self._present().count()

    def make_room(self) -> int:
        """Evict rows beyond the limit if the store is reachable; return the number evicted."""
        with self._lock:
            store = self._reached()
            if isinstance(store, MakesRoom):
                with suppress(StoreUnavailable):  # the next process that opens it evicts them
                    return store.make_room()
            return 0

    def close(self) -> None:
        """See `TransitionStore.close`; waiting rows stay in the outbox."""
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
        except StoreError as error:  # a key revoked during the run must not lose a recording
            took_s = time.monotonic() - began
            added = self._keep(transitions)
            self._is_away(error, took_s)
            return added

    def _keep(self, transitions: Sequence[Transition]) -> int:
        with storable(self._outbox.path):
            fresh = {row.id: row for row in transitions if row.id not in self._waiting}
        if fresh:
            unchanged = self._outbox.state() == self._read
            self._outbox.add(list(fresh.values()))
            self._waiting |= set(fresh)
            if unchanged:
                self._read = self._outbox.state()
        return len(fresh)

    def _reached(self) -> TransitionStore | None:
        """Return the store with an empty outbox; None while it is unreachable or `retry_s` runs."""
        began = time.monotonic()
        if began < self._again_at:
            return None
        try:
            return self._present()
        except (StoreError, RunDirectoryError) as error:  # RunDirectoryError: another process is delivering
            self._is_away(error, time.monotonic() - began)
            return None

    def _present(self) -> TransitionStore:
        """Return the store after delivering the outbox."""
        with self._lock:
            store = self._connected()
            if self._waiting:
                try:
                    delivered = self._outbox.deliver(store)
                finally:
                    self._read_waiting()
                if delivered.sent:
                    self._announced = False
                    self._tell(
                        f"{delivered.sent} recordings were delivered from the outbox: {self._outbox.path}"
                    )
            return store

    def _connected(self) -> TransitionStore:
        if self._closed:
            raise StoreError(f"{self._outbox.path}: this buffer was closed; open it again")
        if self._store is None:
            self._store = self._connect()
        return self._store

    def _read_waiting(self) -> None:
        """Re-read the outbox only if it changed: thousands of rows take long at each failed attempt."""
        state = self._outbox.state()
        if state is None or state != self._read:
            self._waiting, self._read = self._outbox.ids(), state

    def _is_away(self, error: Exception, took_s: float) -> None:
        # A server that never responds blocks recording until the timeout; the pause limits that share.
        self._again_at = time.monotonic() + self._retry_s * max(1.0, took_s)
        if not self._announced:
            self._announced = True
            self._tell(f"warning: {error}; recordings wait in {self._outbox.path} until it answers")
