"""Bar S2: whichever write to the disk fails, a buffer holds all of a put or nothing, and says which file.

Two faults. A limit on the size of files, moved up by a part of a page until nothing fails any more: the
kernel first writes what still fits (a short write), then refuses, for the log, the table and its copy back.
And, where a C compiler is at hand, a layer under SQLite that fails the nth write, n = 1.. until none is left
to fail: once with EIO, from then on with ENOSPC, or half written and full from then on.
"""

import os
import re
import resource
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from bars.nth_write import NEW, OLD, AcknowledgesAnywayDouble, evict, put, row
from each_row import each_row

from dreamgym_kit.adapters.stores.sqlite import SqliteStore
from dreamgym_kit.errors import StoreError
from dreamgym_kit.interfaces import HybridQuery

STEP = 1500  # bytes; a page has 4096


def lie(path: Path) -> None:
    with closing(AcknowledgesAnywayDouble(path)) as store:
        store.put(NEW)


def with_files_of_at_most(size: int, act: Callable[[], None]) -> str:
    """Run `act` in a process whose files cannot grow beyond `size`; gives "done" or the error's text."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        said = "done"
        try:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
            act()
        except StoreError as error:
            said = f"refused: {error}"
        except BaseException as error:
            said = f"raised {error!r}"
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        said = pipe.read().decode()
    os.waitpid(child, 0)
    return said


def outcomes(folder: Path, act: Callable[[Path], None], before: list[int], after: list[int]) -> Counter[str]:
    """Move the limit up until the act is done twice in a row; count how the buffer was found each time."""
    counted: Counter[str] = Counter()
    clean, size = 0, 0
    while clean < 2:
        path = folder / f"{act.__name__}-{size}.db"
        with closing(SqliteStore(path)) as store:
            store.put(OLD)
        said = with_files_of_at_most(size, lambda path=path: act(path))
        counted[judged(path, said, before, after)] += 1
        clean = clean + 1 if said == "done" else 0
        size += STEP
    return counted


def judged(path: Path, said: str, before: list[int], after: list[int]) -> str:
    named = said == "done" or (said.startswith(f"refused: {path}: ") and "\n" not in said)
    if not named:
        return said
    with closing(SqliteStore(path)) as store:
        steps = [one.step for one in store.scan()]
        found = sorted(hit.transition.step for hit in store.search(HybridQuery("lamp", k=20)))
        if found != steps:
            return f"found {found} of {steps}"
        if steps not in (before, after) or (said == "done" and steps != after):
            return f"wrong rows after {said[:7]}: {steps}"
        store.put([row(99)])
        if [one.step for one in store.scan()] != [*steps, 99]:
            return "cannot be written any more"
    return "done" if said == "done" else "refused"


def test_a_put_is_all_there_or_not_at_all(tmp_path: Path) -> None:
    counted = outcomes(tmp_path, put, list(range(1, 6)), list(range(1, 12)))
    print(f"S2 put {dict(counted)}")
    assert set(counted) == {"refused", "done"}
    assert counted["refused"] > 10


@pytest.mark.slow
def test_an_eviction_is_all_done_or_not_at_all(tmp_path: Path) -> None:
    counted = outcomes(tmp_path, evict, list(range(1, 6)), [4, 5])
    print(f"S2 evict {dict(counted)}")
    assert set(counted) == {"refused", "done"}
    assert counted["refused"] > 10


def test_a_store_that_acknowledges_what_failed_is_found_out(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    path = tmp_path / "b" / "b.db"
    with closing(SqliteStore(path)) as store:
        store.put(OLD)
    said = with_files_of_at_most(40_000, lambda: lie(path))
    assert judged(path, said, list(range(1, 6)), list(range(1, 12))).startswith("wrong rows after done")


@pytest.fixture(scope="session")
def layer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The layer under SQLite that makes writes fail."""
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("wants a C compiler and Linux")
    library = tmp_path_factory.mktemp("layer") / "failing_writes.so"
    source = Path(__file__).with_name("failing_writes.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return library


def verdicts(layer: Path, folder: Path, act: str, stride: int) -> Counter[str]:
    """What was found after each write that failed, counted without which one it was."""
    program = Path(__file__).with_name("nth_write.py")
    done = subprocess.run(
        [sys.executable, str(program), str(folder), act, str(stride)],
        env=os.environ | {"LD_PRELOAD": str(layer)},
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
    print(f"S2 {act}, every {stride}: {len(done.stdout.splitlines())} failed writes")
    return Counter(re.sub(r" \d+ ", ": ", line, count=1) for line in done.stdout.splitlines())


FINE = {
    f"{how}: {found}" for how in ("EIO once", "disk full", "half written") for found in ("refused", "done")
}
ACTS = ("put", "put_again", "evict", "make", "export")


@each_row("act", ACTS)
def test_some_nth_write_fails_and_all_is_old_or_new(layer: Path, tmp_path: Path, act: str) -> None:
    found = verdicts(layer, tmp_path, act, 7)
    assert set(found) <= FINE
    assert sum(found[f"{how}: refused"] for how in ("disk full", "half written")) > 2


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("act", ACTS)
def test_every_nth_write_fails_and_all_is_old_or_new(layer: Path, tmp_path: Path, act: str) -> None:
    found = verdicts(layer, tmp_path, act, 1)
    assert set(found) <= FINE
    assert found.total() > 30


@pytest.mark.slow
@pytest.mark.parametrize(
    ("planted", "said"),
    [
        ("put_and_lie", "wrong rows after done: [1, 2, 3, 4, 5]"),
        ("export_in_place", "the old export is gone after refused"),
    ],
)
def test_a_planted_bug_is_found_by_the_nth_write(
    layer: Path, tmp_path: Path, planted: str, said: str
) -> None:
    found = verdicts(layer, tmp_path, planted, 2)
    assert found[f"disk full: {said}"] > 0
    assert found[f"EIO once: {said}"] > 0
