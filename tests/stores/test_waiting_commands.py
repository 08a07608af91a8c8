"""Commands whose server is away: recordings wait, the person is told what to type, and typing it delivers."""

import json
import shlex
from pathlib import Path

import pytest
from away_double import AwayServerDouble, Fault, behind_addresses, seen
from click.testing import Result
from typer.testing import CliRunner

from dreamgym_kit.adapters.stores.factory import address_of, open_store, opened_again, opened_to_add
from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.adapters.stores.outbox import BufferedStore
from dreamgym_kit.cli.main import app
from dreamgym_kit.errors import StoreError, StoreUnavailable, UserError
from dreamgym_kit.replay.transfer import export_jsonl
from dreamgym_kit.settings.buffer_url import buffer_of
from dreamgym_kit.settings.load import load_settings

SHOP = "weaviate://shop"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AwayServerDouble:
    monkeypatch.chdir(tmp_path)
    made = AwayServerDouble()
    behind_addresses(monkeypatch, shop=made)
    return made


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    store = MemoryStore()
    store.put([seen(step) for step in (1, 2, 3)])
    export_jsonl(store, tmp_path / "rows.jsonl")
    return tmp_path / "rows.jsonl"


def buffer(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["buffer", *arguments])


def test_an_import_whose_server_is_away_waits_and_is_flushed_by_what_was_told(
    server: AwayServerDouble, rows: Path
) -> None:
    server.away = True
    done = buffer("import", "rows.jsonl", "--buffer", SHOP)
    assert done.exit_code == 0
    assert f"3 transitions were added to {SHOP} (3 wait in the outbox); 0 were there already." in done.stdout
    assert "warning: weaviate://h: no answer within 5 s; recordings wait in" in done.stderr
    told = next(line for line in done.stderr.splitlines() if "deliver them:" in line)
    typed = shlex.split(told.partition("deliver them: ")[2])
    assert typed[:3] == ["dreamgym-kit", "buffer", "flush"]

    again = CliRunner().invoke(app, typed[1:])
    assert isinstance(again.exception, StoreUnavailable)
    assert str(again.exception).endswith(".jsonl: 3")
    assert server.rows() == []

    server.away = False
    flushed = CliRunner().invoke(app, typed[1:])
    assert (flushed.exit_code, flushed.stdout) == (
        0,
        f"3 recordings were delivered to {SHOP}; 0 were there already.\n",
    )
    assert [row.step for row in server.rows()] == [1, 2, 3]
    assert buffer("flush", "--buffer", SHOP).stdout == f"Nothing waits for {SHOP}.\n"


def test_a_flush_that_breaks_off_goes_on_and_counts_what_was_there(
    server: AwayServerDouble, rows: Path
) -> None:
    server.away = True
    buffer("import", "rows.jsonl", "--buffer", SHOP)
    server.away, server.faults = False, iter([Fault.NONE, Fault.HALF])
    assert isinstance(buffer("flush", "--buffer", SHOP).exception, StoreUnavailable)
    done = json.loads(buffer("flush", "--buffer", SHOP, "--json").stdout)
    assert done == {"waited": 3, "sent": 3, "new": 2, "waiting": 0, "unreadable": []}
    assert [row.step for row in server.rows()] == [1, 2, 3]


def test_stats_and_dreams_say_that_recordings_wait(server: AwayServerDouble, rows: Path) -> None:
    from dreamgym_kit.cli.running import opened_recordings

    server.away = True
    buffer("import", "rows.jsonl", "--buffer", SHOP)
    away = buffer("stats", "--buffer", SHOP)
    assert isinstance(away.exception, StoreUnavailable)
    assert f"warning: recordings in the outbox for {SHOP}: 3; deliver them: " in away.stderr
    server.away = False
    stats = buffer("stats", "--buffer", SHOP, "--json")
    assert json.loads(stats.stdout)["waiting"] == 3
    assert json.loads(stats.stdout)["transitions"] == 0
    settings = load_settings(environ={"DREAMGYM_BUFFER": SHOP})
    with opened_recordings(settings) as opened:
        assert opened is not None
        assert opened.count() == 0
    server.away = True
    with pytest.raises(StoreUnavailable), opened_recordings(settings):
        pass


