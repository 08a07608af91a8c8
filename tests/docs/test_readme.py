"""The README's two ways onto a fresh machine work as written; `test_examples` follows the rest of it."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

# CI runs the whole suite anyway; here only that the command gets to it and passes. An index may stall.
ONE_TEST = {"PYTEST_ADDOPTS": "tests/test_public_names.py", "PYTHONSAFEPATH": ""}
PATIENT = {"PIP_RETRIES": "10", "PIP_TIMEOUT": "60", "PIP_NO_COMPILE": "1"}
CHECKOUT = Path(__file__).parents[2]
LEFT_OUT = (".git", ".hypothesis", ".links", ".venv*", "__pycache__", ".*_cache", "runs")
README = (CHECKOUT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def commands() -> list[str]:
    return [line for block in blocks("console") for line in block.splitlines() if line]


def run(command: str, folder: Path, **more: str) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env={**os.environ, "PATH": path, "COLUMNS": "100", **more},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_no_command_of_the_readme_is_left_out() -> None:
    assert len([command for command in commands() if command.startswith("dreamgym-kit")]) == 7
    assert [command.split(" && ")[-1] for command in commands() if "venv" in command] == [
        ".venv/bin/dreamgym-kit demo",
        ".venv/bin/pytest -q",
    ]


def packages_of_here(folder: Path) -> dict[str, str]:
    """Let pip in the new environment see what this one has: it fetches only what builds the kit."""
    script = folder / ".venv" / "bin" / "pytest"  # pip makes it where it installs pytest
    script.parent.mkdir(parents=True)
    script.write_text(
        f"#!{script.with_name('python')}\nimport pytest\n\nraise SystemExit(pytest.console_main())\n"
    )
    script.chmod(0o755)
    return {"PYTHONPATH": sysconfig.get_path("purelib")}


@pytest.mark.slow
@pytest.mark.parametrize("packages", ["here", pytest.param("fetched", marks=pytest.mark.nightly)])
def test_the_two_commands_work_on_a_fresh_copy(tmp_path: Path, packages: str) -> None:
    for number, command in enumerate(command for command in commands() if "venv" in command):
        folder = tmp_path / str(number)
        shutil.copytree(CHECKOUT, folder, ignore=shutil.ignore_patterns(*LEFT_OUT))
        more = packages_of_here(folder) if packages == "here" else {}
        said = run(command, folder, **ONE_TEST, **PATIENT, **more)
        assert "FAILED  61 passed, 11 failed" in said if number == 0 else " passed" in said
