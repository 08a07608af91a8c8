"""What the SQLite store promises beyond the port: sharing, reading only, full disks, threads, power cuts."""

import os
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from dreamgym_kit.adapters.stores.sqlite import SqliteStore
from dreamgym_kit.errors import StoreError
from dreamgym_kit.types import Answer, Call, Effect, Environment, Transition

NOBODY = 65534


def seen(step: int, *, note: str = "ok") -> Transition:
    return Transition(
        Call("get", {"id": 1}), Answer(note), Effect.READ, "t.1", step, environment=Environment("shop")
    )


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that every user can reach, unlike `tmp_path`."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        path.chmod(0o755)
        yield path
        path.chmod(0o755)


def as_nobody(folder: Path, act: Callable[[], str]) -> str:
    """Run `act` inside `folder` as a user who owns nothing; root may write anywhere."""
    if os.geteuid() != 0:
        here = Path.cwd()
        os.chdir(folder)
        try:
            return act()
        finally:
            os.chdir(here)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.chdir(folder)
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            os.write(writing, act().encode())
        except BaseException as error:
            os.write(writing, f"raised {error!r}".encode())
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with open(reading, "rb") as pipe:
        return pipe.read().decode()


def outcome(act: Callable[[], object]) -> str:
    try:
        return str(act())
    except StoreError as error:
        return f"refused: {error}"


def test_an_empty_file_becomes_a_buffer(tmp_path: Path) -> None:
    (tmp_path / "b.db").touch()
    with closing(SqliteStore(tmp_path / "b.db")) as store:
        assert store.put([seen(1)]) == 1


def test_a_name_with_every_sign_of_a_web_address_is_a_file_name(tmp_path: Path) -> None:
    path = tmp_path / "b?mode=memory&x=%41#é .db"
    with closing(SqliteStore(path)) as store:
        store.put([seen(1)])
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_a_reader_does_not_wait_for_a_writer_in_the_middle_of_a_write(tmp_path: Path) -> None:
    with (
        closing(SqliteStore(tmp_path / "b.db")) as store,
        closing(sqlite3.connect(tmp_path / "b.db")) as other,
    ):
        store.put([seen(1)])
        other.isolation_level = None
        other.execute("begin immediate")
        other.execute("delete from transitions")
        assert list(store.scan()) == [seen(1)]
        with closing(SqliteStore(tmp_path / "b.db", read_only=True)) as second:
            assert second.count() == 1
        other.execute("rollback")


def test_a_store_that_was_opened_to_read_refuses_to_put(tmp_path: Path) -> None:
    SqliteStore(tmp_path / "b.db").close()
    with closing(SqliteStore(tmp_path / "b.db", read_only=True)) as store:
        with pytest.raises(
            StoreError, match=r"b\.db: was opened read-only; open it without read_only to add to it$"
        ):
            store.put([seen(1)])
        assert store.count() == 0


def test_a_read_only_file_is_named_and_can_be_read_when_that_is_asked_for(shared: Path) -> None:
    with closing(SqliteStore(shared / "b.db")) as store:
        store.put([seen(1)])
    (shared / "b.db").chmod(0o444)
    shared.chmod(0o555)

    def put() -> int:
        with closing(SqliteStore("b.db")) as store:
            return store.put([seen(2)])

    def read() -> int:
        with closing(SqliteStore("b.db", read_only=True)) as store:
            return len(list(store.scan()))

    said = as_nobody(shared, lambda: outcome(put))
    tested = as_nobody(shared, lambda: outcome(read))
    assert said == (
        "refused: b.db: cannot be written: it or its folder is read-only; to read it, pass read_only=True"
    )
    assert tested == "1"
    assert [file.name for file in shared.iterdir()] == ["b.db"]


def test_a_file_that_may_not_be_read_is_named(shared: Path) -> None:
    SqliteStore(shared / "b.db").close()
    (shared / "b.db").chmod(0)
    shared.chmod(0o755)
    said = as_nobody(shared, lambda: outcome(lambda: SqliteStore("b.db")))
    assert said == "refused: b.db: cannot be read (Permission denied); nothing was changed"


def test_a_full_disk_is_named_and_what_was_acknowledged_stays(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path / "b.db")) as store:
        store.put([seen(1)])
        writer = store._open_writer()
        (pages,) = writer.execute("pragma page_count").fetchone()
        writer.execute(f"pragma max_page_count = {pages + 8}")  # SQLite answers as on a full disk
        with pytest.raises(StoreError, match=r"b\.db: could not grow: the disk is full; acknowledged"):
            store.put([seen(step, note="x" * 10_000) for step in range(2, 20)])
        assert list(store.scan()) == [seen(1)]
        assert store.put([seen(2)]) == 1


