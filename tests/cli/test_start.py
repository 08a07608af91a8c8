"""The start of a dry run: before its first episode it imports what it uses, and nothing else."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dreamgym_kit.recipes.desk.record import RECORDINGS_FILE, SETTINGS_FILE
from dreamgym_kit.recipes.desk.tasks import TASKS_FILE

AGENT = """
import json, sys
from langgraph.graph import START, MessagesState, StateGraph
from dreamgym_kit.recipes.desk.graph import simple_graph

def imported(state):
    print("IMPORTED", json.dumps(sorted(sys.modules)), file=sys.stderr)
    return {}

built = StateGraph(MessagesState)
built.add_node("desk", simple_graph("scripted"))
built.add_node("imported", imported)
built.add_edge(START, "desk")
built.add_edge("desk", "imported")
graph = built.compile()
"""
ALONE = """import json, sys
sys.path.insert(0, "")
import agent
print("IMPORTED", json.dumps(sorted(sys.modules)), file=sys.stderr)
"""
# What the command line, settings and recordings are read with, and what checks arguments of MCP tools.
NEEDED = {
    "annotated_doc",
    "attr",
    "attrs",
    "jsonschema",
    "jsonschema_specifications",
    "msgspec",
    "referencing",
}
NEEDED |= {"referencing", "rpds", "shellingham", "typer"}
AGENTS_OWN = {"agent", "langchain", "langchain_core", "langgraph"}
UNUSED = (
    *("adapters.distilling", "adapters.embedders.models"),
    *("adapters.engines", "adapters.langgraph.deploy"),
    *("adapters.langgraph.run.workers", "adapters.models.endpoint", "adapters.models.http"),
    *("adapters.models.local", "adapters.models.remote", "adapters.models.vllm", "adapters.otel"),
    *("adapters.plots", "adapters.pytest_plugin", "adapters.stores.sqlite_search"),
    *("adapters.stores.weaviate", "adapters.traces", "curriculum", "dream.drafting"),
    *("dream.judge", "dream.learned"),
    *("report.page", "report.terminal", "rollout.distributed", "rollout.worker", "settings.render"),
    *("training.alarms", "training.batching", "training.loop"),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "agent.py").write_text(AGENT)
    _, _, rest = SETTINGS_FILE.read_text().partition("tasks =")
    rest = rest.partition("\n")[2]
    (tmp_path / "dreamgym.toml").write_text(f'graph = "agent:graph"\ntasks = "{TASKS_FILE}"\n{rest}')
    kit(tmp_path, "buffer", "import", str(RECORDINGS_FILE))
    return tmp_path


def kit(folder: Path, *typed: str) -> str:
    return python(folder, "-m", "dreamgym_kit.cli.main", *typed)


def python(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 1, 3), done.stderr
    return done.stderr


def imported(stderr: str) -> set[str]:
    (line, *_) = [line for line in stderr.splitlines() if line.startswith("IMPORTED ")]
    return set(json.loads(line.partition(" ")[2]))


def test_a_dry_run_imports_nothing_that_it_does_not_use(folder: Path) -> None:
    dry_run = imported(kit(folder, "simulate", "-k", "double-01"))
    more = dry_run - imported(python(folder, "-c", ALONE))
    packages = {name.partition(".")[0] for name in more}
    assert packages - NEEDED - AGENTS_OWN - set(sys.stdlib_module_names) - {"dreamgym_kit"} == set()
    ours = {name.removeprefix("dreamgym_kit.") for name in more if name.startswith("dreamgym_kit.")}
    assert sorted(name for name in ours if name.startswith(UNUSED)) == []
