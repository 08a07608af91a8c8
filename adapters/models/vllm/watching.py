"""What the servers of a run count meanwhile: `/metrics` of each at the start, every few seconds, at the end.

A server that has no such page (most routers) is asked once and is not told of; one that is gone for
a while is looked at again. Counters that begin anew are those of a server that was started anew.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dreamgym_kit.adapters.models.addresses import read_address, read_key
from dreamgym_kit.adapters.models.vllm.looking import ServerMetrics, read_metrics
from dreamgym_kit.adapters.models.vllm.replica import Replica
from dreamgym_kit.errors import EndpointError
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.settings.schema import Settings

if TYPE_CHECKING:
    from dreamgym_kit.adapters.models.http import Transport

_EVERY_S = 2.0
_LOOK_S = 3.0
_NOTHING = ServerMetrics(0, 0, 0, 0, 0, 0)


@dataclass(slots=True)
class _Seen:
    """One server's readings, put together."""

    last: ServerMetrics | None = None
    total: ServerMetrics = _NOTHING  # of requests: the most that ran and waited at one time

    def add(self, now: ServerMetrics) -> None:
        """What came since the last reading; the first one only tells where the counters stand."""
        before = self.last or now
        more = now.since(before if now.prompt_tokens >= before.prompt_tokens else _NOTHING)
        self.last, self.total = now, self.total.plus(more)


class ServerWatch:
    """Looks at servers; made by `watched`."""

    def __init__(self, replicas: Sequence[Replica], transport: "Transport | None") -> None:
        self._transport = transport
        self._seen = {replica: _Seen() for replica in replicas}
        self._others: set[Replica] = set()  # no vLLM, or no metrics

    async def table(self) -> list[JsonValue]:
        """Look once more; a row for each server that told something.

        Its tokens, the share of its cache, and the most requests that ran and waited when it was looked at.
        """
        await self.look()
        return [_row(str(replica), seen) for replica, seen in self._seen.items() if seen.last is not None]

    async def look(self) -> None:
        """Read each page once."""
        replicas = self._seen.keys() - self._others

        async def read_all() -> None:
            await asyncio.gather(*map(self._read, replicas))

        if replicas and self._transport is not None:
            await self._transport.run(read_all())

    async def keep_looking(self) -> None:
        """`look`, until it is cancelled."""
        while len(self._others) < len(self._seen):
            await asyncio.sleep(_EVERY_S)
            await self.look()

    async def _read(self, replica: Replica) -> None:
        # gone, late or restarting: the next look tells; or it tells what is no number
        with suppress(EndpointError, ValueError, OverflowError):
            response = await replica.get("/metrics")
            page = read_metrics(response.body.decode("utf-8", "replace")) if response.status == 200 else None
            if page is not None:
                self._seen[replica].add(page)
            elif response.status < 500 and self._seen[replica].last is None:
                self._others.add(replica)


@asynccontextmanager
async def watched(settings: Settings, sections: Collection[str]) -> AsyncIterator[ServerWatch]:
    """In the block, the servers that settings name are looked at; afterwards `table` tells what they did.

    `sections`: endpoint, learned, policy: whose servers are asked.
    """
    if not sections:
        yield ServerWatch((), None)
        return
    from dreamgym_kit.adapters.models.http import Transport

    transport = Transport(timeout_s=_LOOK_S)
    with closing(transport):
        watch = ServerWatch(_replicas(settings, sections, transport), transport)
        await watch.look()
        looking = asyncio.create_task(watch.keep_looking())
        try:
            yield watch
        finally:
            looking.cancel()
            with suppress(asyncio.CancelledError):
                await looking


def _replicas(settings: Settings, sections: Collection[str], transport: "Transport") -> list[Replica]:
    """Each server once, by its own address where settings have it."""
    policy, experience = settings.policy, settings.experience
    entries = [
        ("policy", policy.replicas or policy.urls, policy.key_env, policy.key_file),
        ("experience", experience.urls, experience.key_env, experience.key_file),
    ]
    replicas: dict[str, Replica] = {}
    for section, urls, variable, file in entries:
        source = settings.where(section, "urls")
        for url in urls if section in sections else ():
            address = read_address(url, source=source)
            key = read_key(variable, file=file, source=source)
            replicas.setdefault(str(address), Replica(address, key, transport))
    return list(replicas.values())


def _row(where: str, seen: _Seen) -> dict[str, JsonValue]:
    total, share = seen.total, seen.total.cached_share
    return {
        "server": where,
        "prompt_tokens": total.prompt_tokens,
        "generated_tokens": total.generated_tokens,
        "cached_share": None if share is None else round(share, 4),
        "most_running": total.running,
        "most_waiting": total.waiting,
    }
