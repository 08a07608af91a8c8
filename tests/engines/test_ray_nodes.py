"""Two nodes of a real cluster that the run only joins; one of them goes away."""

import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from ports import own_port
from waiting import wait_until

pytest.importorskip("ray", reason="the extra `ray` is not installed")
pytestmark = [pytest.mark.ray, pytest.mark.nightly]

RAY = (sys.executable, "-m", "ray.scripts.scripts")
PROGRAM = """
import asyncio, json, sys
from pathlib import Path
import psutil
from dreamgym_kit.adapters.engines.ray_cluster import RayHost
from dreamgym_kit.rollout.budgets import RunBudget
from dreamgym_kit.rollout.distributed import DistributedRunner
from dreamgym_kit.rollout.worker_protocol import WorkerSpec
from dreamgym_kit.rollout.engine import run_episodes
from dreamgym_kit.rollout.jobs import jobs_for
from dreamgym_kit.rollout.journal import Journal
from dreamgym_kit.rollout.stop import StopSwitch
from dreamgym_kit.rollout.worker import kit_version
from dreamgym_kit.types import Task

address, victim, journal_file = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
noticed = journal_file.with_name("noticed")
lost = []

class Heard:
    def emit(self, kind, /, **facts):
        if kind == "episode_finished" and facts["episode"] == "t0.1":
            psutil.Process(victim).kill()  # the other seven wait, each node has three of them or more
        if kind == "lost":
            lost.append(facts["episode"])
            noticed.touch()

async def main():
    spec = WorkerSpec("engines.ray_place:opened", {}, lanes=4, limit_s=300,
                    kit=kit_version())
    runner = DistributedRunner(RayHost(2, address=address, ready_s=120), spec, workers=2,
                               budget=RunBudget(), events=Heard(), stop=StopSwitch(), repeatable=True)
    tasks = [Task(f"t{number}", {}, meta={"after": str(noticed)} if number else {}) for number in range(120)]
    async with runner:
        warnings = list(runner.reports.warnings)
        with Journal(journal_file) as journal:
            totals = await run_episodes(jobs_for(tasks, 1), runner, journal=journal, concurrency=8,
                                        events=Heard(), stop=StopSwitch())
    print(json.dumps({"finished": totals.passed, "lost": lost, "warnings": warnings}))

asyncio.run(main())
"""


@pytest.fixture
def variables() -> dict[str, str]:
    """Of nodes and driver alike; a token, so that nothing is written into the home."""
    tokens = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    more = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_memory_monitor_refresh_ms": "0"}
    path = str(Path(__file__).parents[1])
    return {**os.environ, **tokens, **more, "PYTHONPATH": path}


class Node:
    """`ray start --block` in a process of its own, with all that it starts."""

    def __init__(self, *flags: str, variables: dict[str, str], log: Path) -> None:
        said = [*RAY, "start", "--num-cpus", "1", "--object-store-memory", "100000000", "--block", *flags]
        with log.open("w") as file:
            self._started = subprocess.Popen(
                said, env=variables, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
            )

    def raylet(self) -> int | None:
        with suppress(psutil.Error):
            for child in psutil.Process(self._started.pid).children():
                if child.name() == "raylet":
                    return child.pid
        return None

    def end(self) -> None:
        with suppress(psutil.Error):
            here = psutil.Process(self._started.pid)
            for process in [*here.children(recursive=True), here]:
                with suppress(psutil.Error):
                    process.kill()
        self._started.wait()


@pytest.fixture
def cluster(variables: dict[str, str], tmp_path: Path) -> Iterator[tuple[str, Node]]:
    """Address of a cluster of two nodes on this machine, and its second node."""
    address = f"127.0.0.1:{own_port()}"
    with tempfile.TemporaryDirectory(prefix="dgtest", dir="/tmp", ignore_cleanup_errors=True) as folder:
        head = ("--head", "--port", address.partition(":")[2], "--node-ip-address", "127.0.0.1")
        quiet = ("--include-dashboard", "false", "--temp-dir", folder)
        nodes = [Node(*head, *quiet, variables=variables, log=tmp_path / "head.log")]
        try:
            wait_until(lambda: _answers(address), "the head")
            nodes.append(Node("--address", address, variables=variables, log=tmp_path / "second.log"))
            wait_until(lambda: "block forever" in (tmp_path / "second.log").read_text(), "the second node")
            yield address, nodes[1]
        finally:
            for node in reversed(nodes):
                node.end()


def _answers(address: str) -> bool:
    host, _, port = address.partition(":")
    with suppress(OSError), socket.create_connection((host, int(port)), 60):
        return True
    return False


def test_a_machine_that_goes_away_takes_no_episode_with_it(
    cluster: tuple[str, Node], variables: dict[str, str], tmp_path: Path
) -> None:
    address, second = cluster
    raylet = second.raylet()
    assert raylet is not None
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, address, str(raylet), str(tmp_path / "episodes.jsonl")],
        env={**variables, "SHOP_API_KEY": "canary-77"},
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["finished"] == 120
    assert 1 <= len(told["lost"]) <= 4
    assert len(told["warnings"]) == 2  # of two workers, each on a node that has no such key
    assert all(one.endswith("not set there, and set here: SHOP_API_KEY") for one in told["warnings"])
    assert "canary-77" not in done.stdout + done.stderr
