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
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from dreamgym_kit.adapters.stores.sqlite import SqliteStore

RECORDER = Path(__file__).parents[1] / "bench" / "acks.py"
WHOLE = ("", "-wal", "-shm")
COPIES_PER_BUFFER = 20


def lost_in_copies(folder: Path, copies: int, *, seed: int, parts: Sequence[str] = WHOLE) -> int:
    """Acknowledged transitions that are missing, over copies taken at random moments of writing."""
    chance = random.Random(seed)
    lost = hot = acknowledged = 0
    for first in range(0, copies, COPIES_PER_BUFFER):
        buffer, acks = folder / f"{first}.db", folder / f"{first}.acks"
        command = [sys.executable, str(RECORDER), str(buffer), str(acks), str(seed + first), "SqliteStore"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as recorder:
            while not acks.exists() or not acks.stat().st_size:
                assert recorder.poll() is None
                time.sleep(0.005)
            for number in range(first, min(first + COPIES_PER_BUFFER, copies)):
                time.sleep(chance.uniform(0, 0.03))
                recorder.send_signal(signal.SIGSTOP)
                os.waitpid(recorder.pid, os.WUNTRACED)
                promised = {line.rstrip() for line in acks.read_text().split("\n")[:-1]}
                copy = folder / f"copy-{number}.db"
                for part in parts:
                    shutil.copy(f"{buffer}{part}", f"{copy}{part}")
                hot += Path(f"{buffer}-wal").stat().st_size > 0
                with closing(SqliteStore(copy)) as store:
                    lost += len(promised - {transition.id for transition in store.scan()})
                acknowledged += len(promised)
                recorder.send_signal(signal.SIGCONT)
            recorder.kill()
    print(f"S3 copies {copies} hot {hot} acknowledged {acknowledged} lost {lost}")
    assert hot == copies
    return lost


def test_fifteen_crash_copies_hold_all_that_was_acknowledged(tmp_path: Path) -> None:
    assert lost_in_copies(tmp_path, 15, seed=1) == 0


@pytest.mark.slow
def test_a_hundred_crash_copies_hold_all_that_was_acknowledged(tmp_path: Path) -> None:
    assert lost_in_copies(tmp_path, 100, seed=2) == 0


def test_without_the_shared_index_nothing_is_lost_either(tmp_path: Path) -> None:
    assert lost_in_copies(tmp_path, 5, seed=3, parts=("", "-wal")) == 0


def test_a_copy_that_forgets_the_log_is_found_out(tmp_path: Path) -> None:
    assert lost_in_copies(tmp_path, 5, seed=4, parts=("",)) > 0
