"""The README as a new user meets it: every command in it is run, every link in it leads somewhere."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
README = (CHECKOUT / "README.md").read_text()

AGENT = '''
from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool


class ScriptedModelDouble(BaseChatModel):
    @property
    def _llm_type(self): return "scripted-double"

    def bind_tools(self, tools, **kwargs): return self

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        if any(isinstance(message, AIMessage) for message in messages):
            said = AIMessage("Cancelled.")
        else:
            call = {"name": "cancel_order", "args": {"order_id": "o1"}, "id": "c1", "type": "tool_call"}
            said = AIMessage("", tool_calls=[call])
        return ChatResult(generations=[ChatGeneration(message=said)])


@tool
def cancel_order(order_id: str) -> str:
    """Cancel an order."""
    with open("touched", "a") as file:
        file.write("x")
    return "ok"


graph = create_agent(ScriptedModelDouble(), [cancel_order])
'''


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


@pytest.mark.slow
def test_the_way_for_ones_own_graph_works_as_written(tmp_path: Path) -> None:
    (tmp_path / "my_agent.py").write_text(AGENT)
    (tmp_path / "tasks.jsonl").write_text("".join(blocks("json")))
    own = [command for command in commands() if command.startswith("dreamgym-kit")]
    said = {command.split()[1]: run(command, tmp_path) for command in own}
    assert list(said) == ["init", "doctor", "record", "simulate", "report", "buffer"]
    assert "GATE PASSED" in said["simulate"]
    assert "real calls  0 of 4" in said["simulate"]
    assert len(list(tmp_path.glob("runs/*/report.html"))) == 1
    assert (tmp_path / "touched").read_text() == "x"
    (code,) = blocks("python")
    (tmp_path / "five_lines.py").write_text(code)
    assert run("python five_lines.py", tmp_path).startswith("It passes")
    assert (tmp_path / "touched").read_text() == "x"


def test_no_command_of_the_readme_is_left_out() -> None:
    assert len([command for command in commands() if command.startswith("dreamgym-kit")]) == 7
    assert [command.split(" && ")[-1] for command in commands() if "venv" in command] == [
        ".venv/bin/dreamgym-kit demo",
        ".venv/bin/pytest -q",
    ]


def test_every_link_to_a_file_leads_somewhere() -> None:
    pages = [CHECKOUT / "README.md", CHECKOUT / "CONTRIBUTING.md", *(CHECKOUT / "docs").glob("*.md")]
    for page in pages:
        for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_the_two_commands_work_on_a_fresh_copy(tmp_path: Path) -> None:
    for number, command in enumerate(command for command in commands() if "venv" in command):
        folder = tmp_path / str(number)
        left_out = shutil.ignore_patterns(".git", ".links", ".venv*", "__pycache__", ".*_cache", "runs")
        shutil.copytree(CHECKOUT, folder, ignore=left_out)
        # The whole suite is what CI runs anyway; here only that this command gets to it and passes.
        said = run(command, folder, PYTEST_ADDOPTS="-k public_names", PYTHONSAFEPATH="")
        assert "GATE FAILED" in said if number == 0 else " passed" in said
