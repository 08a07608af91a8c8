"""Bar S5: a full buffer answers as quickly as one needs; here in small, in full with the benches."""

import importlib.util
import json
import os
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest

from dreamgym_kit.adapters.stores.sqlite import SqliteStore
from dreamgym_kit.vocabulary import Transition, World

ROWS = 4_000


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    """The bench of the same bar, by its path: tests are no package."""
    path = Path(__file__).parents[1] / "bench" / "store.py"
    spec = importlib.util.spec_from_file_location("store_bench", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class ScansForExactDouble(SqliteStore):
    """A planted bug: one call is looked for among all."""

    def exact(self, tool: str, key: str, world: World, *, tenant: str = "default") -> list[Transition]:
        """The same answer, in time that grows with the buffer."""
        return [row for row in self.scan(world=world, tenant=tenant) if row.call.key == key]


def held(bench: ModuleType, store: SqliteStore) -> dict[str, float]:
    """Fill a store with some thousand rows and ask it: what the bar limits."""
    rows = list(bench._transitions(0, ROWS, ROWS))
    halves = []
    for half in (rows[: ROWS // 2], rows[ROWS // 2 :]):
        started = time.process_time()
        for first in range(0, len(half), 500):
            store.put(half[first : first + 500])
        halves.append(time.process_time() - started)
    bench._hybrid(store, rows[:1])
    exact = [bench._timed(lambda one=one: bench._exact(store, one))[0] for one in rows[:200]]
    asked = list(bench._transitions(1, 300, ROWS))
    hybrid = [bench._timed(lambda one=one: bench._hybrid(store, [one]))[0] for one in asked]
    found = {
        "exact_p99_ms": bench._quantile(exact, 0.99),
        "hybrid_p99_ms": bench._quantile(hybrid, 0.99),
        "second_half": halves[1] / halves[0],
        "rss_mb": psutil.Process().memory_info().rss / 2**20,
    }
    print(f"S5 rows {ROWS} {found}")
    return found


def test_exact_and_hybrid_answers_are_quick_and_writing_grows_linearly(
    bench: ModuleType, tmp_path: Path
) -> None:
    with closing(SqliteStore(tmp_path / "b.db")) as store:
        found = held(bench, store)
    assert found["exact_p99_ms"] < 5
    assert found["hybrid_p99_ms"] < 100
    assert found["second_half"] < 3
    assert found["rss_mb"] < 2048


@pytest.mark.slow
def test_a_store_that_looks_at_every_row_is_found_out(bench: ModuleType, tmp_path: Path) -> None:
    with closing(ScansForExactDouble(tmp_path / "b.db")) as store:
        assert held(bench, store)["exact_p99_ms"] > 5


@pytest.mark.bench
@pytest.mark.timeout(3600)
def test_a_hundred_thousand_rows_hold_the_bar(bench: ModuleType) -> None:
    figures = {name: value for name, value, _ in bench.measure(0)}
    print(f"S5 {figures}")
    assert figures["exact_ms"] < 5
    assert figures["hybrid_p99_ms"] < 100


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_a_million_rows_open_and_answer_within_two_gigabytes(bench: ModuleType, tmp_path: Path) -> None:
    """Filled and asked by processes of their own: their memory is what the bar limits. Some ten minutes."""

    def run(*arguments: str) -> Any:
        command = [sys.executable, str(bench.__file__), *arguments]
        done = subprocess.run(
            command, env=os.environ | bench.ONE_CORE, stdout=subprocess.PIPE, check=True, text=True
        )
        return json.loads(done.stdout)

    path = str(tmp_path / "million.db")
    first, second = run("fill", path, "0", "1000000")
    found = run("ask", path, "0", "1000000")
    print(f"S5 rows 1000000 rows/s of each half {first:.0f} {second:.0f} {found}")
    assert second > first / 2
    assert found["open_ms"] < 1000
    assert found["exact_p99_ms"] < 5
    assert found["hybrid_p99_ms"] < 100
    assert found["rss_mb"] < 2048
