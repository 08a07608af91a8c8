"""What a new user meets: options of `simulate`, lines of dreamgym.toml, seconds of `--help` and of a start.

`start_over_import_s` is the time from the command to the first episode of the desk, less that of
`python -c "import agent"` in the same environment, both with warm files, the best of five. The agent's module
builds its graph, as most do, so what the agent itself imports counts on neither side.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROUNDS = 5
COMMAND = str(Path(sys.executable).with_name("dreamgym-kit"))
DESK = """from dreamgym_kit.recipes.desk.graph import simple_graph

graph = simple_graph("scripted")
"""
HR = """from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode


def made(tool_name, **arguments):
    def run(**given):
        return "done"

    run.__name__, run.__doc__ = tool_name, f"{tool_name} of an employee."
    run.__annotations__ = arguments
    from pydantic import create_model

    schema = create_model(tool_name, **{key: (kind, ...) for key, kind in arguments.items()})
    return tool(tool_name, args_schema=schema, description=run.__doc__)(run)


TOOLS = [
    made("approve_leave", leave_id=int),
    made("email_employee", employee_id=str, subject=str, body=str),
    made("leave_balance", employee_id=str),
    made("leave_policy", country=str),
    made("list_leaves", employee_id=str),
    made("search_employees", name=str),
    made("submit_leave", employee_id=str, start=str, days=int, reason=str),
    made("withdraw_leave", leave_id=int),
]
builder = StateGraph(MessagesState)
builder.add_node("tools", ToolNode(TOOLS))
builder.add_edge(START, "tools")
graph = builder.compile()
"""


def measure(seed: int) -> list[tuple[str, float, str]]:
    """Figures for the bench runner. Nothing is drawn by chance: the seed changes nothing."""
    return [
        ("simulate_options", visible_options(), "options"),
        ("toml_lines", toml_lines(), "lines"),
        ("help_s", best(lambda: run(Path.cwd(), COMMAND, "--help")), "s"),
        ("start_over_import_s", start_over_import(), "s"),
    ]


def visible_options() -> int:
    """Options that `simulate --help` lists, without `--help` itself."""
    from typer.main import get_command

    from dreamgym_kit.cli.main import app

    listed = get_command(app).commands["simulate"].params  # type: ignore[attr-defined]
    shown = [one for one in listed if one.param_type_name == "option" and not one.hidden]
    return len([one for one in shown if one.name != "help"])


def toml_lines() -> int:
    """Lines that `init` writes for an agent with eight tools."""
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root)
        (folder / "hr_agent.py").write_text(HR)
        run(folder, COMMAND, "init", "hr_agent:graph")
        return len((folder / "dreamgym.toml").read_text().splitlines())


def start_over_import() -> float:
    """Seconds from `simulate` to its first episode on the desk, less those of importing the agent."""
    from dreamgym_kit.recipes.desk.record import RECORDINGS_FILE, SETTINGS_FILE
    from dreamgym_kit.recipes.desk.tasks import TASKS_FILE

    with tempfile.TemporaryDirectory() as root:
        folder = Path(root)
        (folder / "agent.py").write_text(DESK)
        _, _, tools = SETTINGS_FILE.read_text().partition("tasks =")
        settings = f'graph = "agent:graph"\ntasks = "{TASKS_FILE}"\n{tools.partition(chr(10))[2]}'
        (folder / "dreamgym.toml").write_text(settings)
        run(folder, COMMAND, "buffer", "import", str(RECORDINGS_FILE))
        imported = best(lambda: run(folder, sys.executable, "-c", "import agent"))
        starts = [first_episode(folder) for _ in range(ROUNDS + 1)]
        return max(0.0, min(starts[1:]) - imported)


def first_episode(folder: Path) -> float:
    """Seconds from the command to the event that its first episode has started."""
    before = {path.name for path in (folder / "runs").glob("*")}
    began = time.time()
    run(folder, COMMAND, "simulate", codes=(0, 1, 3))
    (made,) = [path for path in (folder / "runs").glob("*") if path.name not in before]
    for line in (made / "events.jsonl").read_text().splitlines():
        event = json.loads(line)
        if event["event"] == "episode_started":
            return float(event["at"]) - began
    raise RuntimeError("no episode was started")


def best(act: Callable[[], object]) -> float:
    """The shortest of some rounds, in seconds; the first of them warms the files."""
    took = []
    for _ in range(ROUNDS + 1):
        began = time.perf_counter()
        act()
        took.append(time.perf_counter() - began)
    return min(took[1:])


def run(folder: Path, *typed: str, codes: tuple[int, ...] = (0,)) -> None:
    """Run a command to its end.

    Raises:
        RuntimeError: it ended with another code.
    """
    done = subprocess.run(typed, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode not in codes:
        raise RuntimeError(f"{' '.join(typed)} ended with {done.returncode}\n{done.stdout}\n{done.stderr}")