def test_a_line_that_somebody_broke_is_told_and_the_rest_is_delivered(
    server: AwayServerDouble, rows: Path
) -> None:
    server.away = True
    buffer("import", "rows.jsonl", "--buffer", SHOP)
    (file,) = Path("runs/.spool").glob("*.jsonl")
    file.write_text(file.read_text("utf-8").replace('"step":2', '"step":"two"'), "utf-8")
    server.away = False
    done = buffer("flush", "--buffer", SHOP)
    assert done.exit_code == 2
    assert f"error: {file.absolute()}:2: step: " in done.stderr
    assert [row.step for row in server.rows()] == [1, 3]
    assert file.read_bytes().count(b"\n") == 1


def test_what_cannot_be_flushed_is_named(server: AwayServerDouble, rows: Path) -> None:
    nothing = buffer("flush", "--buffer", "dreamgym.db")
    assert isinstance(nothing.exception, UserError)
    assert "is a file, and this command needs a server" in str(nothing.exception)
    foreign = buffer("flush", "rows.jsonl", "--buffer", SHOP)
    assert isinstance(foreign.exception, UserError)
    assert f"does not wait for {SHOP}" in str(foreign.exception)
    server.away = True
    buffer("import", "rows.jsonl", "--buffer", SHOP)
    server.refuses = "weaviate://shop: the key in $WEAVIATE_API_KEY is not accepted"
    refused = buffer("flush", "--buffer", SHOP)
    assert isinstance(refused.exception, StoreError)
    assert not isinstance(refused.exception, StoreUnavailable)
    assert "is not accepted; recordings that still wait in " in str(refused.exception)


def test_spools_of_other_addresses_are_named(server: AwayServerDouble, rows: Path) -> None:
    buffer("import", "rows.jsonl", "--buffer", "weaviate://elsewhere?tenant=a")
    done = buffer("flush", "--buffer", SHOP)
    assert done.exit_code == 0
    assert " of another address: " in done.stdout
    assert "weaviate-elsewhere-" in done.stdout


def test_in_python_too_nothing_waits_without_a_word(server: AwayServerDouble) -> None:
    from dreamgym_kit.adapters.langgraph.run.api import opened_store

    def record() -> None:
        with opened_store(SHOP, load_settings(environ={}), create=True) as store:
            assert store is not None
            store.put([seen(1)])

    server.away = True
    with pytest.warns(UserWarning, match="wait|outbox") as caught:
        record()
    said = [str(one.message) for one in caught]
    assert said[0].startswith("weaviate://h: no answer within 5 s; recordings wait in")
    assert said[1].startswith(f"recordings in the outbox for {SHOP}: 1; deliver them")
    with pytest.raises(StoreUnavailable), opened_store(SHOP, load_settings(environ={}), create=False):
        pass


def test_another_process_opens_the_same_address_and_spools_too(
    server: AwayServerDouble, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = load_settings(environ={"DREAMGYM_BUFFER": SHOP})
    place = buffer_of(settings)
    with opened_to_add(place, settings, tell=lambda _: None) as store:
        said = {"address": address_of(store), "write": True}
    assert said["address"] == address_of(open_store(place, settings)) == SHOP
    with opened_again(said, settings) as again:
        assert again is not None
        server.faults = iter([Fault.UNHEARD])
        again.put([seen(1)])
    assert "recordings wait in" in capsys.readouterr().err  # a worker has nobody else to tell
    with opened_again(said | {"write": False}, settings) as reader:
        assert reader is not None
        assert not isinstance(reader, BufferedStore)
        assert list(reader.scan()) == [seen(1)]