def test_many_threads_may_share_a_store(tmp_path: Path) -> None:
    failed: list[BaseException] = []

    def work(store: SqliteStore, first: int) -> None:
        try:
            for step in range(first, first + 25):
                store.put([seen(step)])
                assert store.exact("get", seen(step).call.key, Environment("shop"))
        except BaseException as error:
            failed.append(error)

    with closing(SqliteStore(tmp_path / "b.db", lock_wait_s=60)) as store:
        threads = [threading.Thread(target=work, args=(store, 1 + 25 * number)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failed == []
        assert store.count() == 200
        assert len({row.id for row in store.scan()}) == 200


@pytest.mark.parametrize(("careful", "level"), [(False, 1), (True, 2)])
def test_a_put_waits_for_the_disk_only_when_a_power_cut_is_to_be_survived(
    tmp_path: Path, careful: bool, level: int
) -> None:
    with closing(SqliteStore(tmp_path / "b.db", survive_power_cut=careful)) as store:
        store.put([seen(1)])
        assert store._open_writer().execute("pragma synchronous").fetchone() == (level,)
        assert store._open_writer().execute("pragma journal_mode").fetchone() == ("wal",)


def test_what_the_file_says_is_compared_with_what_was_asked(tmp_path: Path) -> None:
    path = tmp_path / "b.db"
    with closing(SqliteStore(path)) as store:
        store.put([seen(1)])
    with closing(sqlite3.connect(path)) as other:
        other.execute("update transitions set tenant = 'victim'")
        other.commit()
    with closing(SqliteStore(path)) as store, pytest.raises(StoreError) as caught:
        assert store.exact("get", seen(1).call.key, Environment("shop"), tenant="victim") == []
        list(store.scan(tenant="victim"))
    assert str(caught.value) == (
        f"{path}: is damaged (row 1: its columns differ from its content); "
        "nothing was changed: import your last export into a new buffer"
    )


def hot_journal(page_size: int = 4096) -> bytes:
    """What a process killed while it committed into an empty database leaves beside it.

    By https://www.sqlite.org/fileformat2.html#the_rollback_journal: no page to put back, no pages before.
    """
    magic = bytes.fromhex("d9d505f920a163d7")
    numbers = (0, 7, 0, 512, page_size)  # records, nonce, pages before, sector size, page size
    return (magic + b"".join(number.to_bytes(4, "big") for number in numbers)).ljust(512, b"\0")


def test_a_process_killed_as_it_made_the_buffer_leaves_a_place_for_one(tmp_path: Path) -> None:
    path = tmp_path / "b.db"
    SqliteStore(path).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("pragma journal_mode = delete")  # the log ahead is switched on only afterwards
    (tmp_path / "b.db-journal").write_bytes(hot_journal())
    store = SqliteStore(path)
    assert store.put([seen(1)]) == 1
    assert [row.step for row in store.scan()] == [1]
    store.close()


def test_a_buffer_with_a_write_to_take_back_is_not_read_as_it_lies(shared: Path) -> None:
    SqliteStore(shared / "b.db").close()
    (shared / "b.db-journal").write_bytes(hot_journal())
    shared.chmod(0o555)

    def read() -> str:
        try:
            SqliteStore("b.db", read_only=True)
        except StoreError as error:
            return str(error)
        return "was read"

    assert as_nobody(shared, read).startswith("b.db: cannot be ")


@pytest.mark.parametrize(
    ("planted", "told"),
    [
        (
            "create trigger eat after insert on gone begin delete from transitions; end",
            "trigger 'eat'",
        ),
        ("create view shown as select * from transitions", "view 'shown'"),
    ],
)
@pytest.mark.parametrize("read_only", [True, False])
def test_a_buffer_with_triggers_or_views_is_refused(
    tmp_path: Path, planted: str, told: str, read_only: bool
) -> None:
    path = tmp_path / "b.db"
    with closing(SqliteStore(path)) as store:
        store.put([seen(1)])
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(planted)
        connection.commit()
    with pytest.raises(StoreError, match=f"has a {told} that dreamgym-kit did not create"):
        SqliteStore(path, read_only=read_only)


def test_a_trigger_that_is_planted_while_the_buffer_is_open_eats_nothing(tmp_path: Path) -> None:
    path = tmp_path / "b.db"
    with closing(SqliteStore(path)) as made:
        made.put([seen(1)])
    with closing(SqliteStore(path)) as store:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("create trigger eat after insert on transitions begin select 1; end")
            connection.commit()
        with pytest.raises(StoreError, match="did not create"):
            store.put([seen(2)])
