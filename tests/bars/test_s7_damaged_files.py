"""Bar S7: whatever the file is, it is read, or named in one line, and never changed by looking at it.

A flipped bit may hide rows (SQLite has no checksums in its table pages), but what a store does give is
what was put in: a row that says something else is named.
"""

import os
import random
import re
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, nullcontext
from pathlib import Path

import pytest
from each_row import each_row

from dreamgym_kit.adapters.stores import sqlite, sqlite_file, sqlite_tables
from dreamgym_kit.adapters.stores.sqlite import SqliteStore
from dreamgym_kit.errors import StoreError
from dreamgym_kit.interfaces import HybridQuery
from dreamgym_kit.types import Answer, Call, Effect, Environment, Transition

ROWS = [
    Transition(Call(f"tool_{step % 3}", {"id": step}), Answer("x" * 37 * step), Effect.READ, "t.1", step)
    for step in range(1, 61)
]
PAGE = 4096


@pytest.fixture
def healthy(tmp_path: Path) -> bytes:
    path = tmp_path / "healthy.db"
    with closing(SqliteStore(path)) as store:
        store.put(ROWS)
    return path.read_bytes()


def damages(healthy: bytes, seed: int) -> Iterator[bytes]:
    """Cut at and beside every page, then flip bytes anywhere, more often in the first pages."""
    for cut in range(0, len(healthy), PAGE):
        for end in (cut, cut + 1, cut + PAGE // 2):
            yield healthy[:end]
    chance = random.Random(seed)
    while True:
        data = bytearray(healthy)
        for _ in range(chance.choice([1, 1, 2, 8, 64])):
            data[chance.randrange(chance.choice([100, 2 * PAGE, len(data)]))] = chance.randrange(256)
        yield bytes(data)


def count_outcomes(folder: Path, healthy: bytes, cases: int, *, seed: int) -> Counter[str]:
    """Look at damaged files in every way there is to look."""
    outcomes: Counter[str] = Counter()
    for number, data in zip(range(cases), damages(healthy, seed), strict=False):
        path = folder / f"damaged-{number}.db"
        path.write_bytes(data)
        outcomes[look(path, read_only=number % 2 == 1)] += 1
        if data and path.read_bytes() != data:
            outcomes["changed"] += 1
        for part in ("", "-wal", "-shm"):
            Path(f"{path}{part}").unlink(missing_ok=True)
    print(f"S7 cases {cases} {dict(outcomes)}")
    return outcomes


def look(path: Path, *, read_only: bool) -> str:
    try:
        with closing(SqliteStore(path, read_only=read_only)) as store:
            store.count()
            found = [*store.scan(), *store.exact("tool_1", ROWS[0].call.key, Environment())]
            if read_only:  # where it may write, a search adds what an older or damaged file lacks
                found += [hit.transition for hit in store.search(HybridQuery("tool_1 7 xxx"))]
    except StoreError as error:
        named = str(error).startswith(f"{path}: ") and "\n" not in str(error)
        return "named" if named else "unnamed"
    except Exception as error:
        return f"traceback {type(error).__name__}"
    return "read" if all(row in ROWS for row in found) else "wrong"


@pytest.mark.slow
def test_five_hundred_damaged_files_are_named_or_read_and_left_as_they_were(
    tmp_path: Path, healthy: bytes
) -> None:
    outcomes = count_outcomes(tmp_path, healthy, 500, seed=1)
    assert set(outcomes) == {"named", "read"}
    assert min(outcomes.values()) > 50


@pytest.mark.nightly
@pytest.mark.slow
def test_four_thousand_damaged_files_are_named_or_read_and_left_as_they_were(
    tmp_path: Path, healthy: bytes
) -> None:
    assert set(count_outcomes(tmp_path, healthy, 4000, seed=2)) == {"named", "read"}


def test_an_error_that_is_not_turned_into_words_is_found_out(
    tmp_path: Path, healthy: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "named", lambda path: nullcontext())
    monkeypatch.setattr(sqlite_file, "named", lambda path: nullcontext())
    monkeypatch.setattr(sqlite_tables, "named", lambda path: nullcontext())
    assert any(outcome.startswith("traceback") for outcome in count_outcomes(tmp_path, healthy, 100, seed=1))


def refusal(path: Path, **options: bool) -> str:
    with pytest.raises(StoreError) as caught:
        SqliteStore(path, **options)
    return str(caught.value).removeprefix(f"{path}: ")


def test_a_text_file_is_refused(tmp_path: Path) -> None:
    (path := tmp_path / "notes.db").write_text("dear diary")
    assert refusal(path).startswith("is not a buffer (not an SQLite database); nothing was changed: ")
    assert path.read_text() == "dear diary"


@each_row("mode", ["delete", "wal"])
def test_a_database_of_somebody_else_is_refused_and_not_touched(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "app.db"
    with closing(sqlite3.connect(path)) as other:
        other.execute(f"pragma journal_mode = {mode}")
        other.execute("create table transitions (a)")
        other.commit()
        before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
        said = refusal(path)
        assert said == "is an SQLite database of another program; nothing was changed: choose another file"
        assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_a_store_that_opens_without_looking_first_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "app.db"
    with closing(sqlite3.connect(path)) as other:
        other.execute("create table transitions (a)")
    before = path.read_bytes()
    monkeypatch.setattr(sqlite, "is_new", lambda path: True)
    assert refusal(path)
    assert path.read_bytes() != before


def test_a_newer_buffer_is_refused_and_not_touched(tmp_path: Path, healthy: bytes) -> None:
    path = tmp_path / "newer.db"
    path.write_bytes(healthy[:60] + (9).to_bytes(4, "big") + healthy[64:])
    before = path.read_bytes()
    said = "was written by a newer dreamgym-kit (schema 9, this version reads 3); nothing was changed: "
    assert refusal(path) == f"{said}update dreamgym-kit"
    assert path.read_bytes() == before


def test_a_folder_a_pipe_and_a_lost_folder_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert refusal(tmp_path) == "is a folder; a buffer is a file: choose one"
    assert refusal(tmp_path / "pipe") == "is not a regular file; a buffer is a file: choose one"
    assert refusal(tmp_path / "no" / "b.db") == "its folder does not exist; create it first"
    why = refusal(tmp_path / "b\x00.db")  # Python 3.13 has other words
    assert re.fullmatch(r"cannot be read \(.*embedded null.*\); nothing was changed", why)
    assert refusal(tmp_path / ("b" * 300)) == "cannot be read (File name too long); nothing was changed"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["pipe"]


def test_reading_what_is_not_there_makes_nothing(tmp_path: Path) -> None:
    assert refusal(tmp_path / "b.db", read_only=True) == "the buffer does not exist; record or import first"
    assert list(tmp_path.iterdir()) == []
