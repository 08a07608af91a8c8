"""Bar S4: writing again is no harm, from a file, after a kill, or from two processes at once."""

import itertools
import random
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from dreamgym_kit.adapters.stores import sqlite
from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.adapters.stores.sqlite import SqliteStore
from dreamgym_kit.errors import StoreError
from dreamgym_kit.replay.jsonl import export_jsonl
from dreamgym_kit.vocabulary import Answer, Call, Effect, Transition

IMPORT = """
import sys
from pathlib import Path
from dreamgym_kit.adapters.stores.sqlite import SqliteStore
from dreamgym_kit.replay.jsonl import import_jsonl
print("ready", flush=True)
store = SqliteStore(Path(sys.argv[2]), lock_wait_s=60)
import_jsonl(Path(sys.argv[1]), store)
store.close()
"""


def seen(step: int) -> Transition:
    return Transition(Call("get", {"id": step % 7}), Answer("ok" * 100), Effect.READ, "t.1", step)


def written(path: Path, steps: range) -> list[str]:
    """Write a file to import; gives its ids in order."""
    store = MemoryStore()
    store.put([seen(step) for step in steps])
    export_jsonl(store, path)
    return [transition.id for transition in store.scan()]


def ids_in(buffer: Path) -> list[str]:
    with closing(SqliteStore(buffer)) as store:
        ids = [transition.id for transition in store.scan()]
        assert store.count() == len(ids)
    return ids


def start_import(rows: Path, buffer: Path) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-c", IMPORT, str(rows), str(buffer)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def differences_after_killed_imports(folder: Path, kills: int, *, seed: int) -> int:
    """Kill imports at random moments, then import once to the end; rows missing, doubled or moved."""
    chance = random.Random(seed)
    wanted = written(folder / "rows.jsonl", range(1, 4001))
    cut_short = 0
    for _ in range(kills):
        with start_import(folder / "rows.jsonl", folder / "b.db") as process:
            time.sleep(chance.uniform(0, 0.25))
            cut_short += process.poll() is None
            process.kill()
    with start_import(folder / "rows.jsonl", folder / "b.db") as process:
        pass
    assert process.returncode == 0
    assert cut_short
    found = ids_in(folder / "b.db")
    different = sum(one != other for one, other in itertools.zip_longest(wanted, found))
    print(f"S4 kills {cut_short} rows {len(wanted)} different {different}")
    return different


@pytest.mark.slow
def test_an_import_that_was_killed_is_simply_repeated(tmp_path: Path) -> None:
    assert differences_after_killed_imports(tmp_path, 4, seed=1) == 0


@pytest.mark.slow
def test_an_import_that_was_killed_twenty_times_is_simply_repeated(tmp_path: Path) -> None:
    assert differences_after_killed_imports(tmp_path, 20, seed=2) == 0


@pytest.mark.slow
def test_two_writers_of_overlapping_rows_give_each_row_once(tmp_path: Path) -> None:
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    wanted = {*written(first, range(1, 3001)), *written(second, range(1500, 4501))}
    with start_import(first, tmp_path / "b.db") as one, start_import(second, tmp_path / "b.db") as two:
        pass
    assert (one.returncode, two.returncode) == (0, 0)
    found = ids_in(tmp_path / "b.db")
    assert len(found) == len(wanted)
    assert set(found) == wanted


def test_a_store_that_gives_each_row_a_new_id_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = sqlite.INSERT.replace("(?, ?", "(cast(? || randomblob(4) as blob), ?")
    monkeypatch.setattr(sqlite, "INSERT", planted)
    with closing(SqliteStore(tmp_path / "b.db")) as store:
        store.put([seen(1)])
        store.put([seen(1)])
        assert store.count() == 2
        with pytest.raises(StoreError, match="row 1: it has content and no place"):
            list(store.scan())


@contextmanager
def held(buffer: Path) -> Iterator[None]:
    """Another program in the middle of a write."""
    with closing(sqlite3.connect(buffer, isolation_level=None)) as other:
        other.execute("begin immediate")
        yield
        other.execute("rollback")


def waited(store: SqliteStore) -> float:
    started = time.monotonic()
    with pytest.raises(StoreError, match=r"b\.db: is locked by another process; end that one or try again"):
        store.put([seen(1)])
    return time.monotonic() - started


def test_a_put_waits_for_a_lock_and_then_names_it(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path / "b.db", lock_wait_s=0.3)) as store:
        with held(tmp_path / "b.db"):
            assert waited(store) >= 0.25  # and that it ends at all: the lock is held until then
            assert list(store.scan()) == []
        assert store.put([seen(1)]) == 1


@pytest.mark.slow
def test_the_wait_is_five_seconds_unless_said_otherwise(tmp_path: Path) -> None:
    """No longer, as SQLite was told: a clock would also count what this process itself was kept waiting."""
    with closing(SqliteStore(tmp_path / "b.db")) as store, held(tmp_path / "b.db"):
        seconds = waited(store)
        (told_ms,) = store._open_writer().execute("pragma busy_timeout").fetchone()
    print(f"S4 lock wait {seconds:.2f} s")
    assert seconds >= 4.5
    assert told_ms <= 5000
    assert sqlite.LOCK_WAIT_S == 5.0


def test_a_lock_that_is_given_back_in_time_is_waited_for(tmp_path: Path) -> None:
    SqliteStore(tmp_path / "b.db").close()
    lock = (
        "import sqlite3, sys, time; c = sqlite3.connect(sys.argv[1], isolation_level=None);"
        "c.execute('begin immediate'); print(flush=True); time.sleep(0.5); c.execute('rollback'); c.close()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", lock, str(tmp_path / "b.db")], stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with closing(SqliteStore(tmp_path / "b.db", lock_wait_s=60)) as store:
            assert store.put([seen(1)]) == 1
