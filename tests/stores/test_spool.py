"""The file in which rows wait for a server: nothing of it is lost, doubled or overtaken."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from away_double import AwayServerDouble, AwayStoreDouble, Fault, seen

from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.adapters.stores.outbox import Delivered, Outbox
from dreamgym_kit.errors import RunDirectoryError, StoreError, StoreUnavailable
from dreamgym_kit.replay.transfer import import_jsonl
from dreamgym_kit.rollout.atomic_files import RunLock


@pytest.fixture
def spool(tmp_path: Path) -> Outbox:
    return Outbox(tmp_path / "runs" / ".spool" / "weaviate-h-1.jsonl")


def test_what_waits_is_delivered_in_order_and_then_waits_no_more(spool: Outbox) -> None:
    assert not spool.waits()
    spool.add([seen(2), seen(1)])
    spool.add([seen(3)])
    assert (spool.waits(), len(spool.ids())) == (True, 3)
    store = MemoryStore()
    store.put([seen(1)])
    told: list[int] = []
    assert spool.deliver(store, told.append) == Delivered(sent=3, new=2)
    assert [row.step for row in store.scan()] == [1, 2, 3]
    assert told[-1] == 3
    assert (spool.waits(), spool.path.exists()) == (False, False)
    assert spool.deliver(store) == Delivered()


def test_what_waits_can_be_imported_too(spool: Outbox) -> None:
    spool.add([seen(1), seen(2)])
    store = MemoryStore()
    assert import_jsonl(spool.path, store).new == 2


def test_what_a_server_acknowledged_is_not_sent_again_and_the_rest_waits(
    spool: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dreamgym_kit.adapters.stores.outbox._BATCH_ROWS", 2)
    spool.add([seen(step) for step in range(1, 7)])
    server = AwayServerDouble([Fault.NONE, Fault.NONE, Fault.HALF])
    with pytest.raises(StoreUnavailable):
        spool.deliver(AwayStoreDouble(server))
    assert spool.ids() == {seen(step).id for step in (3, 4, 5, 6)}
    assert spool.deliver(AwayStoreDouble(server)) == Delivered(sent=4, new=3)
    assert [row.step for row in server.rows()] == [1, 2, 3, 4, 5, 6]


def test_rows_added_while_others_are_delivered_stay(spool: Outbox) -> None:
    spool.add([seen(1)])

    def meanwhile(_: int) -> None:
        if len(spool.ids()) == 1:
            spool.add([seen(2)])

    store = MemoryStore()
    assert spool.deliver(store, meanwhile).sent == 1
    assert spool.ids() == {seen(2).id}
    assert spool.deliver(store).sent == 1


def test_a_line_that_a_kill_left_half_goes_and_the_others_stay(spool: Outbox) -> None:
    spool.add([seen(1)])
    whole = spool.path.read_bytes()
    for cut in (1, len(whole) // 2, len(whole) - 1):
        spool.path.write_bytes(whole + whole[:cut])
        assert spool.ids() == {seen(1).id}
        spool.add([seen(2)])
        assert spool.path.read_bytes().count(b"\n") == 2
        assert spool.ids() == {seen(1).id, seen(2).id}
    spool.path.write_bytes(whole[:-1])  # nothing was ever acknowledged
    assert spool.deliver(MemoryStore()).sent == 0


def test_what_is_written_just_now_is_not_read_past(spool: Outbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first half is met at the file's end, its second half is there a moment later."""
    spool.add([seen(1), seen(2)])
    first, second = spool.path.read_bytes().splitlines(keepends=True)
    halves = [first, second[:20], second[20:]]
    opened = os.fdopen

    def growing(descriptor: int, mode: str, *given: Any, **named: Any) -> Any:
        file = opened(descriptor, mode, *given, **named)
        if mode != "rb":
            return file
        double = MagicMock(wraps=file)
        double.__enter__.return_value = double
        double.__exit__.side_effect = lambda *_: file.close()
        double.readline.side_effect = lambda _: halves.pop(0) if halves else b""
        return double

    monkeypatch.setattr(os, "fdopen", growing)
    assert [line.raw for line in spool._lines()] == [first]


def test_a_full_disk_keeps_what_waited_and_is_named(spool: Outbox, monkeypatch: pytest.MonkeyPatch) -> None:
    spool.add([seen(1)])
    before = spool.path.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(StoreError, match=r"cannot be written \(No space left on device\)"):
            spool.add([seen(2)])
    assert spool.path.read_bytes() == before


def test_a_link_in_its_place_is_refused(spool: Outbox, tmp_path: Path) -> None:
    spool.add([seen(1)])
    spool.path.unlink()
    spool.path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RunDirectoryError, match="is a link"):
        spool.add([seen(2)])
    assert not (tmp_path / "elsewhere").exists()


def test_two_do_not_deliver_at_once(spool: Outbox) -> None:
    spool.add([seen(1)])
    with RunLock(spool.path.with_suffix(".delivering")), pytest.raises(RunDirectoryError, match="in use by"):
        spool.deliver(MemoryStore())
    assert spool.deliver(MemoryStore()).sent == 1


KILLED = """
import os, sys
from pathlib import Path
from dreamgym_kit.adapters.stores.outbox import Outbox
from dreamgym_kit.adapters.stores.sqlite import SqliteStore

import dreamgym_kit.adapters.stores.outbox as module
module._BATCH_ROWS = 2
spool, store, batches = Outbox(Path(sys.argv[1])), SqliteStore(sys.argv[2]), int(sys.argv[3])

def heard(sent):
    if sent >= 2 * batches:
        os.kill(os.getpid(), 9)

spool.deliver(store, heard)
"""


@pytest.mark.parametrize("batches", [1, 3])
def test_a_delivery_killed_in_the_middle_is_repeated_without_doubling(
    spool: Outbox, tmp_path: Path, batches: int
) -> None:
    from dreamgym_kit.adapters.stores.sqlite import SqliteStore

    spool.add([seen(step) for step in range(1, 8)])
    command = [sys.executable, "-c", KILLED, str(spool.path), str(tmp_path / "b.db"), str(batches)]
    assert subprocess.run(command, capture_output=True).returncode == -9
    assert len(spool.ids()) == 7
    store = SqliteStore(tmp_path / "b.db")
    assert store.count() == 2 * batches
    assert spool.deliver(store) == Delivered(sent=7, new=7 - 2 * batches)
    assert [row.step for row in store.scan()] == [1, 2, 3, 4, 5, 6, 7]
    store.close()
