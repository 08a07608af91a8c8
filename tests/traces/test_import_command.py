"""`buffer import` of traces as a person runs it."""

import json
import subprocess
from pathlib import Path

import pytest
from each_row import each_row
from warm import run_command

RUN = {
    "run_type": "tool",
    "id": "r1",
    "trace_id": "t1",
    "name": "fetch_invoice",
    "inputs": {"mail": "ann@example.com"},
    "outputs": {"output": "paid by ann@example.com"},
}


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    chain = {"run_type": "chain", "id": "r0", "trace_id": "t1"}
    lost = {**RUN, "id": "r2", "outputs": None}
    (path := tmp_path / "runs.jsonl").write_text("\n".join(map(json.dumps, (chain, RUN, lost))))
    return path


def buffer(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_command("buffer", *arguments, folder=folder)


@pytest.mark.slow
def test_a_trace_is_recognised_redacted_and_put_where_it_is_told(tmp_path: Path, runs: Path) -> None:
    (tmp_path / "dreamgym.toml").write_text('[tools.fetch_invoice]\neffect = "write"\n')
    wanted = ("--redact", "email", "--tenant", "acme", "--environment", "shop:3")
    done = buffer(tmp_path, "import", "runs.jsonl", *wanted)
    assert (done.returncode, done.stdout.splitlines()[:4]) == (
        0,
        [
            f"1 transitions were added to {tmp_path}/dreamgym.db; 0 were there already.",
            " read as   langsmith 3",
            " no calls  run 1",
            " redacted  email 3",
        ],
    )
    assert done.stderr == (
        "note: runs.jsonl:3: call of fetch_invoice (span r2): the trace has no answer to it\n"
        "1 calls have no answer in the trace; they were not stored.\n"
    )
    stats = json.loads(buffer(tmp_path, "stats", "--json").stdout)
    assert (stats["environments"], stats["tenants"]) == ({"shop:3": 1}, {"acme": 1})
    assert stats["tools"]["fetch_invoice"]["effect"] == "write"
    assert b"ann@example.com" not in (tmp_path / "dreamgym.db").read_bytes()
    buffer(tmp_path, "export", "own.jsonl")
    again = buffer(tmp_path, "import", "own.jsonl", "--tenant", "other", "--json")
    assert (again.returncode, json.loads(again.stdout)["formats"]) == (0, {"transitions": 1})
    stats = json.loads(buffer(tmp_path, "stats", "--json").stdout)
    assert (stats["environments"], stats["tenants"]) == ({"shop:3": 2}, {"acme": 1, "other": 1})


@each_row(
    ("arguments", "said"),
    [
        (("--format", "spans"), "runs.jsonl:1: has format langsmith, not spans"),
        (("--redact", "mails"), "redact: 'mails' is no rule; use email, key, card, all"),
    ],
)
def test_what_cannot_be_done_is_a_line_with_code_2(runs: Path, arguments: tuple[str, ...], said: str) -> None:
    done = buffer(runs.parent, "import", str(runs.name), *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {said}")
    assert "Traceback" not in done.stderr
