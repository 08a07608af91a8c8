"""JSON lines in and out: what can be read is kept, what cannot is named, a file is whole or absent."""

import gzip
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from each_row import each_row

from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.errors import StoreError, UserError
from dreamgym_kit.replay.records import dump_transition
from dreamgym_kit.replay.transfer import ImportReport, export_jsonl, import_jsonl
from dreamgym_kit.types import Answer, Call, Effect, Transition


def seen(step: int, note: str = "ok") -> Transition:
    return Transition(Call("get", {"id": 1}), Answer(note), Effect.READ, "t.1", step)


def line(step: int, note: str = "ok") -> bytes:
    return dump_transition(seen(step, note)).encode() + b"\n"


def imported(path: Path, data: bytes) -> tuple[ImportReport, list[int]]:
    path.write_bytes(data)
    store = MemoryStore()
    return import_jsonl(path, store), [row.step for row in store.scan()]


def test_bad_lines_are_named_and_the_rows_before_and_after_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    data = line(1) + b"{oops\n" + b'{"schema":1}\n' + b"\xff\xfe{}\n" + b"[]\n\n" + line(2) + line(1)
    report, steps = imported(path, data)
    assert steps == [1, 2]
    assert (report.read, report.new, report.duplicates, report.unread) == (3, 2, 1, 4)
    assert report.problems == (
        f"{path}:2: Expecting property name enclosed in double quotes at column 2",
        f"{path}:3: call: missing",
        f"{path}:4: not UTF-8 at byte 0",
        f"{path}:5: a transition: expected an object, got a list",
    )


def test_twenty_problems_are_listed_and_the_rest_is_counted(tmp_path: Path) -> None:
    report, steps = imported(tmp_path / "rows.jsonl", b"x\n" * 30 + line(1))
    assert (len(report.problems), report.unread, report.new, steps) == (20, 30, 1, [1])


@each_row(
    ("data", "steps"),
    [
        (b"", []),
        (b"\n\r\n  \n", []),
        (b"\xef\xbb\xbf" + line(1), [1]),
        (b"\xef\xbb\xbf", []),
        (line(1).replace(b"\n", b"\r\n") + line(2), [1, 2]),
        (line(1) + line(2).rstrip(b"\n"), [1, 2]),
        (line(1, "\u2028 é").replace(b"\\u2028", "\u2028".encode()), [1]),
    ],
    ids=["empty", "blank", "bom", "only bom", "crlf", "no last line end", "line separator"],
)
def test_every_usual_form_of_text_file_is_read(tmp_path: Path, data: bytes, steps: list[int]) -> None:
    report, found = imported(tmp_path / "rows.jsonl", data)
    assert (report.problems, found) == ((), steps)


def test_a_half_written_last_line_is_named_and_the_rest_kept(tmp_path: Path) -> None:
    whole = line(1) + line(2)
    for cut in range(len(line(1)) + 1, len(whole) - 1, 7):
        report, steps = imported(tmp_path / "rows.jsonl", whole[:cut])
        assert (steps, report.unread) == ([1], 1)


def test_utf_16_is_named_once_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    report, _ = imported(path, (line(1) * 50).decode().encode("utf-16"))
    assert report.problems == (f"{path}:1: UTF-16 text; save the file as UTF-8",)


@each_row("name", ["absent.jsonl", "", "b\x00.jsonl", "x" * 300])
def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match=r": cannot be read \(.*\); 0 transitions were kept$"):
        import_jsonl(tmp_path / name, MemoryStore())


class FullAfterOneBatchDouble(MemoryStore):
    def put(self, transitions: Sequence[Transition]) -> int:
        if self.count():
            raise StoreError("b.db: the disk is full")
        return super().put(transitions)


def test_a_store_that_fails_half_way_says_how_much_it_has(tmp_path: Path) -> None:
    (path := tmp_path / "rows.jsonl").write_bytes(b"".join(line(step) for step in range(1, 1001)))
    store = FullAfterOneBatchDouble()
    with pytest.raises(StoreError) as caught:
        import_jsonl(path, store)
    kept = f"(500 transitions of {path} are in it; import again for the rest)"
    assert str(caught.value) == f"b.db: the disk is full {kept}"
    assert store.count() == 500


def filled(*steps: int) -> MemoryStore:
    store = MemoryStore()
    store.put([seen(step) for step in steps])
    return store


