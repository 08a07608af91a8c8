"""`buffer scrub`: what was stored before today's rules knew it is masked everywhere, and keeps its place."""

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from dreamgym_kit.adapters.pytest_plugin.cassette import Cassette, Recording
from dreamgym_kit.adapters.stores.factory import holds_secrets, put_in_place, to_mask
from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.adapters.stores.sqlite import SqliteStore
from dreamgym_kit.cli.main import main
from dreamgym_kit.replay.masking import process_masker
from dreamgym_kit.settings.schema import Settings
from dreamgym_kit.types import Answer, Call, Effect, Source, Transition, history_digest

SECRET = "Zq7vK2pL9xWm4RtY8nB3"
LOGIN = Call("login", {"user": "eva", "dbPassword": SECRET})
ROWS = [
    Transition(Call("ping", {}), Answer("pong", source=Source.REAL), Effect.READ, "e1", 1),
    Transition(LOGIN, Answer({"ok": True}, source=Source.REAL), Effect.WRITE, "e1", 2),
    Transition(
        Call("orders", {}),
        Answer(["o1"], source=Source.REAL),
        Effect.READ,
        "e1",
        3,
        after=history_digest([LOGIN.key]),
    ),
    Transition(Call("ping", {}), Answer("pong", source=Source.REAL), Effect.READ, "e2", 1),
]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dreamgym.toml").write_text('buffer = "b.db"\n')
    with closing(SqliteStore(tmp_path / "b.db")) as store:
        store.put(ROWS)
    run = tmp_path / "runs" / "2026-01-01-agent-abcd"
    run.mkdir(parents=True)
    (run / "manifest.json").write_text("{}")
    (run / "events.jsonl").write_text(json.dumps({"event": "x", "text": f"password={SECRET}"}) + "\n")
    (run / "audit.jsonl").write_text(json.dumps({"audit": 1, "args": {"token": SECRET}}) + "\n")
    cassette = Cassette(tmp_path / "tests" / "cassettes" / "t.jsonl")
    rows = tuple(replace(row, episode="t", task="t") for row in ROWS[:3])
    cassette.write(Recording("t", rows, ()), instead_of="t".__eq__)
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as ended:
        patch.setattr("sys.argv", ["dreamgym-kit", "buffer", "scrub", *words])
        main()
    assert not ended.value.code
    return capsys.readouterr().out


def test_without_yes_it_says_what_it_would_change_and_changes_nothing(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.read_bytes() for path in project.rglob("*.jsonl")}
    said = run(capsys)
    assert "would be masked in" in said
    assert SECRET not in said
    assert before == {path: path.read_bytes() for path in project.rglob("*.jsonl")}
    with closing(SqliteStore(project / "b.db", read_only=True)) as store:
        assert [row.id for row in store.scan()] == [row.id for row in ROWS]


def test_with_yes_no_file_holds_it_and_rows_keep_order_and_state(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = json.loads(run(capsys, "--yes", "--json"))
    (buffer,) = [each for each in said["places"] if each["place"].endswith("b.db")]
    assert set(buffer["ids"]) == {ROWS[1].id, ROWS[2].id}
    holding = [
        path.name for path in project.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()
    ]
    assert holding == ["audit.jsonl"]  # its lines are chained: it is named, and left
    assert next(each["left"] for each in said["places"] if each["place"].endswith("audit.jsonl"))
    with closing(SqliteStore(project / "b.db", read_only=True)) as store:
        rows = list(store.scan())
    assert [(row.episode, row.step) for row in rows] == [(row.episode, row.step) for row in ROWS]
    assert rows[2].after == history_digest([rows[1].call.key])
    assert str(rows[1].call.args["dbPassword"]).startswith("<masked:")
    (_, login, _) = Cassette(project / "tests" / "cassettes" / "t.jsonl").calls()
    assert login.call.args["dbPassword"] == "<masked>"
    assert json.loads(run(capsys, "--json"))["places"] == [each for each in said["places"] if each["left"]]


def test_behind_a_link_the_buffer_itself_is_masked(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "real").mkdir()
    link, real = project / "b.db", project / "real" / "c.db"
    link.rename(real)
    link.symlink_to("real/c.db")
    run(capsys, "--yes")
    assert link.is_symlink()
    assert SECRET.encode() not in real.read_bytes()
    assert [one.name for one in real.parent.iterdir()] == ["c.db"]


def test_a_buffer_is_looked_at_once_for_each_set_of_rules(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = project / "b.db"
    with closing(SqliteStore(place, read_only=True)) as store:
        assert [holds_secrets(store, place, Settings()) for _ in range(2)] == [2, 0]
        monkeypatch.setattr("dreamgym_kit.adapters.stores.factory.rules_digest", lambda: "other rules")
        assert holds_secrets(store, place, Settings()) == 2
    assert (project / "b.db.salt").stat().st_mode & 0o777 == 0o600
    run(capsys, "--yes")
    monkeypatch.setattr("dreamgym_kit.adapters.stores.factory.rules_digest", lambda: "newer rules")
    with closing(SqliteStore(place, read_only=True)) as store:
        assert holds_secrets(store, place, Settings()) == 0


def test_a_buffer_of_a_server_keeps_whole_episodes_in_order(tmp_path: Path) -> None:
    store = MemoryStore()
    store.put(ROWS)
    put_in_place(store, to_mask(store, process_masker(salt=b"s")), tmp_path / "kept.jsonl")
    rows = list(store.scan())
    assert [row.step for row in rows if row.episode == "e1"] == [1, 2, 3]
    assert (len(rows), SECRET in repr(rows), (tmp_path / "kept.jsonl").exists()) == (4, False, False)


def test_a_copy_of_a_buffer_has_its_salt(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as ended:
        patch.setattr("sys.argv", ["dreamgym-kit", "buffer", "migrate", "b.db", "copy.db"])
        main()
    assert not ended.value.code
    salt, copy = (project / f"{name}.db.salt" for name in ("b", "copy"))
    assert copy.read_bytes() == salt.read_bytes()
    assert copy.stat().st_mode & 0o777 == 0o600
