"""`buffer migrate` as a person runs it, between files and addresses."""

import json
import os
from contextlib import closing
from pathlib import Path

import pytest
from away_double import AwayServerDouble, behind_addresses, seen
from click.testing import Result
from typer.testing import CliRunner

from dreamgym_kit.adapters.stores.sqlite import SqliteStore
from dreamgym_kit.cli.main import app
from dreamgym_kit.errors import StoreError, StoreUnavailable, UserError
from dreamgym_kit.types import Answer, Effect, Transition

SHOP = "weaviate://shop"
AGAIN = "weaviate://shop?consistency=one&timeout=9"  # asked otherwise


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AwayServerDouble:
    monkeypatch.chdir(tmp_path)
    made = AwayServerDouble()
    behind_addresses(monkeypatch, shop=made)
    with closing(SqliteStore(tmp_path / "b.db")) as store:
        store.put([seen(step, tenant="a" if step == 2 else "default") for step in (3, 1, 2)])
    return made


def migrate(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["buffer", "migrate", *arguments])


def test_a_file_goes_to_a_server_and_back(server: AwayServerDouble, tmp_path: Path) -> None:
    done = migrate("b.db", SHOP)
    assert done.exit_code == 0
    assert f"3 transitions of {tmp_path}/b.db: 3 came over, 0 were there already.\n" in done.stdout
    assert " verified  all 3 are there as they were read, checksum " in done.stdout
    assert "3 of 3 transitions put\n" in done.stderr
    back = json.loads(migrate(SHOP, "again.db", "--json").stdout)
    assert (back["whole"], back["new"], back["in_order"]) == (True, 3, True)
    with closing(SqliteStore("again.db", read_only=True)) as again, closing(SqliteStore("b.db")) as first:
        assert list(again.scan()) == list(first.scan())
    assert json.loads(migrate(SHOP, "again.db", "--json").stdout)["new"] == 0


def test_the_settings_room_lets_nothing_go_on_the_way(server: AwayServerDouble, tmp_path: Path) -> None:
    (tmp_path / "dreamgym.toml").write_text("[replay]\nrows = 1\n", "utf-8")
    assert migrate("b.db", "c.db").exit_code == 0
    with closing(SqliteStore("c.db", read_only=True)) as store:
        assert store.count() == 3


def test_the_same_place_twice_is_refused(server: AwayServerDouble, tmp_path: Path) -> None:
    os.link("b.db", "hard.db")
    Path("soft.db").symlink_to("b.db")
    for one, other in (
        ("b.db", "./b.db"),
        ("b.db", "hard.db"),
        ("soft.db", "b.db"),
        (SHOP, f"{SHOP}/"),
        (SHOP, AGAIN),
    ):
        refused = migrate(one, other)
        assert isinstance(refused.exception, UserError)
        assert "are the same buffer" in str(refused.exception)


def test_what_cannot_be_migrated_is_named_and_nothing_is_made(server: AwayServerDouble) -> None:
    missing = migrate("none.db", "new.db")
    assert isinstance(missing.exception, StoreError)
    assert "the buffer does not exist" in str(missing.exception)
    assert not Path("new.db").exists()
    wrong = migrate("b.db", "weavate://shop")
    assert isinstance(wrong.exception, UserError)
    assert str(wrong.exception).startswith("TO: kind of buffer 'weavate'")
    server.away = True
    assert isinstance(migrate("b.db", SHOP).exception, StoreUnavailable)


def test_a_difference_is_code_1(server: AwayServerDouble) -> None:
    row = seen(1)
    server.held.put([Transition(row.call, Answer({"at": 1}), Effect.READ, "t.1", 1, recorded_at=7.0)])
    done = migrate("b.db", SHOP)
    assert done.exit_code == 1
    assert f"error: {row.id}: says something else there\n" in done.stderr
    assert "verified" not in done.stdout


def test_recordings_that_wait_for_the_buffer_that_is_read_are_told(server: AwayServerDouble) -> None:
    assert migrate("b.db", "weaviate://shop").exit_code == 0
    server.away = True
    CliRunner().invoke(app, ["buffer", "export", "rows.jsonl", "--buffer", "b.db"])
    CliRunner().invoke(app, ["buffer", "import", "rows.jsonl", "--buffer", SHOP])
    server.away = False
    done = migrate(SHOP, "c.db")
    assert f"warning: recordings in the outbox for {SHOP}: 3" in done.stderr
