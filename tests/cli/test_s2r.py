"""`s2r` as a person meets it: what it refuses, how it ends, what it leaves."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from each_row import each_row
from training.real_parts import AGENT, OPEN_GATE, SETTINGS, project, run
from typer.main import get_command

from dreamgym_kit.cli.approving import question
from dreamgym_kit.cli.main import app
from dreamgym_kit.errors import UserError
from dreamgym_kit.supervision.audit import entries_of, verify
from dreamgym_kit.types import Answer, Call, Effect, Environment, HeldCall

ONE = '{"id": "a", "input": "?"}\n'
BOTH = '{"id": "a", "input": "?"}\n{"id": "b", "input": "?", "split": "held_out"}\n'


@pytest.fixture
def no_agent() -> Iterator[None]:
    """A command that runs in this process imports the agent: the next test has another one of that name."""
    yield
    sys.modules.pop("agent", None)


def small(folder: Path, tasks: str) -> Path:
    (folder / "agent.py").write_text(AGENT)
    (folder / "tasks.jsonl").write_text(tasks)
    (folder / "dreamgym.toml").write_text('graph = "agent.py:graph"\ntasks = "tasks.jsonl"\n')
    return folder


@each_row(
    ("arguments", "tasks", "said"),
    [
        ([], BOTH, "say how many real calls there may be"),
        (
            ["--max-calls", "5", "--stage", "liv"],
            BOTH,
            "value 'liv' is not in the choices for s2r.stage; did you mean 'live'?",
        ),
        (["--max-calls", "5"], BOTH, "there is no terminal to ask at"),
        (["--max-calls", "5", "--preflight-only", "--stage", "approve"], BOTH, "nobody is there to give it"),
        (["--max-calls", "5", "--preflight-only"], BOTH, "no policy to train"),
        (["--max-calls", "5", "--preflight-only"], ONE, "no held-out task"),
        (
            ["--max-calls", "5", "--preflight-only", "--approver", "agent"],
            BOTH,
            'names no object; write "module:name"',
        ),
    ],
    ids=["no budget", "no such stage", "nobody agreed", "nobody approves", "no policy", "no gate", "no rule"],
)
@pytest.mark.usefixtures("no_agent")
def test_what_cannot_go_to_the_real_tools_is_said_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], tasks: str, said: str
) -> None:
    pytest.importorskip("trl", reason="the extra train is not installed")
    monkeypatch.chdir(small(tmp_path, tasks))
    with pytest.raises(UserError, match=said):
        get_command(app)(["s2r", *arguments], standalone_mode=False)
    assert not list(tmp_path.glob("runs/*"))


@pytest.mark.slow
def test_a_way_is_gone_to_its_end_shown_again_and_verified(tmp_path: Path) -> None:
    pytest.importorskip("trl", reason="the extra train is not installed")
    folder = project(tmp_path)
    (folder / "dreamgym.toml").write_text(SETTINGS + OPEN_GATE)
    done = run(folder, "s2r", "--yes", "--json", "--steps", "1")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    directory = Path(told["directory"])
    assert (told["gate"]["passed"], told["steps"], told["real_calls"]) == (True, 1, 0)
    assert (directory / told["weights"] / "model.safetensors").is_file()
    checked = verify(directory / "audit.jsonl", head=told["audit"]["head"])
    assert (checked.whole, checked.closed) == (True, True)
    kinds = [entry.kind for entry in entries_of(directory / "audit.jsonl")]
    assert kinds == ["begun", "gate", "canaries", "open", "closed"]
    again = run(folder, "report", str(directory))
    assert again.returncode == 0
    assert " DONE  1 steps were learned from real calls" in again.stdout


@pytest.mark.slow
def test_a_shut_gate_ends_it_before_any_real_call(tmp_path: Path) -> None:
    pytest.importorskip("trl", reason="the extra train is not installed")
    folder = project(tmp_path)
    shut = OPEN_GATE.replace("pass_rate_low = 0.0", "pass_rate_low = 1.0")
    workers = "[workers]\ncount = 2\n"  # of other commands: overseen calls stay in one process
    (folder / "dreamgym.toml").write_text(SETTINGS + shut + workers)
    done = run(folder, "s2r", "--yes", "--json")
    assert done.returncode == 1, done.stderr
    told = json.loads(done.stdout)
    assert "success in the dream is" in told["gate"]["text"]
    assert (told["real_calls"], told["steps"], told["weights"]) == (0, 0, None)
    guessed = SETTINGS.replace('effect = "read"', 'effect = "read"\nguessed = true') + OPEN_GATE
    (folder / "dreamgym.toml").write_text(guessed)
    refused = run(folder, "s2r", "--yes", "--json")
    assert (refused.returncode, "what get_order can do is a guess" in refused.stderr) == (2, True)


def test_what_a_person_is_asked_shows_all_and_nothing_moves_the_terminal() -> None:
    held = HeldCall(
        digest="ab" * 32,
        call=Call("refund", {"payment": "P1\x1b[2Jyes", "amount": "9\u202e99"}),
        effect=Effect.DESTRUCTIVE,
        episode="e",
        task="t\x07",
        environment=Environment("shop", 3),
        expected=Answer(content={"state": "refunded\x1b]0;x\x07"}),
        doubts=("this very call was made 1 times before in this episode",),
    )
    text = question(held)
    assert "\x1b" not in text
    assert text.isascii()
    assert 'payment = "P1' in text
    assert "DOUBT this very call was made 1 times before" in text
    assert "Type yes to run it" in text
