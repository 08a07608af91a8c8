"""What the SQLite store's search promises beyond the port: old files, other processes, embedders, damage."""

import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from each_row import each_row
from numpy.typing import NDArray

from dreamgym_kit.adapters.embedders.models import HashedEmbedder
from dreamgym_kit.adapters.stores import sqlite_search, sqlite_tables
from dreamgym_kit.adapters.stores.sqlite import SqliteStore
from dreamgym_kit.errors import StoreError
from dreamgym_kit.interfaces import HybridQuery, Room
from dreamgym_kit.replay.records import dump_transition
from dreamgym_kit.types import Answer, Call, Effect, Transition

VERSION_1 = (
    """create table transitions (
        seq integer primary key autoincrement,
        id text not null unique,
        tenant text not null,
        world text not null,
        tool text not null,
        key text not null,
        payload text not null
    )""",
    "create index transitions_exact on transitions (tenant, world, tool, key)",
    "pragma application_id = 1146244423",
    "pragma user_version = 1",
)


class RemoteEmbedderDouble:
    """Stands for one that waits for a network: vectors of 4 numbers, and a count of what it was asked."""

    name = "remote"
    dimension = 4
    local = False

    def __init__(self) -> None:
        self.texts: list[str] = []

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.texts += texts
        return HashedEmbedder().embed(texts)[:, :4]


def row(step: int, said: str = "a lamp") -> Transition:
    return Transition(Call("get", {"id": f"ORD-{step}"}), Answer(said), Effect.READ, f"t.{step}", step)


def found(store: SqliteStore, text: str, k: int = 1) -> list[int]:
    return [hit.transition.step for hit in store.search(HybridQuery(text, k=k))]


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "old.db"
    with closing(sqlite3.connect(path)) as file:
        for statement in VERSION_1:
            file.execute(statement)
        for step in range(1, 301):
            one = row(step)
            columns = (one.id, "default", "default:0", "get", one.call.key, dump_transition(one))
            file.execute(
                "insert into transitions (id, tenant, world, tool, key, payload) values (?, ?, ?, ?, ?, ?)",
                columns,
            )
        file.commit()
    return path


def version(path: Path) -> int:
    return int.from_bytes(path.read_bytes()[60:64], "big")


def test_an_old_buffer_is_read_as_it_is_and_can_be_searched_once_it_may_be_written(old: Path) -> None:
    before = old.read_bytes()
    with closing(SqliteStore(old, read_only=True)) as store:
        assert store.count() == 300
        assert store.exact("get", row(7).call.key, row(7).environment) == [row(7)]
        with pytest.raises(StoreError, match=r"without a search index; open it once without read_only$"):
            store.search(HybridQuery("lamp"))
    assert (old.read_bytes(), version(old)) == (before, 1)
    with closing(SqliteStore(old)) as store:
        assert found(store, "ord-299") == [299]
        assert store.put([row(300), row(301)]) == 1
        assert found(store, "ord-301") == [301]
        assert store.count() == 301
    assert version(old) == 3
    with closing(SqliteStore(old, read_only=True)) as store:
        assert found(store, "ord-7") == [7]


