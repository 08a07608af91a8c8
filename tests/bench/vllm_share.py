"""Does the kit keep a real vLLM as busy as a bare client does? 32 at once, the same requests, one server.

The desk is simulated with 32 episodes at once, and every request that leaves for the server is kept, body and
all. Then a bare client of asyncio and httpcore sends the same bodies, 32 at once, in the same order. The
server's prefix cache is emptied before each, so both find it alike. Throughput is what the server wrote in a
second while 32 were under way: from the 32nd answer until three in four had come. `share` is the simulation's
beside the bare client's. The agent is scripted; what the kit does itself (gate, state, retrieval, journal) it
does meanwhile on the same machine.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import httpcore
from real_server import experience_server, simulated

from dreamgym_kit.adapters.models.http import Transport
from dreamgym_kit.adapters.models.vllm.launch import VllmServer
from dreamgym_kit.adapters.models.vllm.looking import look
from dreamgym_kit.adapters.models.wire import Response
from dreamgym_kit.bounded_json import read_json

AT_ONCE = 32
_LONGEST = 512  # of this model's tokens, which are nearly letters: a decision with its reasons


@dataclass(frozen=True, slots=True)
class Asked:
    """One request that was answered."""

    sent: float
    answered: float
    tokens: int  # written

    def within(self, begun: float, ended: float) -> float:
        """Its tokens of that time, as if they had been written evenly."""
        shared = min(self.answered, ended) - max(self.sent, begun)
        return self.tokens * max(0.0, shared) / (self.answered - self.sent)


@dataclass
class Load:
    """What was sent when, and what came back when."""

    bodies: list[bytes] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)

    @property
    def most(self) -> int:
        """Requests under way at once, at most."""
        return max(count for _, count in self._under_way())

    def tokens_per_s(self) -> float:
        """While as many were under way as may be: without the start, and without the last episodes."""
        times = self._under_way()
        full = [at for at, (_, count) in enumerate(times) if count >= AT_ONCE]
        assert full, f"never {AT_ONCE} requests under way: {self.most}"
        begun, ended = times[full[0]][0], times[full[-1] + 1][0]  # behind the last it falls below
        return sum(one.within(begun, ended) for one in self.asked) / (ended - begun)

    def _under_way(self) -> list[tuple[float, int]]:
        """How many were under way from each moment on at which that changed."""
        changes = [(one.sent, 1) for one in self.asked] + [(one.answered, -1) for one in self.asked]
        moments = sorted(changes)
        counts = accumulate(change for _, change in moments)
        return [(when, count) for (when, _), count in zip(moments, counts, strict=True)]


def measure(seed: int) -> list[tuple[str, float, str]]:
    """Figures for the bench runner."""
    return _figures(seed, tasks=100, longest=_LONGEST)


def quick(seed: int) -> list[tuple[str, float, str]]:
    """Fewer episodes, shorter decisions."""
    return _figures(seed, tasks=48, longest=96)


def _figures(seed: int, *, tasks: int, longest: int) -> list[tuple[str, float, str]]:
    with experience_server() as server:
        ours = _kit(server, tasks, seed, longest)
        bare = asyncio.run(_bare(server, ours.bodies, ours.most))
    return [
        ("share", ours.tokens_per_s() / bare.tokens_per_s(), "of a bare load"),
        ("simulation", ours.tokens_per_s(), "tokens/s"),
        ("bare", bare.tokens_per_s(), "tokens/s"),
        ("requests", len(ours.bodies), "requests"),
        ("at_once", ours.most, "requests"),
    ]


def _kit(server: VllmServer, tasks: int, seed: int, longest: int) -> Load:
    """The simulation, its requests overheard where they leave."""
    kept, post = Load(), Transport.post

    async def overheard(self: Transport, address: Any, path: str, body: bytes, headers: Any) -> Response:
        kept.bodies.append(body)
        sent = time.monotonic()
        answer = await post(self, address, path, body, headers)
        kept.asked.append(Asked(sent, time.monotonic(), _written(answer.body)))
        return answer

    _emptied(server)
    Transport.post = overheard  # type: ignore[method-assign]
    try:
        asked = {
            "simulate.concurrency": AT_ONCE,
            "experience.max_output": longest,
            "experience.timeout_s": 600.0,
        }
        simulated(server, tasks=tasks, n=1, seed=seed, policy=None, **asked)
    finally:
        Transport.post = post  # type: ignore[method-assign]
    return kept


async def _bare(server: VllmServer, bodies: Sequence[bytes], at_once: int) -> Load:
    """The same bodies from a client that does nothing else."""
    _emptied(server)
    kept, left = Load(list(bodies)), iter(bodies)
    headers = {"authorization": f"Bearer {server.launch.key}", "content-type": "application/json"}
    url = f"{server.launch.url}/v1/chat/completions"

    async with httpcore.AsyncConnectionPool(max_connections=at_once) as pool:

        async def worker() -> None:
            for body in left:
                sent = time.monotonic()
                answer = await pool.request("POST", url, headers=headers, content=body)
                kept.asked.append(Asked(sent, time.monotonic(), _written(answer.content)))

        await asyncio.gather(*(worker() for _ in range(at_once)))
    return kept


def _written(body: bytes) -> int:
    return int(read_json(body)["usage"]["completion_tokens"])


def _emptied(server: VllmServer) -> None:
    done = look(server.launch.url, "/reset_prefix_cache", key=server.launch.key, method="POST")
    assert '"success":true' in done.text.replace(" ", ""), done.text
