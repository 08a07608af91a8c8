"""`buffer rules`: a table with evidence, one tool explained, and a near name for a wrong one."""

import json
from contextlib import closing

import pytest
from typer.testing import CliRunner

from dreamgym_kit.adapters.stores.sqlite import SqliteStore
from dreamgym_kit.cli.main import app
from dreamgym_kit.errors import UnknownName
from dreamgym_kit.vocabulary import Answer, Call, Effect, Transition, World, history_digest


@pytest.fixture
def buffer(tmp_path):
    path = tmp_path / "buffer.db"
    rows = []
    for number in range(6):
        world, args = World("bank", number), {"card_id": f"C{number}"}
        freeze = Call("freeze", args)
        for step, (call, seen, effect) in enumerate(
            [
                (Call("get_card", args), {**args, "status": "active"}, Effect.READ),
                (freeze, {**args, "done": True}, Effect.WRITE),
                (Call("get_card", args), {**args, "status": "frozen"}, Effect.READ),
            ],
            start=1,
        ):
            after = history_digest([freeze.key] if step == 3 else [])
            rows.append(Transition(call, Answer(seen), effect, f"e{number}", step, world, after=after))
    with closing(SqliteStore(path)) as store:
        store.put(rows)
    return path


def rules(buffer, *arguments):
    return CliRunner().invoke(app, ["buffer", "rules", "--buffer", str(buffer), *arguments])


def test_the_table_shows_what_a_write_changes_with_its_evidence(buffer) -> None:
    done = rules(buffer, "--json")
    (change,) = [one for one in json.loads(done.stdout)["rules"] if one["kind"] == "changes"]
    assert change["tool"] == "freeze"
    assert 'set status "frozen"' in change["says"]
    assert (change["right"], change["wrong"], change["worlds"]) == (6, 0, 6)
    assert "freeze" in rules(buffer).stdout


def test_one_tool_is_explained(buffer) -> None:
    assert "card_id = args.card_id" in rules(buffer, "--explain", "freeze").stdout


def test_a_tool_that_was_not_recorded_gets_the_nearest_name(buffer) -> None:
    error = rules(buffer, "--explain", "freze").exception
    assert isinstance(error, UnknownName)
    assert "did you mean 'freeze'?" in str(error)
