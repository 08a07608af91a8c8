"""A server with a buffer that is away when a test says so: every way in which a put can meet that.

It stands behind `weaviate://` addresses where a test has put it there (`behind_addresses`), in this process.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from enum import StrEnum

import pytest

from dreamgym_kit import errors
from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.errors import StoreError, StoreUnavailable
from dreamgym_kit.interfaces import Embedder, Hit, HybridQuery, Room, TransitionStore
from dreamgym_kit.settings.buffer_url import SCHEMES, Address
from dreamgym_kit.settings.schema import Settings
from dreamgym_kit.types import Answer, Call, Effect, Environment, Transition


class Fault(StrEnum):
    """What becomes of a put."""

    NONE = "none"
    AWAY = "away"  # nothing gets there
    HALF = "half"  # the first half is stored, and no answer comes
    UNHEARD = "unheard"  # all is stored, and no answer comes
    REFUSED = "refused"  # a key that was revoked: asking again does not help


class AwayServerDouble:
    """What one server holds, and how the next requests to it end; without further word all go well."""

    def __init__(self, faults: Iterable[Fault] = ()) -> None:
        self.held = MemoryStore()
        self.faults = iter(faults)
        self.away = False
        self.refuses = ""
        self.puts = 0

    def rows(self) -> list[Transition]:
        """All that it holds, in the order put."""
        return list(self.held.scan())

    def next(self) -> Fault:
        """How this request ends."""
        if self.refuses:
            raise StoreError(self.refuses)
        return Fault.AWAY if self.away else next(self.faults, Fault.NONE)


class AwayStoreDouble:
    """Implements `interfaces.TransitionStore`: a client of the server double."""

    def __init__(self, server: AwayServerDouble) -> None:
        self._server = server
        self._ask()

    def put(self, transitions: Sequence[Transition]) -> int:
        """Store them, or some of them, and say so, or not."""
        fault = self._server.next()
        self._server.puts += 1
        if fault is Fault.REFUSED:
            raise StoreError("weaviate://h: the key is not accepted")
        if fault is Fault.HALF:
            self._server.held.put(transitions[: len(transitions) // 2])
        if fault in (Fault.NONE, Fault.UNHEARD):
            new = self._server.held.put(transitions)
        if fault is not Fault.NONE:
            raise StoreUnavailable("weaviate://h: no answer within 5 s")
        return new

    def exact(self, tool: str, key: str, world: Environment, *, tenant: str = "default") -> list[Transition]:
        """As the port says."""
        return self._ask().exact(tool, key, world, tenant=tenant)

    def scan(
        self, *, tenant: str | None = None, tool: str | None = None, environment: Environment | None = None
    ) -> Iterator[Transition]:
        """As the port says."""
        return self._ask().scan(tenant=tenant, tool=tool, environment=environment)

    def search(self, query: HybridQuery) -> list[Hit]:
        """As the port says."""
        return self._ask().search(query)

    def evict(self, room: Room, *, now: float | None = None) -> int:
        """As the port says."""
        return self._ask().evict(room, now=now)

    def count(self) -> int:
        """As the port says."""
        return self._ask().count()

    def close(self) -> None:
        """The server keeps what it holds."""

    def _ask(self) -> TransitionStore:
        if self._server.next() is not Fault.NONE:
            raise StoreUnavailable("weaviate://h: no answer within 5 s")
        return self._server.held


SERVERS: dict[str, AwayServerDouble] = {}


def open_away(
    address: Address,
    settings: Settings,
    *,
    read_only: bool,
    embedder: Embedder | None,
    room: Room | None,
) -> TransitionStore:
    """Open what stands behind an address; a server that nobody made there is none."""
    server = SERVERS.get(address.host)
    if server is None:
        raise StoreUnavailable(f"{address}: no answer within 5 s")
    return AwayStoreDouble(server)


def behind_addresses(patch: pytest.MonkeyPatch, **servers: AwayServerDouble) -> None:
    """Put servers behind `weaviate://NAME` for one test."""
    away = replace(SCHEMES["weaviate"], opens=(__name__, "open_away"), extra="")
    patch.setitem(SCHEMES, "weaviate", away)
    patch.setitem(errors._PACKAGES, "", ())
    for name, server in servers.items():
        patch.setitem(SERVERS, name, server)


def seen(step: int, *, tool: str = "get_order", **said: object) -> Transition:
    """A recording that differs from others by its step."""
    return Transition(Call(tool, {"id": step}), Answer({"at": step}), Effect.READ, "t.1", step, **said)  # type: ignore[arg-type]
