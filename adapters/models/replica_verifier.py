"""Which replicas may be asked: one that was lost, or may have been started anew, says first what it serves.

A server that is started anew answers from the weights that it was started with, and nothing in its answers
tells. Its connections end with it: what comes over one that was open when it last said what it serves comes
from the same server. An answer over a later one counts when it has said so again. (Behind a proxy that keeps
connections to itself this tells nothing; docs/train.md says so.)
"""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dreamgym_kit.adapters.models.addresses import EndpointAddress
from dreamgym_kit.errors import EndpointError

if TYPE_CHECKING:
    from dreamgym_kit.adapters.models.vllm.weights import ServedWeights


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """What was known of a replica when it was asked."""

    connections: int  # of those up to this one, which server is at the other end
    brought: int


class Trusted:
    """What is believed of each replica. To be awaited on one event loop; `doubt` is for any thread.

    Args:
        opened: how many connections were opened so far, to whatever address.
    """

    def __init__(self, opened: Callable[[], int]) -> None:
        self._opened = opened
        self._prover: ServedWeights | None = None
        self._lock = threading.Lock()
        self._doubted: set[EndpointAddress] = set()
        self._times_lost: Counter[EndpointAddress] = Counter()
        self._known: Counter[EndpointAddress] = (
            Counter()
        )  # connections that it had when it last said what it serves
        self._proving: dict[EndpointAddress, asyncio.Lock] = {}
        self._failures: dict[
            EndpointAddress, tuple[int, EndpointError]
        ] = {}  # how many proofs failed, and the last
        self._recognising: dict[EndpointAddress, asyncio.Lock] = {}

    def ask_by(self, prover: "ServedWeights") -> None:
        """Who asks a replica what it serves; without this, all are believed."""
        self._prover = prover

    def doubt(self, address: EndpointAddress) -> None:
        """A replica was lost: whatever answers there next may be another server with other weights."""
        with self._lock:
            self._doubted.add(address)
            self._times_lost[address] += 1

    def forgot(self, address: EndpointAddress, error: EndpointError) -> bool:
        """Whether an error says that a server was started anew and can be mended."""
        return error.status == 404 and self._prover is not None and self._prover.brings(address)

    async def before(self, address: EndpointAddress) -> ReplicaState:
        """Have a replica that was lost prove itself; what is known of it then, for `after`.

        Raises:
            EndpointError: it is in doubt still.
        """
        if self._prover is None:
            return ReplicaState(0, 0)
        if address in self._doubted:
            failed_before = self._failed(address)
            async with self._proving.setdefault(address, asyncio.Lock()):
                await self._proven(address, self._prover, failed_before)
        return ReplicaState(self._known[address], self._prover.brought(address))

    async def after(self, address: EndpointAddress, connection: int, seen: ReplicaState) -> None:
        """Have a replica say what it serves, where its answer may be one of a server started anew.

        Raises:
            EndpointError: it serves something else, or does not say; it is in doubt from now on.
        """
        if self._prover is None or connection <= seen.connections:
            return
        async with self._recognising.setdefault(address, asyncio.Lock()):
            if connection > self._known[address]:  # else another answer's has asked meanwhile
                opened = self._opened()  # before it is asked: that may open another
                try:
                    await self._prover.recognise(address)
                except EndpointError:
                    self.doubt(address)
                    raise
                self._known[address] = opened
        if self._prover.brought(address) != seen.brought:  # who answered may not have had them yet
            why = f"{address} was given its weights while it was asked; its answer does not count"
            raise EndpointError("stale_weights", why, retryable=True)

    async def _proven(self, address: EndpointAddress, prover: "ServedWeights", failed_before: int) -> None:
        if address not in self._doubted:  # another request had it prove itself meanwhile
            return
        if self._failed(address) != failed_before:
            raise self._failures[address][1]
        lost = self._times_lost[address]
        try:
            await prover.prove(address)
        except EndpointError as error:
            self._failures[address] = (self._failed(address) + 1, error)
            raise
        with self._lock:
            if self._times_lost[address] == lost:
                self._doubted.discard(address)

    def _failed(self, address: EndpointAddress) -> int:
        return self._failures[address][0] if address in self._failures else 0
