"""Bad input: one line that says what to do, exit code 2, no traceback, nothing run and nothing lost."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from each_row import each_row


@each_row(
    ("arguments", "said"),
    [
        (("simulat",), "Did you mean 'simulate'?"),
        (
            ("simulate",),
            "no graph: name one (dreamgym-kit simulate my_agent:graph), or write settings for it",
        ),
        (
            ("simulate", "agent:graph"),
            "no tasks: name a file (dreamgym-kit simulate --tasks tasks.jsonl)",
        ),
        (("simulate", "agent:grahp", "--tasks", "tasks.jsonl"), "did you mean 'graph'?"),
        (("report",), "runs: has no run yet; start one: dreamgym-kit simulate\n"),
    ],
)
def test_what_is_missing_or_misspelt_is_named(run, arguments: tuple[str, ...], said: str) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stdout, said in done.stderr) == (2, "", True), done.stderr


@each_row(
    ("settings", "message"),
    [
        (
            '[findings]\ndetectors = ["agent:nothing"]\n',
            (
                "dreamgym.toml:2: detector 'agent:nothing': name 'nothing' is not in agent; known: tool, "
                "StateGraph, tools_condition, held, _result, once, agent, builder, graph."
            ),
        ),
        (
            "[tools.refund_paymnt]\neffect = 'write'\n",
            "dreamgym.toml:1: tool 'refund_paymnt' is not in the graph; did you mean 'refund_payment'?",
        ),
        (
            "[model]\napi_key = 'sk-abcdefghijklmnopqrstuvwxyz'\n",
            (
                "dreamgym.toml:2: key 'api_key' would hold a secret, and settings keep none; "
                "set it as an environment variable that your graph reads."
            ),
        ),
        (
            '[guard]\nallow_paths = ["/tmp/\\u0000x"]\n',
            "dreamgym.toml:2: guard.allow_paths holds a NUL character; take it out.",
        ),
    ],
)
def test_wrong_settings_are_named_and_nothing_runs(run, project: Path, settings: str, message: str) -> None:
    (project / "dreamgym.toml").write_text(settings)
    done = run("simulate", "agent:graph", "--tasks", "tasks.jsonl")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"error: {message}\n" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (project / "runs").exists() or list((project / "runs").iterdir()) == []


def test_a_graph_that_fails_to_import_shows_the_users_own_line(run, project: Path) -> None:
    (project / "agent.py").write_text("import os\n\nbroken = {}['nothing']\n")
    done = run("simulate", "agent:graph", "--tasks", "tasks.jsonl")
    assert done.returncode == 2
    assert "error: importing agent failed: KeyError: 'nothing'" in done.stderr
    assert f"{project / 'agent.py'}:3" in done.stderr
    assert "dreamgym_kit" not in done.stderr


@pytest.mark.slow
def test_a_run_that_could_not_begin_does_not_hide_the_one_before(run, recorded: Path) -> None:
    assert run("simulate", "agent:graph", "--tasks", "tasks.jsonl").returncode == 1
    runs = sorted((recorded / "runs").iterdir())
    before = run("report").stdout
    assert run("simulate", "nowhere:graph", "--tasks", "tasks.jsonl").returncode == 2
    assert sorted((recorded / "runs").iterdir()) == runs
    assert run("report").stdout == before


def test_a_control_character_in_a_message_does_not_reach_the_terminal(run, project: Path) -> None:
    (project / "dreamgym.toml").write_text('"a\\u001b[31mb\\u202e" = 1\n')
    done = run("simulate")
    assert done.returncode == 2
    assert "\x1b" not in done.stderr
    assert "\u202e" not in done.stderr


FAULTY = """
import sys
from dreamgym_kit.cli import main

def boom() -> None:
    "Boom."
    secret = "planted-local"
    raise {error}

main.app.command("boom")(boom)
sys.argv = ["dreamgym-kit", "boom"]
main.main()
"""


def faulty(error: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", FAULTY.format(error=error)],
        env=os.environ | {"TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_fault_of_ours_is_one_line_and_a_crash_log(tmp_path: Path) -> None:
    done = faulty("ZeroDivisionError('planted-text')", tmp_path)
    assert (done.returncode, done.stdout) == (70, "")
    said = re.fullmatch(
        r"error: a fault in dreamgym-kit itself \(ZeroDivisionError\); nothing finished is lost\. "
        r"Please report it with (\S+)\n",
        done.stderr,
    )
    assert said is not None, done.stderr
    log = Path(said[1])
    assert "ZeroDivisionError: planted-text" in log.read_text()
    assert log.stat().st_mode & 0o077 == 0
    assert "planted-local" not in done.stderr


def test_ctrl_c_is_130_without_a_word(tmp_path: Path) -> None:
    done = faulty("KeyboardInterrupt", tmp_path)
    assert done.returncode == 130
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_user_error_is_2_and_leaves_no_log(tmp_path: Path) -> None:
    done = faulty("__import__('dreamgym_kit.errors').errors.UserError('say this')", tmp_path)
    assert (done.returncode, done.stderr) == (2, "error: say this\n")
    assert list(tmp_path.iterdir()) == []
