"""Lets tests and benches import what many of them share; no test leaves dreams or secrets to the next one.

Shared are `shapes`, the ways in which people build agents, and the doubles that lie in this folder.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

# A busy machine makes an example slow, not wrong; and the same examples each time: no test fails by chance.
hypothesis.settings.register_profile(
    "suite",
    hypothesis.settings(),
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("suite")
sys.path.insert(0, str(Path(__file__).parent))
import fresh  # noqa: E402 - it lies in this folder

# Before torch is imported: each of pytest's processes has one core, and threads that wait for others spin.
os.environ.setdefault("OMP_NUM_THREADS", "1")

OpenBuffer = Callable[..., Any]


class Outcomes:
    """Appends the outcome of each phase of each test to a file, so that a killed run leaves what it knew."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._collected: set[str] = set()
        self._seen: set[str] = set()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._collected.update(item.nodeid for item in session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        self._collected.update(ids)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seen.add(report.nodeid)
        self._write(report, report.when, report.duration)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if not report.passed:
            self._write(report, "collect", 0.0)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        self._append({"exit": int(exitstatus), "left": len(self._collected - self._seen)})

    def _write(self, report: pytest.TestReport | pytest.CollectReport, when: str, seconds: float) -> None:
        crash = getattr(report.longrepr, "reprcrash", None)
        text = "" if report.passed else str(crash.message if crash else report.longrepr).strip()
        if report.failed and not crash:  # not collected: what was raised stands below its frames
            text = next((line[1:].strip() for line in text.splitlines() if line.startswith("E ")), text)
        line = {"test": report.nodeid, "when": when, "outcome": report.outcome, "seconds": seconds}
        self._append(line | {"error": text.partition("\n")[0][:300]})

    def _append(self, line: dict[str, object]) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`.ci/check.py` reads the file for its last lines."""
    parser.addoption(
        "--outcomes", type=Path, metavar="FILE", help="append each test's outcome as a JSON line"
    )


@pytest.hookimpl(tryfirst=True)  # before those that are not asked for are gone
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test that its suite would not look at would never run."""
    from places import CHECKOUT, marked

    suites = ("bench", "browser", "nightly", "ray", "slow", "upstream", "vllm")
    files = {mark: {str(CHECKOUT / file) for file in marked(mark)} for mark in suites}
    for item in items:
        for mark in files.keys() & {mark.name for mark in item.iter_markers()}:
            if str(item.path) not in files[mark]:
                raise pytest.UsageError(f"{item.nodeid} is marked {mark}: write `mark.{mark}` into its file")


def pytest_configure(config: pytest.Config) -> None:
    if (path := config.getoption("outcomes")) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Outcomes(path.absolute()))


@pytest.fixture(scope="module")
def doubled_weaviate() -> Iterator[OpenBuffer]:
    """Opens buffers by name on a double of Weaviate that the module has for itself."""
    import weaviate_buffers
    from weaviate_double import WeaviateDouble

    with (
        WeaviateDouble() as double,
        weaviate_buffers.on_server(weaviate_buffers.server_of(double.address)) as open_buffer,
    ):
        yield open_buffer


@pytest.fixture(scope="module")
def live_weaviate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenBuffer]:
    """Opens buffers by name on a live Weaviate; skips, with the reason, where there is none."""
    import weaviate_buffers

    folder = tmp_path_factory.mktemp("weaviate")
    with weaviate_buffers.live_server(folder) as make, weaviate_buffers.on_server(make) as open_buffer:
        yield open_buffer


@pytest.fixture(autouse=True)
def _awake_afterwards() -> Iterator[None]:
    yield
    fresh.after_test()


@pytest.fixture(scope="session")
def ray_of_two() -> Iterator[None]:
    """A real Ray cluster with room for two workers, of this process's own; whoever asks for Ray uses it."""
    pytest.importorskip("ray", reason="the extra `ray` is not installed")
    from dreamgym_kit.adapters.engines.ray_cluster import ray_cluster

    with ray_cluster(None, 2):
        yield
