"""Bar S5: a full buffer answers as quickly as one needs; here in small, in full with the benches."""

import importlib.util
import time
from contextlib import closing
from pathlib import Path
from types import ModuleType

import psutil
import pytest

from dreamgym_kit.adapters.stores.sqlite import SqliteStore

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


def test_exact_and_hybrid_answers_are_quick_and_writing_grows_linearly(
    bench: ModuleType, tmp_path: Path
) -> None:
    rows = list(bench._transitions(0, ROWS, ROWS))
    with closing(SqliteStore(tmp_path / "b.db")) as store:
        halves = []
        for half in (rows[: ROWS // 2], rows[ROWS // 2 :]):
            started = time.process_time()
            for first in range(0, len(half), 500):
                store.put(half[first : first + 500])
            halves.append(time.process_time() - started)
        bench._hybrid(store, rows[:1])
        exact = [bench._timed(lambda one=one: bench._exact(store, one))[0] for one in rows[:300]]
        asked = list(bench._transitions(1, 300, ROWS))
        hybrid = [bench._timed(lambda one=one: bench._hybrid(store, [one]))[0] for one in asked]
    p99 = {name: bench._quantile(times, 0.99) for name, times in (("exact", exact), ("hybrid", hybrid))}
    grown = psutil.Process().memory_info().rss / 2**20
    print(
        f"S5 rows {ROWS} exact p99 {p99['exact']:.2f} ms hybrid p99 {p99['hybrid']:.2f} ms rss {grown:.0f} MB"
    )
    assert p99["exact"] < 5
    assert p99["hybrid"] < 100
    assert halves[1] < 3 * halves[0]
    assert grown < 2048


@pytest.mark.bench
def test_a_hundred_thousand_rows_hold_the_bar(bench: ModuleType) -> None:
    figures = {name: value for name, value, _ in bench.measure(0)}
    print(f"S5 {figures}")
    assert figures["exact_ms"] < 5
    assert figures["hybrid_p99_ms"] < 100
