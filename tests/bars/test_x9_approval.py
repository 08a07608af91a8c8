"""Bar X9: no real write runs that nobody approved; the audit log breaks visibly at every altered byte.

The ways to get one through are those of the bench `approval`, each tried once; and a planted fault is found.
"""

import importlib
import os
import random
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from each_row import each_row

from dreamgym_kit.adapters.langgraph.intercept.install import uninstall
from dreamgym_kit.errors import UserError
from dreamgym_kit.supervision import overseer
from dreamgym_kit.supervision.audit import CLOSED, AuditLog, verify

BENCH = Path(__file__).parents[1] / "bench"


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCH))
    sys.modules.pop("approval", None)
    yield importlib.import_module("approval")
    sys.modules.pop("approval", None)
    uninstall()


@pytest.mark.slow
def test_x9_no_write_runs_that_nobody_approved(ways: ModuleType, tmp_path: Path) -> None:
    books = ways.Books()
    for place, way in enumerate(ways.WAYS):
        way(books, tmp_path / f"{place}.jsonl", random.Random(place))
        assert books.unapproved == 0, way.__name__
    ways.two_processes(books, tmp_path / "two.jsonl")
    assert (books.unapproved, books.attempts > 30, books.ran.total() > 5) == (0, True, True)


@pytest.mark.slow
def test_x9_a_gate_that_does_not_look_at_the_digest_is_found(
    ways: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def planted(self: Any, held: Any) -> Any:
        return held.digest
        yield

    monkeypatch.setattr(overseer._RealCall, "_approval", planted)
    books = ways.Books()
    ways.another_call_with_the_same_id(books, tmp_path / "audit.jsonl", random.Random(0))
    assert books.unapproved == 2


def written(path: Path) -> bytes:
    log = AuditLog(path)
    log.append("begun", stage="approve")
    log.append("call", tool="pay", args={"payment": "P1", "text": 'a "quoted" \\ word'})
    log.append(CLOSED, real_calls=1)
    log.close()
    return path.read_bytes()


def test_x9_every_altered_byte_of_the_log_is_found(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    content = written(path)
    assert verify(path).whole
    for place in range(len(content)):
        altered = bytearray(content)
        altered[place] ^= 1 << (place % 8)
        path.write_bytes(bytes(altered))
        assert not verify(path).whole, place


def test_x9_every_missing_added_or_moved_line_is_found(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    first, second, third = written(path).splitlines(keepends=True)
    head = verify(path).head
    for lines in (
        [second, third],
        [first, third],
        [first, first, second, third],
        [second, first, third],
        [first, second, third, third],
        [first, second, third, b"\n"],
        [b"\n", first, second, third],
    ):
        path.write_bytes(b"".join(lines))
        assert not verify(path).whole
    path.write_bytes(
        first + second
    )  # the end cut off: in itself whole, and told apart by what was kept elsewhere
    assert (verify(path).whole, verify(path).closed) == (True, False)
    assert not verify(path, head=head).whole
    path.write_bytes(b"")
    assert not verify(path).whole


@each_row("what", ["moved", "replaced", "cut", "written to"])
def test_x9_a_log_that_is_taken_away_while_it_is_written_takes_no_more(tmp_path: Path, what: str) -> None:
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path)
    log.append("begun", stage="live")
    if what in ("moved", "replaced"):
        path.rename(tmp_path / "kept.jsonl")
    if what == "replaced":
        path.write_bytes((tmp_path / "kept.jsonl").read_bytes())
    if what == "cut":
        os.truncate(path, 0)
    if what == "written to":
        with path.open("ab") as file:
            file.write(b"\n")
    for _ in range(2):
        with pytest.raises(UserError):
            log.append("call", tool="pay")
    log.close()
    assert b"pay" not in b"".join(one.read_bytes() for one in tmp_path.iterdir())


def test_x9_nothing_runs_on_a_log_that_was_edited(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    content = written(path)
    path.write_bytes(content.replace(b"P1", b"P2"))
    with pytest.raises(UserError, match=r"line 2 was altered. Nothing real runs on a log that is not whole"):
        AuditLog(path)


def test_x9_what_a_killed_process_left_half_written_is_cut_off_and_told(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    content = written(path)
    path.write_bytes(content + b'{"audit":1,"n":4,"prev":"ab')
    assert not verify(path).whole
    log = AuditLog(path)
    log.close()
    checked = verify(path)
    assert (checked.whole, checked.entries, checked.closed) == (True, 4, False)
    assert b'"kind":"torn"' in path.read_bytes()


def test_x9_the_command_says_whether_a_log_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    content = written(path)

    def asked(*more: str) -> subprocess.CompletedProcess[str]:
        command = str(Path(sys.executable).with_name("dreamgym-kit"))
        return subprocess.run(
            [command, "s2r", "verify", str(tmp_path), *more],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "COLUMNS": "200"},
        )

    good = asked("--head", verify(path).head)
    assert (good.returncode, good.stdout.startswith(" WHOLE  3 lines")) == (0, True)
    assert asked("--head", "0" * 64).returncode == 1
    part = asked("--head", verify(path).head[:8])
    assert (part.returncode, "expected all 64 characters" in part.stderr) == (2, True)
    path.write_bytes(content.replace(b"pay", b"pau"))
    bad = asked()
    assert (bad.returncode, "NOT WHOLE" in bad.stdout, "line 2 was altered" in bad.stdout) == (1, True, True)
