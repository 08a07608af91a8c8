"""The lock of a run directory: one owner, named; free the moment it dies."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from each_row import each_row

from dreamgym_kit.errors import RunDirectoryError
from dreamgym_kit.rollout.atomic_files import RunLock, locked, take_lock

HOLD = """
import sys
import threading
from pathlib import Path
from dreamgym_kit.rollout.atomic_files import RunLock
lock = RunLock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def test_a_second_owner_is_told_who_holds_it(tmp_path: Path) -> None:
    with RunLock(tmp_path / "lock"), pytest.raises(RunDirectoryError) as caught:
        RunLock(tmp_path / "lock")
    message = str(caught.value)
    assert message.startswith(f"{tmp_path}: in use by process {os.getpid()} on ")
    assert message.endswith("; wait for it to end, or stop it.")


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


def test_what_a_dead_owner_left_in_the_file_locks_nobody_out(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text('{"pid": 1, "host": "here", "since": "ever"}' * 100)
    with (
        RunLock(tmp_path / "lock"),
        pytest.raises(RunDirectoryError, match=f"in use by process {os.getpid()} on "),
    ):
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
