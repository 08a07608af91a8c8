"""What more workers give: throughput of dry runs in two workers beside one, and in a Ray worker beside none.

The agent makes four model calls and three tool calls in a dream, with a real run directory. `two_workers` and
`two_local`: its model computes for 20 ms of processor time, in two workers (of a Ray cluster, of this
machine) beside one of the same kind; wants two idle cores. `io_share`: its model answers after a quarter of
a second, in one Ray worker beside the process that keeps the run. Rounds by turns, the median counts; what
starting takes is not in it.
"""

import asyncio
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from agent_double import ModelDouble, agent, look, question

ROUNDS = 5
BUSY_S = 0.02  # processor time of a model call
LATENCY_S = 0.25
IN_FLIGHT = 16
SETTINGS = '[tools.look]\neffect = "pure"\n'


class BusyDouble(ModelDouble):
    """Answers by the same script, and computes for it."""

    async def _agenerate(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        until = time.thread_time() + BUSY_S
        while time.thread_time() < until:
            pass
        return await super()._agenerate(messages, *args, **kwargs)


def cpu_bound() -> Any:
    """A graph whose model computes."""
    return agent(BusyDouble(), look)


def io_bound() -> Any:
    """A graph whose model keeps it waiting."""
    return agent(ModelDouble(latency_s=LATENCY_S), look)


def measure(seed: int) -> list[tuple[str, float, str]]:
    """Figures for the bench runner. Nothing here is drawn by chance: the seed changes nothing."""
    return figures(rounds=ROUNDS, episodes=160)


def quick(seed: int) -> list[tuple[str, float, str]]:
    """The same in small: that it runs; a ratio needs more episodes, and idle cores."""
    return figures(rounds=1, episodes=24)


def figures(*, rounds: int, episodes: int) -> list[tuple[str, float, str]]:
    """Ratios of throughput, each the median of its rounds."""
    from dreamgym_kit.adapters.engines.ray_cluster import ray_cluster

    ratios: dict[str, list[float]] = {"two_workers": [], "two_local": [], "io_share": []}
    with tempfile.TemporaryDirectory() as name, ray_cluster(None, 2):
        place = Path(name)
        for _ in range(rounds):
            one, two = (rate(place, "cpu_bound", episodes, "ray", workers) for workers in (1, 2))
            ratios["two_workers"].append(two / one)
            one, two = (rate(place, "cpu_bound", episodes, "local", workers) for workers in (1, 2))
            ratios["two_local"].append(two / one)
            there = rate(place, "io_bound", episodes * 2, "ray", 1)
            ratios["io_share"].append(there / rate(place, "io_bound", episodes * 2, "local", 0))
    return [(name, statistics.median(found), "ratio") for name, found in ratios.items()]


def rate(place: Path, graph: str, episodes: int, engine: str, workers: int) -> float:
    """Episodes a second from the first beginning to the last end."""
    from dreamgym_kit.adapters.langgraph.run.request import RunRequest
    from dreamgym_kit.adapters.langgraph.run.run import run
    from dreamgym_kit.settings.load import parse_settings
    from dreamgym_kit.types import Task

    file = place / "dreamgym.toml"
    file.write_text(SETTINGS, "utf-8")
    settings = parse_settings(SETTINGS, path=file).with_overrides(
        {
            "runs": str(place / "runs"),
            "simulate.concurrency": IN_FLIGHT,
            "workers.backend": engine,
            "workers.count": workers,
        }
    )
    clock = _Clock()
    request = RunRequest(
        graph=f"ray_scale:{graph}",
        tasks=[Task(f"t{number}", question(number)) for number in range(episodes)],
        settings=settings,
    )
    result = asyncio.run(run(request, events=clock))
    if result.totals.finished != episodes or any(kind == "error" for kind in clock.stops):
        raise RuntimeError(f"{result.totals.finished} of {episodes} episodes of {graph} came to their end")
    return episodes / (clock.last - clock.first)


class _Clock:
    """When the first episode began, and when the last one ended."""

    def __init__(self) -> None:
        self.first = self.last = 0.0
        self.stops: list[str] = []

    def emit(self, kind: str, /, **facts: Any) -> None:
        if kind == "episode_started":
            self.first = self.first or time.monotonic()
        elif kind == "episode_finished":
            self.last = time.monotonic()
            if facts["calls"] != 3:
                self.stops.append("error")
