"""`buffer import`, `export` and `stats` as a person runs them."""

import json
import subprocess
from pathlib import Path

import pytest
from warm import run_command

from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.replay.transfer import export_jsonl
from dreamgym_kit.types import Answer, Call, Effect, Environment, Transition

DONE = subprocess.CompletedProcess[str]


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    store = MemoryStore()
    for step in (1, 2, 3):
        call = Call("refund\x1b[31m" if step == 3 else "get_order", {"id": 7})
        error = "timed out" if step == 3 else None
        answer = Answer("paid", error=error)
        store.put([Transition(call, answer, Effect.READ, "t.1", step, environment=Environment("shop", 2))])
    export_jsonl(store, tmp_path / "rows.jsonl")
    return tmp_path / "rows.jsonl"


def buffer(folder: Path, *arguments: str, group: str = "buffer") -> DONE:
    return run_command(group, *arguments, folder=folder)


def test_import_twice_stats_and_export(tmp_path: Path, rows: Path) -> None:
    first = buffer(tmp_path, "import", "rows.jsonl")
    assert (first.returncode, first.stderr) == (0, "")
    assert first.stdout.startswith(
        f"3 transitions were added to {tmp_path}/dreamgym.db; 0 were there already.\n"
    )
    assert "0 transitions were added" in buffer(tmp_path, "import", "rows.jsonl").stdout
    stats = buffer(tmp_path, "stats")
    assert f" {tmp_path}/dreamgym.db: 3 transitions in 1 episodes\n" in stats.stdout
    assert " get_order  read                2       1       0\n" in stats.stdout
    assert "\x1b" not in stats.stdout
    done = buffer(tmp_path, "export", "again.jsonl")
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "again.jsonl").read_bytes() == rows.read_bytes()


def test_json_is_all_there_is_on_stdout(tmp_path: Path, rows: Path) -> None:
    assert json.loads(buffer(tmp_path, "import", "rows.jsonl", "--json").stdout) == {
        "read": 3,
        "new": 3,
        "duplicates": 0,
        "unread": 0,
        "problems": [],
    }
    stats = json.loads(buffer(tmp_path, "stats", "--json").stdout)
    assert stats["tools"]["get_order"] == {"transitions": 2, "calls": 1, "errors": 0, "effect": "read"}
    assert (stats["environments"], stats["episodes"], stats["sources"]) == ({"shop:2": 3}, 1, {"real": 3})


def test_bad_lines_are_named_the_good_ones_kept_and_the_code_is_2(tmp_path: Path, rows: Path) -> None:
    with rows.open("a") as file:
        file.write("{oops\n")
    done = buffer(tmp_path, "import", "rows.jsonl")
    assert done.returncode == 2
    assert done.stdout.startswith("3 transitions were added")
    named = "error: rows.jsonl:4: Expecting property name enclosed in double quotes at column 2\n"
    assert done.stderr == f"{named}1 line could not be read. Correct and import rows.jsonl again.\n"


def test_a_file_of_nothing_known_is_told_with_what_could_be_meant(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("dear diary\n")
    done = buffer(tmp_path, "import", "notes.txt")
    assert done.returncode == 2
    assert done.stdout.startswith("0 transitions were added")
    assert done.stderr == (
        "error: notes.txt:1: Expecting value at column 1\n"
        "error: none of its lines is a recording of dreamgym-kit; is it the trace of another tool? "
        "Name its form with --format, see docs/recordings.md\n"
        "1 line could not be read. Correct and import notes.txt again.\n"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("import", "absent.jsonl"), "error: absent.jsonl: does not exist; nothing was imported\n"),
        (("stats",), "/dreamgym.db: the buffer does not exist; record or import first\n"),
        (("export", "out.jsonl"), "/dreamgym.db: the buffer does not exist; record or import first\n"),
        (
            ("stats", "--buffer", "rows.jsonl"),
            "rows.jsonl: is not a buffer (not an SQLite database); nothing was",
        ),
    ],
)
def test_what_cannot_be_done_is_one_line_and_leaves_nothing(
    tmp_path: Path, rows: Path, arguments: tuple[str, ...], said: str
) -> None:
    done = buffer(tmp_path, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == [rows]


def test_an_export_keeps_what_is_there_unless_told(tmp_path: Path, rows: Path) -> None:
    buffer(tmp_path, "import", "rows.jsonl")
    rows.write_text("mine")
    assert "exists already, nothing was exported" in buffer(tmp_path, "export", "rows.jsonl").stderr
    assert rows.read_text() == "mine"
    assert buffer(tmp_path, "export", "rows.jsonl", "--overwrite").returncode == 0
    assert rows.read_text().count("\n") == 3


def test_search_shows_the_best_first_and_strips_what_steers_a_terminal(tmp_path: Path, rows: Path) -> None:
    buffer(tmp_path, "import", "rows.jsonl")
    done = buffer(tmp_path, "search", "refund 7 timed out", "--k", "1")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[:2] == [' 1  refund {"id": 7}', "    error: timed out"]
    assert "real, environment shop:2, episode t.1; by vectors 1, words 1" in done.stdout
    assert "\x1b" not in done.stdout


@pytest.mark.slow
def test_search_filters_and_is_json_when_asked(tmp_path: Path, rows: Path) -> None:
    buffer(tmp_path, "import", "rows.jsonl")
    found = json.loads(buffer(tmp_path, "search", "paid", "--tool", "get_order", "--json").stdout)
    assert found["query"] == "paid"
    assert {hit["transition"]["call"]["tool"] for hit in found["hits"]} == {"get_order"}
    nothing = buffer(tmp_path, "search", "paid", "--environment", "shop:3")
    assert nothing.stdout == " Nothing is like 'paid' there; what there is: dreamgym-kit buffer stats\n"
    refused = buffer(tmp_path, "search", "paid", "--environment", "shop:x")
    assert refused.returncode == 2
    assert refused.stderr == (
        "error: --environment shop:x: expected NAME or NAME:VARIANT, the variant a whole number\n"
    )


@pytest.mark.slow
def test_a_search_that_without_a_hit_names_a_mistyped_tool_world_or_tenant(
    tmp_path: Path, rows: Path
) -> None:
    buffer(tmp_path, "import", "rows.jsonl")
    for typed, said in (
        (("--tool", "get_ordr"), "tool 'get_ordr' is not in the recordings; did you mean 'get_order'?"),
        (("--environment", "shpo:2"), "environment 'shpo' is not in the recordings; did you mean 'shop'?"),
        (("--tenant", "acme"), "tenant 'acme' is not in the recordings; known: default."),
    ):
        done = buffer(tmp_path, "search", "paid", *typed)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == f"error: {tmp_path}/dreamgym.db: {said}\n"
    assert (
        buffer(tmp_path, "search", "paid", "--tool", "get_order", "--environment", "shop:2").returncode == 0
    )


def test_rules_as_toml_and_json_are_one_object(tmp_path: Path, rows: Path) -> None:
    buffer(tmp_path, "import", "rows.jsonl")
    done = buffer(tmp_path, "export", "--json", group="rules")
    assert list(json.loads(done.stdout)) == ["toml"]
