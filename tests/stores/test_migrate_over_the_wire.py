"""`buffer migrate` from a file to a server and back, over the wire, killed in between."""

import json
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from away_double import seen
from typer.testing import CliRunner

from dreamgym_kit.adapters.stores.sqlite import SqliteStore
from dreamgym_kit.cli.main import app
from dreamgym_kit.types import Answer, Call, Effect, Environment, Source, Split, Transition

pytest.importorskip("weaviate_double", reason="weaviate-client is not installed")

KILLED = """
import os, sys
from pathlib import Path
from dreamgym_kit.adapters.stores.factory import open_store
from dreamgym_kit.replay import transfer
from dreamgym_kit.settings.schema import Settings
from dreamgym_kit.settings.buffer_url import place_of

transfer._BATCH_ROWS = 5
source, target = (place_of(text, Path.cwd()) for text in sys.argv[1:])
transfer.migrate(
    open_store(source, Settings()),
    open_store(target, Settings(), read_only=False),
    lambda put: os.kill(os.getpid(), 9) if put >= 10 else None,
)
"""


def migrated(source: str, target: str) -> dict[str, object]:
    done = CliRunner().invoke(app, ["buffer", "migrate", source, target, "--json"])
    assert done.exit_code == 0, (done.stderr, done.exception)
    return dict(json.loads(done.stdout))


@pytest.mark.slow
def test_all_rows_go_to_a_server_and_back_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from weaviate_double import WeaviateDouble

    monkeypatch.chdir(tmp_path)
    dreamt = Answer({"é\x00 ": [1.0, 1, None], "big": 2**53 + 1}, source=Source.MODEL, confidence=0.5)
    rows = [
        *(seen(step, tenant="a", recorded_at=step / 7) for step in range(12, 0, -1)),
        seen(
            13,
            tenant="b",
            split=Split.HELD_OUT,
            environment=Environment("shop", 2**40),
            elapsed_s=0.25,
            task="t",
        ),
        Transition(Call("pay", {"x": 1.0}, call_id="c1", node="tools"), dreamt, Effect.WRITE, "t.2", 7),
    ]
    with closing(SqliteStore("b.db")) as store:
        store.put(rows)
    with WeaviateDouble() as server:
        place = f"{server.address}&tenant=shop&timeout=60"
        killed = subprocess.run([sys.executable, "-c", KILLED, "b.db", place])
        assert killed.returncode == -9
        there = migrated("b.db", place)
        assert (there["whole"], there["in_order"], there["new"]) == (True, True, 4)
        assert migrated("b.db", place)["new"] == 0
        back = migrated(place, "c.db")
        assert (back["whole"], back["in_order"], back["new"]) == (True, True, 14)
        assert back["checksum"] == there["checksum"]
    with closing(SqliteStore("c.db", read_only=True)) as store:
        assert list(store.scan()) == rows
