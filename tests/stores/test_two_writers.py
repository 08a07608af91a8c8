"""Two recording processes and a reader that follows them: each row is seen once, whole and in order."""

import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from dreamgym_kit.adapters.stores.sqlite import SqliteStore
from dreamgym_kit.interfaces import HybridQuery
from dreamgym_kit.types import Answer, Call, Effect, Transition

WRITER = """
import sys, time
from pathlib import Path
from dreamgym_kit.adapters.stores.sqlite import SqliteStore
from dreamgym_kit.types import Answer, Call, Effect, Transition

store = SqliteStore(sys.argv[1], lock_wait_s=60)
seen = Path(sys.argv[1] + "-seen-" + sys.argv[2])
for first in range(1, int(sys.argv[3]) + 1, 4):
    while first % 40 == 1 and int(seen.read_text()) < first - 1:
        time.sleep(0.001)  # a reader that gets no turn on a busy machine would see only the ends
    store.put([
        Transition(
            Call("get", {"id": f"{sys.argv[2]}-{step}"}),
            Answer("a lamp"), Effect.READ, f"{sys.argv[2]}.{step}", step,
        )
        for step in range(first, first + 4)
    ])
    time.sleep(0.001)
store.close()
"""

Look = Callable[[SqliteStore], list[Transition]]


def followed(path: Path, rows: int, look: Look) -> tuple[list[list[Transition]], int]:
    """What a reader saw, look after look, while two processes wrote `rows` rows each; and its last look."""
    SqliteStore(path).close()
    tell(path, [])
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), name, str(rows)], stderr=subprocess.PIPE)
        for name in ("a", "b")
    ]
    looks = []
    try:
        with closing(SqliteStore(path, read_only=True)) as reader:
            while any(writer.poll() is None for writer in writers):
                looks.append(look(reader))
                tell(path, looks[-1])
            looks.append(look(reader))
            count = reader.count()
        assert [writer.communicate()[1] for writer in writers] == [b"", b""]
    finally:
        for writer in writers:
            writer.kill()
    return looks, count


def tell(path: Path, seen: list[Transition]) -> None:
    """Let each writer know how many of its rows the reader has seen."""
    for writer in ("a", "b"):
        file = Path(f"{path}-seen-{writer}")
        file.with_suffix(".new").write_text(str(sum(one.episode.startswith(writer) for one in seen)))
        file.with_suffix(".new").replace(file)


def by_scan(store: SqliteStore) -> list[Transition]:
    return list(store.scan())


def by_search(store: SqliteStore) -> list[Transition]:
    return [hit.transition for hit in store.search(HybridQuery("lamp", tool="get", k=1000))]


def torn(looks: list[list[Transition]]) -> list[str]:
    """What no reader may see: a row that left, a row twice, half of a put, a writer's rows out of order."""
    found = []
    for before, after in zip([[], *looks], looks, strict=False):
        if after[: len(before)] != before:
            found.append("what was seen is gone or moved")
        if len({one.id for one in after}) != len(after):
            found.append("a row twice")
        for writer in ("a", "b"):
            steps = [one.step for one in after if one.episode.startswith(writer)]
            if steps != list(range(1, len(steps) + 1)):
                found.append("a gap")
            if len(steps) % 4:
                found.append("half of a put")
    return found


def test_a_reader_that_scans_sees_whole_puts_in_the_order_written(tmp_path: Path) -> None:
    looks, count = followed(tmp_path / "b.db", 200, by_scan)
    sizes = {len(seen) for seen in looks}
    print(f"two writers: {len(looks)} looks, {len(sizes)} sizes, {count} rows")
    assert count == 400
    assert torn(looks) == []
    assert len(sizes) > 3


def test_a_reader_that_searches_finds_every_row_at_the_end_and_never_one_twice(tmp_path: Path) -> None:
    looks, count = followed(tmp_path / "b.db", 100, by_search)
    assert count == 200
    assert len({one.id for one in looks[-1]}) == 200
    assert all(len({one.id for one in seen}) == len(seen) for seen in looks)
    sizes = [len(seen) for seen in looks]
    assert sizes == sorted(sizes)


@pytest.mark.parametrize("fault", ["twice", "gap", "gone", "half"])
def test_a_reader_that_sees_what_it_must_not_is_found_out(fault: str) -> None:
    rows = [
        Transition(Call("get", {"id": step}), Answer("a lamp"), Effect.READ, f"a.{step}", step)
        for step in range(1, 9)
    ]
    wrong = {
        "twice": [rows[:4], [*rows[:4], *rows[:4]]],
        "gap": [[rows[0], *rows[2:5]]],
        "gone": [rows, rows[:4]],
        "half": [rows[:4], rows[:6]],
    }
    assert torn([rows[:4], rows]) == []
    assert torn(wrong[fault]) != []