def test_a_migration_that_fails_leaves_the_old_buffer(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    with closing(SqliteStore(old)) as store:
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(sqlite_tables, "add", fail)
            store.put([row(400)])
        assert version(old) == 1
        assert store.count() == 300
        assert store.put([row(400)]) == 1
        assert found(store, "ord-400") == [400]


def test_a_damaged_row_of_an_old_buffer_is_named_and_the_buffer_stays_old(old: Path) -> None:
    with closing(sqlite3.connect(old)) as file:
        file.execute("update transitions set payload = '{' where seq = 290")
        file.commit()
    with closing(SqliteStore(old)) as store:
        with pytest.raises(StoreError, match=r"is damaged \(row 290: "):
            store.put([row(400)])
        assert store.exact("get", row(7).call.key, row(7).environment) == [row(7)]
    assert version(old) == 1


def test_rows_that_other_processes_put_and_evict_are_noticed_at_the_next_search(tmp_path: Path) -> None:
    other = (
        "import sys\n"
        "from dreamgym_kit.adapters.stores.sqlite import SqliteStore\n"
        "from dreamgym_kit.interfaces import Room\n"
        "from dreamgym_kit.types import *\n"
        "store = SqliteStore(sys.argv[1])\n"
        "for step in (50, 51):\n"
        "    call = Call('get', {'id': f'ORD-{step}'})\n"
        "    store.put([Transition(call, Answer('a lamp'), Effect.READ, f't.{step}', step)])\n"
        "store.evict(Room(rows=2))\n"
        "store.close()\n"
    )
    path = tmp_path / "b.db"
    with closing(SqliteStore(path)) as store, closing(SqliteStore(path, read_only=True)) as reader:
        store.put([row(step) for step in range(1, 10)])
        assert found(store, "ord-3") == found(reader, "ord-3") == [3]
        subprocess.run([sys.executable, "-c", other, path], check=True)
        assert sorted(found(store, "lamp", 9)) == sorted(found(reader, "lamp", 9)) == [50, 51]
        assert found(reader, "ord-51") == [51]


def test_new_words_are_found_before_words_are_counted_again(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path / "b.db")) as store:
        store.put([row(step) for step in range(1, 2101)])
        assert found(store, "ord-2000") == [2000]
        store.put([row(3000, "xylophone")])
        assert store.search(HybridQuery("xylophone", words_only=True, k=1))[0].transition.step == 3000


def test_words_that_only_new_rows_have_count_as_what_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_search, "_SMALL", 0)  # as if there were many rows: not counted anew each time
    with closing(SqliteStore(tmp_path / "b.db")) as store:
        store.put([row(step) for step in range(1, 101)])
        assert len(found(store, "a lamp", k=3)) == 3
        store.put([row(step, "a comet") for step in (101, 102)])
        assert found(store, "comet", k=2) == [101, 102]
        assert store._search._rows_with["comet"] == 2
        store.put([row(step, "a quasar") for step in range(103, 124)] + [row(124, "a pulsar")])
        assert found(store, "pulsar") == [124]


def parts(path: Path) -> int:
    """In how many parts the words of a buffer lie."""
    with closing(sqlite3.connect(path)) as plain:
        return plain.execute("select count(*) from (select distinct segid from words_idx)").fetchone()[0]


def scattered(path: Path) -> list[int]:
    """A buffer whose words lie in parts, and what it answers."""
    with closing(SqliteStore(path)) as store:
        for first in range(1, 29, 4):
            store.put([row(step, f"a lamp of {step} watts") for step in range(first, first + 4)])
    assert parts(path) == 7
    with closing(SqliteStore(path, read_only=True)) as store:
        return found(store, "lamp of 7 watts", k=5)


def test_the_first_search_puts_the_words_together_and_finds_what_it_found_before(tmp_path: Path) -> None:
    path = tmp_path / "b.db"
    before = scattered(path)
    assert parts(path) == 7  # who only reads writes nothing
    with closing(SqliteStore(path)) as store:
        assert found(store, "lamp of 7 watts", k=5) == before
        assert before[0] == 7
    assert parts(path) == 1


