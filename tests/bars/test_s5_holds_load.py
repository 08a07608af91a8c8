"""Bar S5: a full buffer is no more work to ask and to fill than an empty one; its times are the bench's."""

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from bench import million
from bench import store as bench
from each_row import each_row

from dreamgym_kit.adapters.stores.sqlite import SqliteStore
from dreamgym_kit.types import Environment, Transition

ROWS, PUT = 2_000, 20
FEW = 500  # instructions of SQLite's machine; each row that is looked at takes several


class ScansForExactDouble(SqliteStore):
    """A planted bug: one call is looked for among all."""

    def exact(
        self, tool: str, key: str, environment: Environment, *, tenant: str = "default"
    ) -> list[Transition]:
        """The same answer, with work that grows with the buffer."""
        return [row for row in self.scan(environment=environment, tenant=tenant) if row.call.key == key]


class LooksBeforePutDouble(SqliteStore):
    """A planted bug: each put looks at all rows."""

    def put(self, transitions: Sequence[Transition]) -> int:
        """The same rows, with work that grows with the buffer."""
        self._open_writer().execute("select max(length(payload)) from transitions").fetchone()
        return super().put(transitions)


def instructions(connection: sqlite3.Connection, act: Callable[[], object]) -> int:
    """How many instructions SQLite's machine takes for an act."""
    taken: list[None] = []
    connection.set_progress_handler(lambda: taken.append(None), 1)
    act()
    connection.set_progress_handler(None, 0)
    return len(taken)


def holds(store: SqliteStore) -> tuple[bool, bool]:
    """Fill a store and ask it: whether no put takes thrice what another does, and a call is found at once."""
    rows = list(bench._transitions(0, ROWS, ROWS))
    writer = store._open_writer()
    puts = [
        instructions(writer, lambda first=first: store.put(rows[first : first + PUT]))
        for first in range(0, ROWS, PUT)
    ]
    exact = [instructions(store._reader, lambda one=one: bench._exact(store, one)) for one in rows[::10]]
    print(f"S5 rows {ROWS} instructions of a put {min(puts)} to {max(puts)}, of an exact answer {max(exact)}")
    return max(puts) < 3 * min(puts), max(exact) < FEW


def test_puts_and_exact_answers_take_no_more_of_a_full_buffer(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path / "b.db")) as store:
        assert holds(store) == (True, True)


@pytest.mark.slow
@each_row(("planted", "held"), [(LooksBeforePutDouble, (False, True)), (ScansForExactDouble, (True, False))])
def test_a_store_that_looks_at_every_row_is_found_out(
    planted: type[SqliteStore], held: tuple[bool, bool], tmp_path: Path
) -> None:
    with closing(planted(tmp_path / "b.db")) as store:
        assert holds(store) == held


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_a_million_rows_are_answered_within_two_gigabytes() -> None:
    """Filled and asked by processes of their own: their memory is what the bar limits. Some ten minutes."""
    figures = {name: value for name, value, _ in million.measure(0)}
    print(f"S5 {figures}")
    assert figures["rss_mb"] < 2048
