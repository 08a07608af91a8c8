"""Files of a run directory: whole lines in order, a torn last one read by nobody, and locks of one owner."""

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from each_row import each_row
from hypothesis import given, settings
from hypothesis import strategies as st

from dreamgym_kit.errors import NotSerializable, RunDirectoryError
from dreamgym_kit.rollout.atomic_files import RunLock, locked, take_lock
from dreamgym_kit.rollout.line_log import LineLog, append_lines, read_lines, read_records


@settings(max_examples=60, derandomize=True, deadline=None)
@given(st.lists(st.binary(max_size=9).map(lambda line: line.replace(b"\n", b"") + b"\n")), st.data())
def test_any_prefix_is_read_up_to_its_last_whole_line_and_is_written_on_behind_it(
    lines: list[bytes], data: st.DataObject
) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        for line in lines:
            append_lines(path, line)
        assert b"".join(lines) == (path.read_bytes() if lines else b"")
        cut = data.draw(st.integers(0, len(b"".join(lines))))
        path.write_bytes(b"".join(lines)[:cut])
        whole = lines[: path.read_bytes().count(b"\n")]
        assert [line for _, line in read_lines(path)] == whole
        append_lines(path, b"more\n")
        assert path.read_bytes() == b"".join([*whole, b"more\n"])


def test_the_end_of_the_last_whole_line_is_found_behind_a_long_torn_one(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"one\n" + b"x" * 200_000)
    append_lines(tmp_path / "log", b"two\n")
    assert (tmp_path / "log").read_bytes() == b"one\ntwo\n"


def test_each_line_has_its_place_and_a_long_one_comes_in_pieces(tmp_path: Path) -> None:
    (path := tmp_path / "log").write_bytes(b"12345\n1\n12")
    assert list(read_lines(path, longest=4, torn=True)) == [
        (0, b"1234"),
        (4, b"5\n"),
        (6, b"1\n"),
        (8, b"12"),
    ]
    assert list(read_lines(path)) == [(0, b"12345\n"), (6, b"1\n")]
    assert list(read_lines(tmp_path / "none")) == []


@each_row("undo", [True, False])
def test_after_a_full_disk_nothing_more_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undo: bool
) -> None:
    write = os.write

    def full(descriptor: int, data: bytes) -> int:
        if data.startswith(b"t"):
            return write(descriptor, data[:1])
        raise OSError(errno.ENOSPC, "No space left on device")

    with LineLog(tmp_path / "log") as log:
        log.append(b"one\n")
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", full)
            with pytest.raises(RunDirectoryError, match="cannot be written"):
                log.append(b"two\n", undo=undo)
        with pytest.raises(RunDirectoryError, match="No space left on device"):
            log.append(b"three\n")
    assert (tmp_path / "log").read_bytes() == (b"one\n" if undo else b"one\nt")


def test_links_are_refused(tmp_path: Path) -> None:
    (tmp_path / "log").symlink_to(tmp_path / "elsewhere")
    for use in (LineLog, lambda path: list(read_lines(path))):
        with pytest.raises(RunDirectoryError, match="is a link"):
            use(tmp_path / "log")


def test_a_line_that_is_no_record_is_named(tmp_path: Path) -> None:
    def even(value: object) -> object:
        if value == 3:
            raise NotSerializable("odd")
        return value

    (path := tmp_path / "log").write_bytes(b"2\n3\n4")
    records = read_records(path, even, "is wrong: {}.")
    assert next(records) == 2
    with pytest.raises(RunDirectoryError, match=r"log:2: is wrong: odd\."):
        next(records)


HOLD = """
import sys
import threading
from pathlib import Path
from dreamgym_kit.rollout.atomic_files import RunLock
lock = RunLock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def test_it_is_free_after_release(tmp_path: Path) -> None:
    lock = RunLock(tmp_path / "lock")
    lock.close()
    lock.close()
    RunLock(tmp_path / "lock").close()


def test_the_lock_of_a_killed_owner_is_free_at_once(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout.readline() == "held\n"
        with pytest.raises(RunDirectoryError, match=f"in use by process {owner.pid} on "):
            RunLock(tmp_path / "lock")
        owner.kill()
        owner.wait()
        RunLock(tmp_path / "lock").close()


@each_row("content", ["", "{", "[]", '{"pid": "x"}', "\0" * 5000])
def test_an_owner_that_did_not_sign_is_still_an_owner(tmp_path: Path, content: str) -> None:
    with RunLock(tmp_path / "lock"):
        (tmp_path / "lock").write_text(content)
        with pytest.raises(RunDirectoryError, match="in use by another process; wait"):
            RunLock(tmp_path / "lock")


@each_row("name", ["lock", "."])
def test_a_file_or_folder_is_held_for_the_block_and_waited_for(tmp_path: Path, name: str) -> None:
    taken = threading.Event()

    def wait() -> None:
        with locked(tmp_path / name):
            taken.set()

    waiting = threading.Thread(target=wait)
    with locked(tmp_path / name):
        waiting.start()
        other = os.open(tmp_path / name, os.O_RDONLY)
        assert not take_lock(tmp_path / name, other)
        assert not taken.is_set()
    os.close(other)
    waiting.join()
    assert taken.is_set()
