"""A project as a user has it: an agent in a file, tasks, and the installed command in a subprocess."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from training.real_parts import begun
from warm import WarmCommand

Run = Callable[..., subprocess.CompletedProcess[str]]
Begin = Callable[..., subprocess.Popen[str]]

AGENT = '''\
"""Refunds an order twice. Its model is a scripted double; `REAL` is the file that a real refund leaves.

Where HELD is set, the model answers two episodes of a process to their end, and no other until `GO` is there.
"""

import os
import time
from pathlib import Path

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition


@tool
def get_order(order_id: str) -> str:
    """Look up an order."""
    return "captured"


@tool
def refund_payment(order_id: str) -> str:
    """Refund a payment."""
    with open(Path(__file__).parent / "REAL", "a") as file:
        file.write("x")
    return "refunded"


ENDED = []


def held():
    return "HELD" in os.environ and len(ENDED) >= 2 and not (Path(__file__).parent / "GO").exists()


class ScriptedDouble(BaseChatModel):
    @property
    def _llm_type(self):
        return "scripted-double"

    def bind_tools(self, tools, **kwargs):
        return self

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        time.sleep(float(os.environ.get("THINK_S", "0")))
        while held():
            time.sleep(0.05)
        done = sum(isinstance(message, ToolMessage) for message in messages)
        order = messages[0].content.split()[-1]
        names = ["get_order", "refund_payment", "refund_payment"]
        if done < len(names):
            call = {"id": f"call-{done}", "name": names[done], "args": {"order_id": order}}
            return _result(AIMessage("On it.", tool_calls=[call]))
        ENDED.append(order)
        return _result(AIMessage("Refunded."))


def _result(message):
    return ChatResult(generations=[ChatGeneration(message=message)])


def once(outcome):
    return sum(step.call.tool == "refund_payment" for step in outcome.transitions) == 1


def agent(state):
    return {"messages": [ScriptedDouble().invoke(state["messages"])]}


builder = StateGraph(MessagesState)
builder.add_node("agent", agent)
builder.add_node("tools", ToolNode([get_order, refund_payment]))
builder.add_edge(START, "agent")
builder.add_conditional_edges("agent", tools_condition)
builder.add_edge("tools", "agent")
graph = builder.compile()
'''

TASKS = "".join(
    f'{{"id": "refund-{number}", "input": "Please refund A-{number}", "checker": "agent:once"}}\n'
    for number in (1, 2)
)


def _write_project(folder: Path) -> Path:
    folder.mkdir()
    (folder / "agent.py").write_text(AGENT)
    (folder / "tasks.jsonl").write_text(TASKS)
    return folder


@pytest.fixture(scope="session")
def recordings(
    tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str], warm: WarmCommand
) -> Path:
    """What `record` makes of both tasks, once for all tests."""
    folder = _write_project(tmp_path_factory.mktemp("recorded") / "project")
    arguments = ["record", "agent:graph", "--tasks", "tasks.jsonl", "--yes"]
    warm.run(arguments, folder, environment).check_returncode()
    return folder / "dreamgym.db"


@pytest.fixture
def recorded(project: Path, recordings: Path) -> Path:
    """The project with recordings of both tasks."""
    for file in recordings.parent.glob("dreamgym.db*"):
        shutil.copy(file, project)
    return project


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with agent.py and tasks.jsonl."""
    return _write_project(tmp_path / "project")


OWN = """
class Own:
    isolated = True
    def configurable(self, world, episode): return {}
    async def reset(self, world, episode): pass
    async def close(self, episode): pass
"""


@pytest.fixture
def own_systems(project: Path) -> Callable[[], None]:
    """Call it, and each episode of the project has a system of its own."""

    def settle() -> None:
        (project / "own_systems.py").write_text(OWN)
        with (project / "dreamgym.toml").open("a") as settings:
            settings.write('\n[environments.default]\nref = "own_systems:Own"\n')

    return settle


@pytest.fixture(scope="session")
def environment() -> dict[str, str]:
    """The environment of a user: none of our variables, no colour, no terminal, no CI."""
    ours = ("DREAMGYM_", "DESK_", "NO_COLOR", "FORCE_COLOR", "COLUMNS")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours) and name != "CI"}


@pytest.fixture(scope="session")
def command() -> str:
    """The installed command."""
    return str(Path(sys.executable).with_name("dreamgym-kit"))


@pytest.fixture(scope="session")
def warm(environment: dict[str, str]) -> Iterator[WarmCommand]:
    """The command with its imports done, once for all tests."""
    with closing(WarmCommand(environment)) as command:
        yield command


@pytest.fixture
def run(project: Path, environment: dict[str, str], warm: WarmCommand) -> Run:
    """Run the command in the project, to its end."""

    def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return warm.run(arguments, project, environment | variables)

    return run


@pytest.fixture
def refusal(run: Run) -> Callable[..., str]:
    """Run a command that cannot be carried out; gives what it says of that, on stderr alone."""

    def refusal(*arguments: str, **variables: str) -> str:
        done = run(*arguments, **variables)
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        assert "Traceback" not in done.stderr
        return done.stderr

    return refusal


@pytest.fixture
def begin(project: Path, environment: dict[str, str], command: str) -> Iterator[Begin]:
    """Begin the installed command in the project; what is left of it ends with the test."""
    with ExitStack() as stack:
        yield lambda *arguments, **variables: stack.enter_context(
            begun([command, *arguments], project, environment | variables)
        )
