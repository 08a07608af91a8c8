"""A buffer that is written keeps to its room: dreamt rows leave first, and who cannot leave stops nobody."""

import json
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from dreamgym_kit.adapters.stores.sqlite import SqliteStore
from dreamgym_kit.errors import StoreError
from dreamgym_kit.interfaces import Room
from dreamgym_kit.replay import eviction
from dreamgym_kit.replay.eviction import room_of
from dreamgym_kit.replay.records import dump_transition
from dreamgym_kit.settings.load import parse_settings
from dreamgym_kit.settings.schema import ReplaySettings
from dreamgym_kit.types import Answer, Call, Effect, Source, Transition


def row(step: int, *, dreamt: bool = False, at: float = 0.0) -> Transition:
    made = Source.MODEL if dreamt else Source.REAL
    answer = Answer("a lamp", made)
    return Transition(Call("get", {"id": step}), answer, Effect.READ, "t.1", step, recorded_at=at)


def steps(path: Path) -> list[int]:
    with closing(SqliteStore(path, read_only=True)) as store:
        return [one.step for one in store.scan()]


def test_without_a_room_all_stay(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path / "b.db")) as store:
        store.put([row(step, dreamt=step > 1) for step in range(1, 9)])
        assert store.make_room() == 0
    assert len(steps(tmp_path / "b.db")) == 8


def test_what_has_no_room_leaves_when_the_store_is_closed_dreamt_rows_first(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path / "b.db", room=Room(rows=6))) as store:
        store.put([row(step, dreamt=step in (5, 6, 7, 8)) for step in range(1, 9)])
        assert store.count() == 8
    assert steps(tmp_path / "b.db") == [1, 2, 3, 4, 7, 8]


def test_a_store_that_stays_open_makes_room_every_so_many_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eviction, "CROWD", 10)
    with closing(SqliteStore(tmp_path / "b.db", room=Room(rows=5))) as store:
        most = 0
        for step in range(1, 101):
            store.put([row(step)])
            most = max(most, store.count())
        assert most <= 14
        assert store.count() == 5
        assert store.make_room() == 95


def test_rows_that_others_put_leave_too_where_it_is_asked_for(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path / "b.db", room=Room(rows=5))) as store:
        with closing(SqliteStore(tmp_path / "b.db")) as worker:
            worker.put([row(step) for step in range(1, 9)])
        assert store.make_room() == 3
    assert steps(tmp_path / "b.db") == [4, 5, 6, 7, 8]


def test_old_dreams_leave_and_a_dream_is_never_more_than_its_share(tmp_path: Path) -> None:
    room = Room(dreamt_share=0.25, dreamt_lifetime_s=1000)
    now = time.time()
    with closing(SqliteStore(tmp_path / "b.db", room=room)) as store:
        store.put([row(step) for step in range(1, 7)])
        store.put([row(7, dreamt=True, at=now - 2000), row(8, dreamt=True, at=now - 500)])
        store.put([row(9, dreamt=True, at=now), row(10, dreamt=True, at=now)])
    assert steps(tmp_path / "b.db") == [1, 2, 3, 4, 5, 6, 9, 10]


def test_rows_that_cannot_leave_do_not_make_a_put_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eviction, "CROWD", 2)
    with closing(SqliteStore(tmp_path / "b.db")) as store:
        store.put([row(1), row(2)])
    with closing(sqlite3.connect(tmp_path / "b.db")) as other:
        other.execute("update transitions set payload = '{' where seq = 1")
        other.commit()
    with closing(SqliteStore(tmp_path / "b.db", room=Room(rows=1))) as store:
        assert store.put([row(3), row(4)]) == 2
        assert store.count() == 4
        with pytest.raises(StoreError, match="row 1: "):
            store.make_room()


def test_a_reader_lets_nothing_go(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path / "b.db")) as store:
        store.put([row(1), row(2)])
    with closing(SqliteStore(tmp_path / "b.db", read_only=True, room=Room(rows=1))) as store:
        assert store.make_room() == 0
    assert steps(tmp_path / "b.db") == [1, 2]


def test_room_as_settings_say_it() -> None:
    text = "[replay]\nrows = 10\ndreamt_share = 0.25\ndreamt_days = 2\n"
    assert room_of(parse_settings(text).replay) == Room(10, 0.25, 172_800.0)
    assert room_of(ReplaySettings()) == Room()


def test_an_import_says_what_left_again(tmp_path: Path) -> None:
    (tmp_path / "dreamgym.toml").write_text("[replay]\ndreamt_share = 0.5\n")
    lines = [dump_transition(row(step, dreamt=step > 1)) for step in (1, 2, 3)]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    command = [sys.executable, "-m", "dreamgym_kit.cli.main", "buffer", "import", "rows.jsonl", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, json.loads(done.stdout)["new"]) == (0, 3)
    assert done.stderr.startswith(f"1 recordings were evicted from {tmp_path}/dreamgym.db: ")
    assert steps(tmp_path / "dreamgym.db") == [1, 3]