def test_a_search_goes_on_where_others_keep_it_from_putting_the_words_together(tmp_path: Path) -> None:
    path = tmp_path / "b.db"
    before = scattered(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("begin immediate")
        with closing(SqliteStore(path, lock_wait_s=0.05)) as store:
            assert found(store, "lamp of 7 watts", k=5) == before
        other.execute("rollback")
    assert parts(path) == 7


def test_vectors_of_a_slow_embedder_are_made_once_at_the_first_search_and_kept(tmp_path: Path) -> None:
    path, first = tmp_path / "b.db", RemoteEmbedderDouble()
    with closing(SqliteStore(path, embedder=first)) as store:
        store.put([row(step) for step in range(1, 301)])
        assert first.texts == []
        store.search(HybridQuery("lamp"))
        assert len(first.texts) == 301
    second = RemoteEmbedderDouble()
    with closing(SqliteStore(path, embedder=second, read_only=True)) as reader:
        with closing(SqliteStore(path, embedder=first)) as store:
            store.put([row(900)])
        assert 900 in found(reader, "ord-900", 24)
        assert len(second.texts) == 2


def test_a_buffer_refuses_another_embedder_by_name_and_can_be_searched_by_words(tmp_path: Path) -> None:
    path = tmp_path / "b.db"
    with closing(SqliteStore(path, embedder=RemoteEmbedderDouble())) as store:
        store.put([row(1)])
        store.search(HybridQuery("lamp"))
    with pytest.raises(StoreError) as caught:
        SqliteStore(path, embedder=HashedEmbedder())
    assert str(caught.value) == (
        f"{path}: its vectors are of embedder 'remote' (4 numbers), not 'hashed-256-v1'; open it with that "
        "one (setting replay.embedder), or export it and import the rows into a new buffer"
    )
    with closing(SqliteStore(path)) as store:
        assert store.put([row(2)]) == 1
        assert store.foreign_embedder == "remote"
        with pytest.raises(StoreError, match=r"of embedder 'remote' .* was not given"):
            store.search(HybridQuery("lamp"))
        assert len(store.search(HybridQuery("lamp", words_only=True))) == 2
    with closing(SqliteStore(path, embedder=RemoteEmbedderDouble())) as store:
        assert len(store.search(HybridQuery("lamp"))) == 2


@each_row(
    "damage",
    [
        "update places set tenant = 'default', episode = 'x', provenance = 'real' where seq = 2",
        "update places set provenance = 'dreamt' where seq = 2",
        "update places set same = 'text' where seq = 2",
        "update vectors set vector = x'00' where seq = 2",
        "update transitions set payload = replace(payload, 'lamp', 'LAMP') where seq = 2",
        "update facts set value = '[]'",
    ],
)
def test_damage_is_named_and_what_was_not_asked_for_is_never_given(tmp_path: Path, damage: str) -> None:
    with closing(SqliteStore(tmp_path / "b.db")) as store:
        store.put([row(1), row(2)])
    with closing(sqlite3.connect(tmp_path / "b.db")) as file:
        file.execute(damage)
        file.commit()
    with closing(SqliteStore(tmp_path / "b.db")) as store, pytest.raises(StoreError, match="is damaged"):
        store.search(HybridQuery("lamp", not_episode="t.2"))
        store.search(HybridQuery("lamp"))


def test_words_and_rows_are_the_same_ones_after_evictions(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path / "b.db")) as store:
        store.put([row(step, f"lamp number{step}") for step in range(1, 60)])
        store.evict(Room(rows=10))
        store.put([row(step, f"lamp number{step}") for step in range(40, 70)])
    with closing(sqlite3.connect(tmp_path / "b.db")) as file:
        words = {seq for (seq,) in file.execute("select rowid from words where words match 'lamp'")}
        rows, places, vectors = (
            {seq for (seq,) in file.execute(f"select seq from {table}")}
            for table in ("transitions", "places", "vectors")
        )
        gone = file.execute("select doc from vocabulary where term = 'number1'").fetchall()
    assert words == rows == places == vectors
    assert gone == []


def test_a_word_of_all_rows_is_found_when_some_left_since_words_were_counted(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path / "b.db")) as store:
        store.put([row(step) for step in range(1, 2502)])
        assert len(found(store, "lamp", 3)) == 3
        store.evict(Room(rows=2100))
        assert len(found(store, "lamp", 3)) == 3