def test_an_export_does_not_replace_a_file_unless_told(tmp_path: Path) -> None:
    (path := tmp_path / "rows.jsonl").write_text("mine")
    with pytest.raises(
        UserError, match=r"rows\.jsonl: exists already, nothing was exported; name another one"
    ):
        export_jsonl(filled(1), path)
    assert path.read_text() == "mine"
    assert export_jsonl(filled(1), path, overwrite=True) == 1
    assert path.read_bytes() == line(1)


class BreaksHalfWayDouble(MemoryStore):
    def scan(self, **_: object) -> Iterator[Transition]:
        yield seen(1)
        raise StoreError("b.db: is damaged")


def test_an_export_never_replaces_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises(UserError, match=f"{name}: is no plain file; nothing was exported: name a file"):
            export_jsonl(MemoryStore(), tmp_path / name, overwrite=True)
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "pipe"]


def test_an_export_that_fails_leaves_no_file_and_no_leftovers(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="damaged"):
        export_jsonl(BreaksHalfWayDouble(), tmp_path / "rows.jsonl")
    assert list(tmp_path.iterdir()) == []


class MeanwhileDouble(MemoryStore):
    """Somebody else writes the file while it is exported."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def scan(self, **_: object) -> Iterator[Transition]:
        self._path.write_text("theirs")
        yield seen(1)


def test_a_file_that_came_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    with pytest.raises(UserError, match="exists already"):
        export_jsonl(MeanwhileDouble(path), path)
    assert path.read_text() == "theirs"
    assert list(tmp_path.iterdir()) == [path]


@each_row("name", ["absent/rows.jsonl", "b\x00.jsonl", "x" * 300])
def test_an_export_that_cannot_be_written_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match=r": cannot be written \(.*\); nothing was exported$"):
        export_jsonl(filled(1), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_an_exported_file_has_the_usual_rights(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        export_jsonl(filled(1), tmp_path / "rows.jsonl")
    finally:
        os.umask(old)
    assert (tmp_path / "rows.jsonl").stat().st_mode & 0o777 == 0o640


def keys(number: int) -> bytes:
    return b",".join(b'"k%d":1' % key for key in range(number))


def rich(args: bytes) -> bytes:
    return line(3).replace(b'{"id":1}', args).replace(f'"id":"{seen(3).id}",'.encode(), b"")


IMPORT = """
import sys
from pathlib import Path
from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.replay.transfer import import_jsonl
report = import_jsonl(Path(sys.argv[1]), MemoryStore())
status = Path("/proc/self/status").read_text()
peak = int(status.split("VmHWM:")[1].split()[0]) // 1024
print(report.new, peak, report.problems)
"""


BOMBS: dict[str, Callable[[], bytes]] = {
    "one endless line": lambda: b'"' + b"a" * (120 * 2**20) + b"\n",
    "nested deep": lambda: b"[" * 10_000 + b"]" * 10_000 + b"\n",
    "a million keys": lambda: b"{" + keys(10**6) + b"}\n",
    "a line of objects": lambda: b"[" + b"{}," * (10 * 2**20) + b"{}]\n",
    "three million empty lines": lambda: b"\n" * 3_000_000,
    "all that is allowed": lambda: rich(b"{" + keys(499_900) + b"}"),
    "packed": lambda: gzip.compress(bytes(10**7)) + b"\n",
}
QUICK = ("nested deep", "packed")
READ = {"three million empty lines": 2, "all that is allowed": 3}  # the others are named


@pytest.mark.slow
@pytest.mark.parametrize(
    "bomb", [*QUICK, *(pytest.param(bomb, marks=pytest.mark.nightly) for bomb in BOMBS if bomb not in QUICK)]
)
def test_a_bomb_is_named_in_little_memory_and_its_neighbours_are_kept(tmp_path: Path, bomb: str) -> None:
    (path := tmp_path / "rows.jsonl").write_bytes(line(1) + BOMBS[bomb]() + line(2))
    command = [sys.executable, "-c", IMPORT, str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stderr == ""
    new, peak, problems = done.stdout.split(" ", 2)
    print(f"X7 {bomb}: {peak} MB, {problems[:150].strip()}")
    assert int(peak) < 300
    assert int(new) == READ.get(bomb, 2)
    assert (f"{path}:2: " in problems) == (bomb not in READ)
