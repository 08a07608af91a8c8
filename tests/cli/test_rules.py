"""`rules show`: a table with evidence, one tool explained, and a near name for a wrong one."""

import json
from contextlib import closing

import pytest
from typer.testing import CliRunner

from dreamgym_kit.adapters.stores.sqlite import SqliteStore
from dreamgym_kit.cli.main import app
from dreamgym_kit.errors import UnknownName, UserError
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


def test_the_table_shows_each_tool_with_its_evidence(buffer) -> None:
    done = rules(buffer, "--json")
    lines = {one["tool"]: one for one in json.loads(done.stdout)["rules"]}
    assert (lines["freeze"]["says"], lines["freeze"]["source"]) == ("1 outcome, 1 update", "mined")
    assert (lines["freeze"]["right"], lines["freeze"]["wrong"]) == (6, 0)
    assert "freeze" in rules(buffer).stdout


def test_one_tool_is_explained(buffer) -> None:
    told = rules(buffer, "freeze").stdout
    assert '{"card_id": Get("args.card_id"' in told
    assert 'Const("frozen")' in told


def test_what_was_mined_can_be_taken_over_and_is_not_used_where_recordings_contradict_it(
    buffer, tmp_path
) -> None:
    told = rules(buffer, "freeze", how="export").stdout
    (tmp_path / "rules").mkdir()
    (settings := tmp_path / "dreamgym.toml").write_text('[tools]\nfreeze = "write"\n')
    (tmp_path / "rules" / "freeze.toml").write_text(told)
    assert "declared  program" in rules(buffer, config=settings).stdout
    (tmp_path / "rules" / "freeze.toml").write_text(told.replace('Const("frozen")', 'Const("cold")'))
    with pytest.warns(UserWarning, match="rules/freeze.toml is not used: "):
        done = rules(buffer, config=settings)
    assert "Rejected, or parts of them, see rules show TOOL: freeze" in done.stdout
    with pytest.warns(UserWarning, match="is not used"):
        explained = rules(buffer, "freeze", config=settings).stdout
    assert "'status': 'cold'}, recorded {'card_id': 'C0', 'status': 'frozen'}" in explained
    (tmp_path / "rules" / "freeze.toml").write_text(told.replace("Const(", "Cnst("))
    error = rules(buffer, config=settings).exception
    assert isinstance(error, UserError)
    assert "did you mean 'Const'?" in str(error)


def test_a_declared_tool_is_shown_without_any_recording(tmp_path) -> None:
    (settings := tmp_path / "dreamgym.toml").write_text('[tools]\npay = "write"\n')
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "pay.toml").write_text(
        "writes = true\ndecides = '\"ok\"'\n[outcomes.ok]\nanswer = 'Const(\"paid\")'\n"
    )
    done = CliRunner().invoke(app, ["--config", str(settings), "rules", "show", "--json"])
    [said] = json.loads(done.stdout)["rules"]
    assert (said["tool"], said["kind"], said["source"]) == ("pay", "program", "declared")


def test_a_tool_that_was_not_recorded_gets_the_nearest_name(buffer) -> None:
    error = rules(buffer, "freze").exception
    assert isinstance(error, UnknownName)
    assert "did you mean 'freeze'?" in str(error)
