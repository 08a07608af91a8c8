"""Files of environment facts: next to the buffer, one writer at a time, shared by workers and runs.

A call waits for its turn with locks on bytes of the file `NAME.turns`, one byte for each name that it
mentions; the system releases them when the process ends. These locks are per process: within a process a set
does the same.
"""

import fcntl
import hashlib
import os
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, unquote

from dreamgym_kit.dream.environment_facts import MAX_BYTES
from dreamgym_kit.guard import egress
from dreamgym_kit.rollout.atomic_files import locked, open_plain, write_atomically
from dreamgym_kit.rollout.line_log import append_lines
from dreamgym_kit.settings.buffer_url import Address, buffer_of
from dreamgym_kit.settings.schema import Settings
from dreamgym_kit.types import Environment

_SUFFIX = ".json"
_BYTES = 2**40  # names lock bytes below; "" locks all of them
_HELD = _BYTES  # runs share a lock on this byte while they use the environment


def environments_folder(settings: Settings) -> Path:
    """Return the facts' folder: next to a buffer file; for a server, next to the settings."""
    place = buffer_of(settings)
    if isinstance(place, Address):
        folder = settings.folder / "environments" / place.name
    else:
        folder = place.parent / "environments"
    return folder if settings.tenant == "default" else folder / quote(settings.tenant, safe="")


def facts_path(folder: Path, environment: Environment) -> Path:
    """Return the file of an environment; "shop:3" is shop-3.json."""
    return folder / f"{quote(environment.name, safe='')}-{environment.variant}{_SUFFIX}"


def environments_in(folder: Path) -> list[tuple[Environment, Path]]:
    """Return the environments that have a file, sorted by name."""
    environments = []
    for path in sorted(folder.glob(f"*{_SUFFIX}")):
        name, _, variant = path.name.removesuffix(_SUFFIX).rpartition("-")
        if name and variant.isdecimal() and path.is_file():
            environments.append((Environment(unquote(name), int(variant)), path))
    return environments


class EnvironmentFile:
    """Implements `dream.environment_facts.FactsFile`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._turns = _turns_at(path.with_suffix(".turns"))

    def stamp(self) -> object:
        """See `FactsFile.stamp`."""
        with egress.exempt():
            try:
                status = self.path.stat()
            except OSError:
                return None
        return status.st_ino, status.st_mtime_ns, status.st_size

    def read(self, start: int = 0, most: int = MAX_BYTES) -> bytes | None:
        """See `FactsFile.read`."""
        with egress.exempt():
            try:
                descriptor = open_plain(self.path, os.O_RDONLY)
            except FileNotFoundError:
                return None
            with os.fdopen(descriptor, "rb") as file:
                file.seek(start)
                return file.read(most)

    @contextmanager
    def changing(self) -> Iterator[Callable[[bytes, bool], None]]:
        """See `FactsFile.changing`."""
        with egress.exempt():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with locked(self.path.with_suffix(".lock")):
                yield lambda data, whole: (write_atomically if whole else append_lines)(self.path, data)

    def hold(self) -> None:
        """See `FactsFile.hold`."""
        self._turns.hold(1)

    def release(self) -> None:
        """See `FactsFile.release`."""
        self._turns.hold(-1)

    def remove(self) -> bool:
        """Delete the environment's facts; False if a run uses it."""
        with egress.exempt(), locked(self.path.with_suffix(".lock")), self._turns.unused() as unused:
            if unused:
                self.path.unlink(missing_ok=True)
            return unused

    def begin(self, names: Collection[str]) -> bool:
        """See `FactsFile.begin`."""
        return self._turns.begin(names)

    def end(self, names: Collection[str]) -> None:
        """See `FactsFile.end`."""
        self._turns.end(names)


class _Turns:
    """The locks on one file, for all threads of this process."""

    def __init__(self, path: Path) -> None:
        with egress.exempt():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = open_plain(path, os.O_RDWR | os.O_CREAT)
        self._lock = threading.Lock()
        self._taken: list[int] = []  # bytes; -1: all
        self._holders = 0

    def begin(self, names: Collection[str]) -> bool:
        places = _places(names)
        with self._lock:
            if any(place in self._taken for place in places) or (
                self._taken and -1 in (*places, *self._taken)
            ):
                return False
            locks: list[int] = []
            for place in places:
                if not _lock(self._descriptor, place):
                    for taken in locks:
                        _unlock(self._descriptor, taken)
                    return False
                locks.append(place)
            self._taken += places
        return True

    def end(self, names: Collection[str]) -> None:
        with self._lock:
            for place in _places(names):
                self._taken.remove(place)
                _unlock(self._descriptor, place)

    def hold(self, more: int) -> None:
        """Count `more` further runs of this process that use the environment; waits for a removal."""
        with self._lock:
            before, self._holders = self._holders, self._holders + more
            if not before:
                fcntl.lockf(self._descriptor, fcntl.LOCK_SH, 1, _HELD)
            elif not self._holders:
                fcntl.lockf(self._descriptor, fcntl.LOCK_UN, 1, _HELD)

    @contextmanager
    def unused(self) -> Iterator[bool]:
        """Yield whether no run uses the environment; no run begins to use it in the block."""
        with self._lock:
            free = not self._holders and _lock(self._descriptor, _HELD)
            try:
                yield free
            finally:
                if free:
                    _unlock(self._descriptor, _HELD)


def _places(names: Collection[str]) -> list[int]:
    if "" in names:
        return [-1]
    return sorted(
        {int(hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:9], 16) for name in names}
    )


def _lock(descriptor: int, place: int) -> bool:
    start, length = (0, _BYTES) if place < 0 else (place, 1)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, length, start)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _unlock(descriptor: int, place: int) -> None:
    start, length = (0, _BYTES) if place < 0 else (place, 1)
    fcntl.lockf(descriptor, fcntl.LOCK_UN, length, start)


_ALL: dict[Path, _Turns] = {}
_ALL_LOCK = threading.Lock()


def _turns_at(path: Path) -> _Turns:
    """Return the locks of a file; opened once, since closing any descriptor releases its locks."""
    with _ALL_LOCK:
        if path not in _ALL:
            _ALL[path] = _Turns(path)
        return _ALL[path]
