"""The buffer at size: 100,000 transitions in one SQLite file, on one core.

`hybrid_p50_ms`, `hybrid_p99_ms`: CPU time of the asking thread for the best 8 by words and vectors of one
tool, without the asking episode's own rows, while another process appends 50 rows a second. `exact_ms`: the
median for one recorded call. `appends_per_s`: puts of 500, by the clock.

Run as a program this file is one of its own other processes: the appender, or what a buffer of a million rows
is filled and asked with.
"""

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

ROWS = 100_000
QUERIES = 400
BATCH = 500
TOOLS = 64
WORDS = 20_000
K = 8
ONE_CORE = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


def measure(seed: int) -> list[tuple[str, float, str]]:
    """Figures for the bench runner, in a process of its own: its arithmetic must stay on one core."""
    done = subprocess.run(
        [sys.executable, __file__, "figures", str(seed), str(ROWS)],
        env=os.environ | ONE_CORE,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return [(name, value, unit) for name, value, unit in json.loads(done.stdout.splitlines()[-1])]


def figures(seed: int, rows: int) -> list[tuple[str, float, str]]:
    """Fill a buffer and ask it."""
    from dreamgym_kit.adapters.stores.sqlite import SqliteStore

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "buffer.db"
        with closing(SqliteStore(path)) as store:
            seconds = _fill(store, seed, rows)
            asked = list(_transitions(seed + 1, QUERIES, rows))
            _hybrid(store, asked[:5])
            exact = [_timed(lambda one=one: _exact(store, one)) for one in _transitions(seed, QUERIES, rows)]
            idle = [_timed(lambda one=one: _hybrid(store, [one])) for one in asked]
            with _appender(path, seed):
                busy = [_paced(lambda one=one: _hybrid(store, [one])) for one in asked]
            found: list[tuple[str, float, str]] = [
                ("hybrid_p50_ms", _quantile([cpu for cpu, _ in busy], 0.5), "ms"),
                ("hybrid_p99_ms", _quantile([cpu for cpu, _ in busy], 0.99), "ms"),
                ("exact_ms", _quantile([cpu for cpu, _ in exact], 0.5), "ms"),
                ("appends_per_s", rows / seconds, "rows/s"),
            ]
            wall = [
                _quantile([wall for _, wall in times], part) for times in (idle, busy) for part in (0.5, 0.99)
            ]
            print("wall ms, idle p50 p99, appending p50 p99:", [round(ms, 2) for ms in wall], file=sys.stderr)
    return found


def _fill(store: "object", seed: int, rows: int) -> float:
    seconds, batch = 0.0, []
    for number, row in enumerate(_transitions(seed, rows, rows), 1):
        batch.append(row)
        if len(batch) == BATCH or number == rows:
            started = time.perf_counter()
            store.put(batch)
            seconds += time.perf_counter() - started
            batch = []
    return seconds


def _transitions(seed: int, count: int, rows: int) -> Iterator["object"]:
    """Made-up recordings: words and tools as rare as in speech (Zipf), made-up order numbers and users."""
    from dreamgym_kit.types import Answer, Call, Effect, Environment, Transition

    chance = random.Random(seed)
    words = [_word(number) for number in range(WORDS)]
    tools = [f"{words[1000 + number]}_{words[2000 + number]}" for number in range(TOOLS)]
    of_words = [1 / (place + 1) for place in range(WORDS)]
    of_tools = [(place + 1) ** -0.8 for place in range(TOOLS)]
    sums, tool_sums = _running(of_words), _running(of_tools)
    for number in range(count):
        text = chance.choices(words, cum_weights=sums, k=chance.randrange(40, 90))
        order = chance.randrange(rows // 3)
        args = {
            "order_id": f"ORD-{order:06d}",
            "user": f"u{chance.randrange(rows)}@{text[0]}.com",
            "note": " ".join(text[:4]),
        }
        (tool,) = chance.choices(tools, cum_weights=tool_sums)
        answer = Answer({"status": "ok", "result": " ".join(text[4:])})
        world = Environment(f"w{chance.randrange(8)}")
        yield Transition(
            Call(tool, args), answer, Effect.READ, f"s{seed}.{number // 8}", number % 8 + 1, environment=world
        )


def _running(weights: Sequence[float]) -> list[float]:
    total, sums = 0.0, []
    for weight in weights:
        total += weight
        sums.append(total)
    return sums


def _word(number: int) -> str:
    chance = random.Random(number)
    return "".join(
        chance.choice("bcdfghklmnprstvz") + chance.choice("aeiou")
        for _ in range(chance.choice([2, 2, 3, 3, 4]))
    )


def _hybrid(store: "object", asked: "Sequence[object]") -> None:
    from dreamgym_kit.interfaces import HybridQuery
    from dreamgym_kit.replay.retrieval import search_text

    for one in asked:
        hits = store.search(HybridQuery(search_text(one), tool=one.call.tool, not_episode=one.episode, k=K))
        assert len(hits) == K


def _exact(store: "object", one: "object") -> None:
    assert store.exact(one.call.tool, one.call.key, one.environment)


def _timed(act: Callable[[], None]) -> tuple[float, float]:
    """CPU time of this thread and wall time, in milliseconds."""
    wall, cpu = time.perf_counter(), time.thread_time()
    act()
    return (time.thread_time() - cpu) * 1e3, (time.perf_counter() - wall) * 1e3


def _paced(act: Callable[[], None]) -> tuple[float, float]:
    time.sleep(0.01)  # so that rows are appended between most questions
    return _timed(act)


def _quantile(values: Sequence[float], part: float) -> float:
    if part == 0.5:
        return statistics.median(values)
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


@contextmanager
def _appender(path: Path, seed: int) -> Iterator[None]:
    process = subprocess.Popen(
        [sys.executable, __file__, "append", str(path), str(seed + 2)], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    try:
        yield
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def _append(path: Path, seed: int) -> None:
    """Put 5 rows each tenth of a second until killed."""
    from dreamgym_kit.adapters.stores.sqlite import SqliteStore

    rows = _transitions(seed, 10**9, ROWS)
    store = SqliteStore(path)
    while True:
        store.put([next(rows) for _ in range(5)])
        print("put", flush=True)
        time.sleep(0.1)


def _fill_at(path: Path, seed: int, rows: int) -> None:
    """Print how many rows were put in a second of CPU time, by the first half of the rows and the second."""
    from dreamgym_kit.adapters.stores.sqlite import SqliteStore

    with closing(SqliteStore(path)) as store:
        seconds, batch = [0.0, 0.0], []
        for number, row in enumerate(_transitions(seed, rows, rows), 1):
            batch.append(row)
            if len(batch) == BATCH:
                started = time.process_time()
                store.put(batch)
                seconds[number > rows // 2] += time.process_time() - started
                batch = []
    print(json.dumps([rows / 2 / part for part in seconds]))


def _ask_at(path: Path, seed: int, rows: int) -> None:
    """Open a full buffer, ask it, print how long that took and how much memory."""
    import resource

    from dreamgym_kit.adapters.stores.sqlite import SqliteStore

    opened = time.perf_counter()
    store = SqliteStore(path, read_only=True)
    open_ms = (time.perf_counter() - opened) * 1e3
    asked = list(_transitions(seed + 1, QUERIES, rows))
    first = _timed(lambda: _hybrid(store, asked[:1]))[0]
    exact = [_timed(lambda one=one: _exact(store, one))[0] for one in _transitions(seed, QUERIES, rows)]
    hybrid = [_timed(lambda one=one: _hybrid(store, [one]))[0] for one in asked]
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    found = {"open_ms": open_ms, "first_search_s": first / 1e3, "rss_mb": memory}
    for name, times in (("exact", exact), ("hybrid", hybrid)):
        found |= {f"{name}_p50_ms": _quantile(times, 0.5), f"{name}_p99_ms": _quantile(times, 0.99)}
    print(json.dumps(found))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["figures", seed, rows]:
            print(json.dumps(figures(int(seed), int(rows))))
        case ["append", path, seed]:
            _append(Path(path), int(seed))
        case ["fill", path, seed, rows]:
            _fill_at(Path(path), int(seed), int(rows))
        case ["ask", path, seed, rows]:
            _ask_at(Path(path), int(seed), int(rows))
