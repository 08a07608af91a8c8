"""Bar S3: the files of a buffer as a crash leaves them, at any moment of writing, are a whole buffer.

The recorder is stopped (SIGSTOP) while its files are copied: that is what a crash leaves. Copying the
files of a recorder that goes on is no crash and no backup; `buffer export` is.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from waiting import wait_until

from dreamgym_kit.adapters.stores.sqlite import SqliteStore
from dreamgym_kit.errors import StoreError

RECORDER = Path(__file__).parents[1] / "bench" / "acks.py"
WHOLE = ("", "-wal", "-shm")
COPIES_PER_BUFFER = 20


@contextmanager
def recording(buffer: Path, acks: Path, seed: int) -> Iterator[subprocess.Popen[bytes]]:
    """A process that records all through the block, and has acknowledged something."""
    command = [sys.executable, str(RECORDER), str(buffer), str(acks), str(seed), "SqliteStore"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as recorder:
        try:
            wait_until(lambda: acks.exists() and acks.stat().st_size, "the first acknowledgement")
            yield recorder
        finally:
            recorder.kill()


def ids_in(copy: Path) -> set[str]:
    """None in what is no whole buffer: a file without its log, copied while the log was copied back."""
    try:
        with closing(SqliteStore(copy)) as store:
            return {transition.id for transition in store.scan()}
    except StoreError as error:
        print(f"S3 {error}")
        return set()


def lost_in_copies(folder: Path, copies: int, *, seed: int, parts: Sequence[str] = WHOLE) -> int:
    """Acknowledged transitions that are missing, over copies taken at random moments of writing."""
    chance = random.Random(seed)
    lost = hot = acknowledged = 0
    for first in range(0, copies, COPIES_PER_BUFFER):
        buffer, acks = folder / f"{first}.db", folder / f"{first}.acks"
        with recording(buffer, acks, seed + first) as recorder:
            for number in range(first, min(first + COPIES_PER_BUFFER, copies)):
                time.sleep(chance.uniform(0, 0.03))
                recorder.send_signal(signal.SIGSTOP)
                os.waitpid(recorder.pid, os.WUNTRACED)
                promised = {line.rstrip() for line in acks.read_text().split("\n")[:-1]}
                copy = folder / f"copy-{number}.db"
                for part in parts:
                    shutil.copy(f"{buffer}{part}", f"{copy}{part}")
                hot += Path(f"{buffer}-wal").stat().st_size > 0
                lost += len(promised - ids_in(copy))
                acknowledged += len(promised)
                recorder.send_signal(signal.SIGCONT)
    print(f"S3 copies {copies} hot {hot} acknowledged {acknowledged} lost {lost}")
    assert hot == copies
    return lost


def test_fifteen_crash_copies_hold_all_that_was_acknowledged(tmp_path: Path) -> None:
    assert lost_in_copies(tmp_path, 15, seed=1) == 0


@pytest.mark.nightly
def test_a_hundred_crash_copies_hold_all_that_was_acknowledged(tmp_path: Path) -> None:
    assert lost_in_copies(tmp_path, 100, seed=2) == 0


def test_without_the_shared_index_nothing_is_lost_either(tmp_path: Path) -> None:
    assert lost_in_copies(tmp_path, 5, seed=3, parts=("", "-wal")) == 0


def test_a_copy_that_forgets_the_log_is_found_out(tmp_path: Path) -> None:
    assert lost_in_copies(tmp_path, 5, seed=4, parts=("",)) > 0
