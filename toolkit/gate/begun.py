"""Threads that an episode began: what runs in one belongs to it, though a bare thread copies no context.

Only the egress guard goes by this. The gate does not: a thread of a node's own may serve several
episodes, and an answer of one must not reach another.
"""

import threading
from concurrent.futures import thread as pools
from typing import Protocol
from weakref import WeakKeyDictionary


class Owner(Protocol):
    """The episode that code is a part of."""

    open: bool


class Begun:
    """Which episode began which thread."""

    def __init__(self) -> None:
        self._owners: WeakKeyDictionary[threading.Thread, Owner] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def note(self, begun: threading.Thread, owner: Owner | None) -> None:
        """A thread is about to start. A pool's are not noted: they work for whoever hands them work."""
        worker = getattr(pools, "_worker", None)
        if owner is None or (worker is not None and getattr(begun, "_target", None) is worker):
            return
        with self._lock:
            self._owners[begun] = owner

    def owner(self) -> Owner | None:
        """The episode that began the running thread."""
        if not self._owners:
            return None
        with self._lock:
            return self._owners.get(threading.current_thread())
