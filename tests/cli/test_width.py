"""What a command prints is as wide as the terminal, 80 to 160, and folded nowhere where there is none."""

import os
import pty
import subprocess
import termios
from pathlib import Path

import pytest
from each_row import each_row

FLAGS = ("agent:graph", "--tasks", "tasks.jsonl")
LONG = "Refund\\t\\'A-1\\' at 16:38:41,  please" + " and then some more of it" * 40


@pytest.fixture
def dreamed(run, recorded: Path) -> Path:
    """A project with a run whose agent says more than a line."""
    agent = recorded / "agent.py"
    agent.write_text(agent.read_text().replace('AIMessage("Refunded.")', f"AIMessage('{LONG}')"))
    assert run("simulate", *FLAGS).returncode == 1
    return recorded


def on_terminal(folder: Path, environment: dict[str, str], columns: int, *command: str) -> list[str]:
    """The lines that a command prints on a terminal of so many columns."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (40, columns))
    said = bytearray()
    with subprocess.Popen(command, cwd=folder, env=environment | {"NO_COLOR": "1"}, stdout=theirs) as process:
        os.close(theirs)
        while True:
            try:
                said += os.read(ours, 65536)
            except OSError:  # the command has ended
                break
    os.close(ours)
    assert process.returncode == 0
    return said.decode().replace("\r\n", "\n").splitlines()


@each_row(("columns", "most"), [(60, 80), (120, 120), (200, 160)])
def test_lines_are_as_wide_as_the_terminal_and_no_value_is_cut(
    dreamed: Path, environment: dict[str, str], command: str, columns: int, most: int
) -> None:
    whole = on_terminal(dreamed, environment, columns, command, "report", "--episode", "refund-1.1", "--full")
    widest = max(len(line) for line in whole)
    assert most - 24 <= widest <= most  # as wide as its words allow
    said = " ".join(" ".join(whole).split())
    assert "and then some more of it and then some more of it" in said
    assert "chars, --full)" not in said
    cut = on_terminal(dreamed, environment, columns, command, "report", "--episode", "refund-1.1")
    assert "... (+" in " ".join(cut)
    for shown in ("report", "report --list", "report --tools"):
        lines = on_terminal(dreamed, environment, columns, command, *shown.split())
        assert max(len(line) for line in lines) <= most, shown


def test_nothing_is_folded_where_there_is_no_terminal(run, dreamed: Path) -> None:
    told = run("report", "--episode", "refund-1.1", "--full").stdout.splitlines()
    (said,) = [line for line in told if "and then some more of it" in line]
    assert said.count("and then some more of it") == 40
    calls = [line for line in told if " -> " in line]
    assert calls[0] == "   1  get_order(order_id='A-1') -> 'captured'  [read, recorded]"
