"""A store in memory, for tests and for Python callers that need no file.

Keeps all of the port's promise but the durable part: what was put is gone when the process ends.
"""

import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from dreamgym_kit.errors import NotJson, StoreError
from dreamgym_kit.ports import Embedder, Hit, HybridQuery, Room
from dreamgym_kit.replay.eviction import Kept, to_evict
from dreamgym_kit.replay.records import dump_transition, load_transition
from dreamgym_kit.vocabulary import Provenance, Transition, World


class MemoryStore:
    """Implements `ports.TransitionStore` over a dict; threads may share it.

    Keeps each transition as text, as a file would: who changes an answer that was read from here
    changes nobody else's, and what no file could take is refused here too.
    """

    def __init__(self, *, embedder: Embedder | None = None, path: Path | None = None) -> None:
        """`path`: the file that it stands for, if any; `dreamgym.lock` is beside that."""
        self.path = path
        self._chosen = embedder
        self._lines: dict[str, tuple[tuple[str, World, str, str], str]] = {}  # id -> (place, JSON)
        self._lock = threading.Lock()
        self._closed = False

    def put(self, transitions: Sequence[Transition]) -> int:
        """See `TransitionStore.put`."""
        try:
            rows: dict[str, tuple[tuple[str, World, str, str], str]] = {}
            for row in transitions:
                rows.setdefault(row.id, (_place(row), dump_transition(row)))
        except NotJson as error:
            raise StoreError(f"memory: a transition cannot be stored, so none was: {error}") from error
        with self._lock:
            self._refuse_closed()
            new = {name: row for name, row in rows.items() if name not in self._lines}
            self._lines.update(new)
        return len(new)

    def exact(self, tool: str, key: str, world: World, *, tenant: str = "default") -> list[Transition]:
        """See `TransitionStore.exact`."""
        wanted = (tenant, world, tool, key)
        return [load_transition(line) for place, line in self._rows() if place == wanted]

    def scan(
        self, *, tenant: str | None = None, tool: str | None = None, world: World | None = None
    ) -> Iterator[Transition]:
        """See `TransitionStore.scan`; rows that are put after the first one was asked for are left out."""
        for (its_tenant, its_world, its_tool, _), line in self._rows():
            if tenant in (None, its_tenant) and world in (None, its_world) and tool in (None, its_tool):
                yield load_transition(line)

    def search(self, query: HybridQuery) -> list[Hit]:
        """See `TransitionStore.search`; looks at every row."""
        from dreamgym_kit.adapters.embedders.hashed import HashedEmbedder
        from dreamgym_kit.adapters.stores.memory_search import search_all

        if self._chosen is None:
            self._chosen = HashedEmbedder()
        rows = {number: load_transition(line) for number, (_, line) in enumerate(self._rows())}
        found = search_all(rows, query, self._chosen)
        return [Hit(rows[one.row], one.score, one.places) for one in found]

    def evict(self, room: Room, *, now: float | None = None) -> int:
        """See `TransitionStore.evict`."""
        with self._lock:
            self._refuse_closed()
            rows = [load_transition(line) for _, line in self._lines.values()]
            kept = [
                Kept(number, row.answer.provenance is Provenance.REAL, row.recorded_at)
                for number, row in enumerate(rows)
            ]
            leaving = to_evict(kept, room, now=time.time() if now is None else now)
            for number in leaving:
                del self._lines[rows[number].id]
        return len(leaving)

    def count(self) -> int:
        """See `TransitionStore.count`."""
        return len(self._rows())

    def close(self) -> None:
        """See `TransitionStore.close`."""
        with self._lock:
            self._closed = True
            self._lines.clear()

    def _rows(self) -> list[tuple[tuple[str, World, str, str], str]]:
        with self._lock:
            self._refuse_closed()
            return list(self._lines.values())

    def _refuse_closed(self) -> None:
        if self._closed:
            raise StoreError("memory: this store was closed; what it held is gone")


def _place(transition: Transition) -> tuple[str, World, str, str]:
    call = transition.call
    return (transition.tenant, transition.world, call.tool, call.key)
