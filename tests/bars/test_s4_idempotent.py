"""Bar S4: writing again is no harm, from a file, after a kill, or from two processes at once."""

import itertools
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from dreamgym_kit.adapters.stores import sqlite
from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.adapters.stores.sqlite import SqliteStore
from dreamgym_kit.errors import StoreError
from dreamgym_kit.replay.transfer import export_jsonl
from dreamgym_kit.types import Answer, Call, Effect, Transition

IMPORT = """
import sys
from pathlib import Path
from dreamgym_kit.adapters.stores.sqlite import SqliteStore
from dreamgym_kit.replay.transfer import import_jsonl

class Told(SqliteStore):
    left = int(sys.argv[3])

    def put(self, transitions):
        print("put", flush=True)
        self.left -= 1
        if not self.left:
            sys.stdin.read()  # until it is killed
        return super().put(transitions)

store = Told(Path(sys.argv[2]), lock_wait_s=600)
import_jsonl(Path(sys.argv[1]), store)
store.close()
"""
PUTS = 8  # of 500 rows each


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


def start_import(rows: Path, buffer: Path, *, stand_at: int = 0) -> subprocess.Popen[bytes]:
    """A process that tells each put before it makes it; it never makes the one with the number `stand_at`."""
    command = [sys.executable, "-c", IMPORT, str(rows), str(buffer), str(stand_at)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def imported(*processes: subprocess.Popen[bytes]) -> list[int]:
    """The codes with which they end."""
    for process in processes:
        with process:
            process.communicate()
    return [process.returncode for process in processes]


def differences_after_killed_imports(folder: Path, kills: int, *, seed: int) -> int:
    """Kill imports in random puts, then import once to the end; rows missing, doubled or moved."""
    chance = random.Random(seed)
    wanted = written(folder / "rows.jsonl", range(1, 500 * PUTS + 1))
    for _ in range(kills):
        with start_import(folder / "rows.jsonl", folder / "b.db", stand_at=PUTS) as process:
            assert process.stdout is not None
            for _ in range(chance.randint(1, PUTS)):
                assert process.stdout.readline() == b"put\n"
            time.sleep(chance.uniform(0, 0.03))
            process.kill()
        assert process.returncode == -signal.SIGKILL
    assert imported(start_import(folder / "rows.jsonl", folder / "b.db")) == [0]
    found = ids_in(folder / "b.db")
    different = sum(one != other for one, other in itertools.zip_longest(wanted, found))
    print(f"S4 kills {kills} rows {len(wanted)} different {different}")
    return different


@pytest.mark.slow
def test_an_import_that_was_killed_is_simply_repeated(tmp_path: Path) -> None:
    assert differences_after_killed_imports(tmp_path, 4, seed=1) == 0


@pytest.mark.nightly
@pytest.mark.slow
def test_an_import_that_was_killed_twenty_times_is_simply_repeated(tmp_path: Path) -> None:
    assert differences_after_killed_imports(tmp_path, 20, seed=2) == 0


@pytest.mark.slow
def test_two_writers_of_overlapping_rows_give_each_row_once(tmp_path: Path) -> None:
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    wanted = {*written(first, range(1, 3001)), *written(second, range(1500, 4501))}
    writers = [start_import(rows, tmp_path / "b.db") for rows in (first, second)]
    assert imported(*writers) == [0, 0]
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
        with pytest.raises(StoreError, match="row 1: has content without an index entry"):
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
    with pytest.raises(StoreError, match=r"b\.db: is locked by another process; stop that process"):
        store.put([seen(1)])
    return time.monotonic() - started


def test_a_put_waits_for_a_lock_and_then_names_it(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path / "b.db", lock_wait_s=0.3)) as store:
        with held(tmp_path / "b.db"):
            assert waited(store) >= 0.25  # and that it ends at all: the lock is held until then
            assert list(store.scan()) == []
        assert store.put([seen(1)]) == 1


def test_a_put_tells_sqlite_to_wait_five_seconds_for_a_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "time", SimpleNamespace(monotonic=lambda: 100.0))
    with closing(SqliteStore(tmp_path / "b.db")) as store:
        store.put([seen(1)])
        assert store._open_writer().execute("pragma busy_timeout").fetchone() == (5000,)


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
