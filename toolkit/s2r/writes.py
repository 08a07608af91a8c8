"""The real writes of one episode: which of its calls ran beside one, so that nobody knows who was first.

A model may ask for several calls in one turn, and they run at once. What the dream expects of a call rests
on the writes before it; where one of them is under way, the dream expects something of another state.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class RealWrites:
    """Counts an episode's real writes. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begun = self._under_way = 0

    def now(self) -> int:
        """Where a call begins: how many were begun; -1 while one is under way."""
        with self._lock:
            return -1 if self._under_way else self._begun

    @contextmanager
    def one(self, *, writes: bool) -> Iterator[None]:
        """While a real call runs and its answer is kept; `writes`: it changes the world."""
        with self._lock:
            self._begun, self._under_way = self._begun + writes, self._under_way + writes
        try:
            yield
        finally:
            with self._lock:
                self._under_way -= writes

    def beside(self, since: int, *, writes: bool) -> bool:
        """Whether another one ran beside the call that began at `since`."""
        with self._lock:
            return since < 0 or self._begun > since + writes
