"""What the kit costs around an episode: the same graph with it and without it, in one process, by turns.

`share` and `share_sync`: an agent of 4 model calls (ChatOpenAI on a loopback endpoint, a process of its own)
and 3 tool calls; 64 at once, in a dream from recordings with a real run directory, against the bare graph
under a semaphore with its real tools and the gate taken out of the process. `ideal_share_1s`: model answers
that take a second; against 64 answers a second, which is what no cost at all would give.

Run as a program with the name of a part, this file measures it in its own process and prints JSON.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

IN_FLIGHT = 64
ROUNDS = 5
EPISODES = 512  # of one round
WAVES = 8  # of the slow endpoint: this many episodes one after the other in each lane
MODEL_CALLS = 4
LATENCY_S = 1.0


@dataclass(frozen=True, slots=True)
class Pair:
    """One round: the bare graph, then the kit, seconds an episode."""

    bare_cpu: float
    bare_wall: float
    kit_cpu: float
    kit_wall: float


@dataclass(frozen=True, slots=True)
class Shares:
    """What the rounds of one kind of tools say."""

    cpu: float
    wall: float
    bare_ms: float
    kit_ms: float

    @property
    def share(self) -> float:
        """Throughput with the kit to that without: by the clock that speaks worse of us."""
        return min(self.cpu, self.wall)


def measure(seed: int) -> list[tuple[str, float, str]]:
    """Figures for the bench runner. Nothing here is drawn by chance: the seed changes nothing."""
    return figures()


def quick(seed: int) -> list[tuple[str, float, str]]:
    """The figures in small."""
    return figures(episodes=16, rounds=1, waves=1)


def table() -> str:
    """CPU time an episode, with and without."""
    lines = ["| tools | bare, CPU ms | with the kit, CPU ms | share by CPU time | share by the clock |"]
    lines.append("| --- | --- | --- | --- | --- |")
    for kind in ("async", "sync"):
        one = shares(kind, EPISODES, ROUNDS)
        lines.append(f"| {kind} | {one.bare_ms:.1f} | {one.kit_ms:.1f} | {one.cpu:.3f} | {one.wall:.3f} |")
    return "\n".join(lines)


def figures(
    *, episodes: int = EPISODES, rounds: int = ROUNDS, waves: int = WAVES
) -> list[tuple[str, float, str]]:
    """The figures at any size."""
    by_async, by_sync = (shares(kind, episodes, rounds) for kind in ("async", "sync"))
    ideal = min(ideal_share(kind, waves) for kind in ("async", "sync"))
    return [
        ("share", by_async.share, "of bare"),
        ("share_sync", by_sync.share, "of bare"),
        ("ideal_share_1s", ideal, "of ideal"),
        ("cpu_ms_per_episode", by_async.kit_ms - by_async.bare_ms, "ms"),
    ]


@cache
def shares(kind: str, episodes: int, rounds: int) -> Shares:
    """Medians over the rounds of a fresh process."""
    pairs = [Pair(**row) for row in _part("pairs", kind, episodes, rounds)]
    return Shares(
        cpu=statistics.median(pair.bare_cpu / pair.kit_cpu for pair in pairs),
        wall=statistics.median(pair.bare_wall / pair.kit_wall for pair in pairs),
        bare_ms=statistics.median(pair.bare_cpu for pair in pairs) * 1e3,
        kit_ms=statistics.median(pair.kit_cpu for pair in pairs) * 1e3,
    )


def ideal_share(kind: str, waves: int = WAVES) -> float:
    """Throughput at a slow endpoint to in-flight / latency."""
    episodes = IN_FLIGHT * waves
    (elapsed_s,) = _part("ideal", kind, episodes, 1)
    return (episodes * MODEL_CALLS / elapsed_s) / (IN_FLIGHT / LATENCY_S)


def _part(part: str, kind: str, episodes: int, rounds: int) -> Any:
    """Measure in a process of its own: an armed process is no place for a second bench."""
    command = [sys.executable, __file__, part, kind, str(episodes), str(rounds)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


async def bare(graph: Any, episodes: int) -> None:
    """What a person would write without the kit."""
    from agent_double import question

    lanes = asyncio.Semaphore(IN_FLIGHT)

    async def one(number: int) -> None:
        async with lanes:
            await graph.ainvoke(question(number))

    await asyncio.gather(*[one(number) for number in range(episodes)])


class Kit:
    """The same episodes through the kit; recordings are made once, by really running them."""

    def __init__(self, graph: Any, folder: Path, allowed: Sequence[str]) -> None:
        from dreamgym_kit.adapters.stores.memory import MemoryStore
        from dreamgym_kit.settings.schema import Settings

        self._graph = graph
        self._store = MemoryStore()
        self._settings = Settings().with_overrides(
            {"runs": str(folder), "simulate.concurrency": IN_FLIGHT, "guard.allow_hosts": tuple(allowed)}
        )

    async def record(self) -> None:
        """One episode on the real tools."""
        from dreamgym_kit.routing.router import Mode

        await self._run(1, Mode.RECORD)

    async def dream(self, episodes: int) -> None:
        """Episodes from the recordings."""
        from dreamgym_kit.routing.router import Mode

        await self._run(episodes, Mode.DREAM)

    async def _run(self, episodes: int, mode: Any) -> None:
        from agent_double import question

        from dreamgym_kit.adapters.langgraph.run.request import RunRequest
        from dreamgym_kit.adapters.langgraph.run.run import run
        from dreamgym_kit.rollout.events import NoEvents
        from dreamgym_kit.types import Task

        tasks = [
            Task(f"t{number}", question(number), expect={"calls": ["look"]}) for number in range(episodes)
        ]
        request = RunRequest(
            graph=self._graph, tasks=tasks, settings=self._settings, mode=mode, store=self._store
        )
        result = await run(request, events=NoEvents())
        if (result.totals.passed, result.totals.calls) != (episodes, 3 * episodes):
            raise RuntimeError(f"these are not the episodes to be measured: {result.totals}")


def _without_the_gate() -> None:
    from dreamgym_kit.adapters.langgraph.intercept.install import uninstall

    uninstall()


async def _seconds(work: Callable[[], Awaitable[None]]) -> tuple[float, float]:
    cpu, wall = time.process_time(), time.perf_counter()
    await work()
    return time.process_time() - cpu, time.perf_counter() - wall


async def _pairs(kind: str, episodes: int, rounds: int, host: str, folder: Path) -> list[Pair]:
    from langchain_openai import ChatOpenAI

    graph = _agent(kind, ChatOpenAI(model="double", base_url=f"http://{host}/v1", api_key="none"))
    kit = Kit(graph, folder, [host])
    await bare(graph, IN_FLIGHT)
    await kit.record()
    await kit.dream(IN_FLIGHT)
    found = []
    for _ in range(rounds):
        _without_the_gate()
        bare_cpu, bare_wall = await _seconds(lambda: bare(graph, episodes))
        kit_cpu, kit_wall = await _seconds(lambda: kit.dream(episodes))
        found.append(Pair(*(seconds / episodes for seconds in (bare_cpu, bare_wall, kit_cpu, kit_wall))))
    return found


async def _ideal(kind: str, episodes: int, folder: Path) -> float:
    from agent_double import ModelDouble

    kit = Kit(_agent(kind, ModelDouble(latency_s=LATENCY_S)), folder, [])
    await kit.record()
    await kit.dream(IN_FLIGHT)
    return (await _seconds(lambda: kit.dream(episodes)))[1]


def _agent(kind: str, model: Any) -> Any:
    from agent_double import agent, look, look_in_thread

    return agent(model, look_in_thread if kind == "sync" else look)


def _main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=["pairs", "ideal"])
    parser.add_argument("kind", choices=["async", "sync"])
    parser.add_argument("episodes", type=int)
    parser.add_argument("rounds", type=int)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        if asked.part == "ideal":
            print(json.dumps([asyncio.run(_ideal(asked.kind, asked.episodes, Path(name)))]))
            return
        from endpoint_double import endpoint

        with endpoint() as host:
            pairs = asyncio.run(_pairs(asked.kind, asked.episodes, asked.rounds, host, Path(name)))
        print(json.dumps([asdict(pair) for pair in pairs]))


if __name__ == "__main__":
    _main()
