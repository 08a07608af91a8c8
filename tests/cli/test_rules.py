"""`rules show`: a table with evidence, one tool explained, and a near name for a wrong one."""

import json
from contextlib import closing

import pytest
from typer.testing import CliRunner

from dreamgym_kit.adapters.stores.sqlite import SqliteStore
from dreamgym_kit.cli.main import app
from dreamgym_kit.errors import UnknownName
from dreamgym_kit.settings.load import parse_settings
from dreamgym_kit.types import Answer, Call, Effect, Environment, Transition, history_digest


@pytest.fixture
def buffer(tmp_path):
    path = tmp_path / "buffer.db"
    rows = []
    for number in range(6):
        world, args = Environment("bank", number), {"card_id": f"C{number}"}
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


def rules(buffer, *arguments, how="show", config=None):
    settings = ["--config", str(config)] if config is not None else []
    return CliRunner().invoke(app, [*settings, "rules", how, "--buffer", str(buffer), *arguments])


def test_the_table_shows_what_a_write_changes_with_its_evidence(buffer) -> None:
    done = rules(buffer, "--json")
    (change,) = [one for one in json.loads(done.stdout)["rules"] if one["kind"] == "changes"]
    assert change["tool"] == "freeze"
    assert change["says"].startswith("get_card(card_id = args.card_id): sets status to 'frozen', where it ")
    assert (change["right"], change["wrong"], change["worlds"]) == (6, 0, 6)
    assert "freeze" in rules(buffer).stdout


def test_one_tool_is_explained(buffer) -> None:
    assert "card_id = args.card_id" in rules(buffer, "freeze").stdout


def test_what_was_mined_is_told_in_the_settings_form_and_can_be_taken_over(buffer, tmp_path) -> None:
    told = rules(buffer, how="export").stdout
    assert "# freeze, mined: answer 6 right 0 wrong, changes.1 6 right 0 wrong" in told
    settings = tmp_path / "dreamgym.toml"
    settings.write_text(f'[tools.freeze]\neffect = "write"\n{told}'.replace('"frozen"', '"cold"'))
    declared = parse_settings(settings.read_text()).tools["freeze"].model
    assert declared.changes[0].operations == (("set", "status", "cold"),)
    done = rules(buffer, config=settings)
    assert (
        "declared  changes      0      6       -  get_card(card_id = args.card_id): sets status to"
        in done.stdout
    )
    assert "Contradicted by recordings, see rules show TOOL: freeze" in done.stdout
    explained = rules(buffer, "freeze", config=settings).stdout
    assert "but None/bank:" not in explained
    assert '"status":"cold"}, recorded {"card_id":"C0","status":"frozen"}' in explained


def test_an_argument_without_a_name_is_left_out_of_what_is_offered(tmp_path) -> None:
    path, rows = tmp_path / "buffer.db", []
    for number in range(6):
        world, card = Environment("bank", number), f"C{number}"
        freeze = Call("freeze", {"": card})
        for step, (call, seen, effect) in enumerate(
            [
                (Call("get_card", {"": card}), {"card": card, "status": "active"}, Effect.READ),
                (freeze, {"frozen": card}, Effect.WRITE),
                (Call("get_card", {"": card}), {"card": card, "status": "frozen"}, Effect.READ),
            ],
            start=1,
        ):
            after = history_digest([freeze.key] if step == 3 else [])
            rows.append(Transition(call, Answer(seen), effect, f"e{number}", step, world, after=after))
    with closing(SqliteStore(path)) as store:
        store.put(rows)
    done = rules(path, how="export")
    assert done.exit_code == 0
    assert "args." not in done.stdout
    assert '""' not in done.stdout
    parse_settings(done.stdout.replace("[tools.freeze.model]", '[tools.freeze]\neffect = "write"'))


def test_a_declared_tool_is_shown_without_any_recording(tmp_path) -> None:
    (settings := tmp_path / "dreamgym.toml").write_text(
        '[tools.pay]\neffect = "write"\n[tools.pay.model]\nanswer = "paid"\nkeeps = ["get_*"]\n'
    )
    done = CliRunner().invoke(app, ["--config", str(settings), "rules", "show", "--json"])
    said = json.loads(done.stdout)["rules"]
    assert [(one["kind"], one["says"], one["source"]) for one in said] == [
        ("answers", '"paid"', "declared"),
        ("keeps", "get_*", "declared"),
    ]


def test_a_tool_that_was_not_recorded_gets_the_nearest_name(buffer) -> None:
    error = rules(buffer, "freze").exception
    assert isinstance(error, UnknownName)
    assert "did you mean 'freeze'?" in str(error)
