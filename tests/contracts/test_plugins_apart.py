"""Plug-ins: without one of their folders every command that is not its own does what it did before."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import dreamgym_kit
from dreamgym_kit.recipes.desk.record import RECORDINGS_FILE, SETTINGS_FILE
from dreamgym_kit.recipes.desk.tasks import TASKS_FILE

PLUGINS: Mapping[str, tuple[str, ...]] = {
    "weaviate": ("adapters/stores/weaviate*",),
    "workers": (
        "adapters/engines",
        "rollout/distributed.py",
        "rollout/worker.py",
        "adapters/langgraph/run/worker*",
    ),
    "vllm": ("adapters/models/vllm",),
    "otel": ("adapters/otel",),
    "traces": ("adapters/traces",),
    "page": ("report/page",),
    "pytest": ("adapters/pytest_plugin",),
    "plots": ("adapters/plots.py",),
    "learned": ("dream/learned",),
    "judge": ("dream/judge.py",),
    "deployment": (
        "adapters/langgraph/deploy.py",
        "deployment/card.py",
        "deployment/model_registry.py",
    ),
    "training": (
        "adapters/distilling",
        "adapters/langgraph/training",
        "adapters/trainers",
        "curriculum",
        "training",
    ),
}
COMMANDS = (
    ("init",),
    ("doctor",),
    ("simulate", "-k", "double-01", "-o", "summary.md", "-o", "junit.xml"),
    ("evaluate", "-k", "double-01"),
    ("report",),
    ("runs", "list"),
    ("buffer", "stats"),
    ("buffer", "search", "refund"),
)

EACH = """
import json, os, sys
import langchain.agents  # nearly every command does: once here, and each command is a fork of this
codes = []
for typed in json.loads(sys.argv[1]):
    if not os.fork():
        sys.argv = ["dreamgym-kit", *typed]
        from dreamgym_kit.cli.main import main
        main()
    codes.append(os.waitstatus_to_exitcode(os.wait()[1]))
print("codes:", *codes)
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int]]:
    """A copy of the package in the form that it is installed in, and how each command ends there."""
    root = tmp_path_factory.mktemp("whole")
    package = Path(dreamgym_kit.__file__).parent
    shutil.copytree(package, root / "dreamgym_kit", ignore=shutil.ignore_patterns("__pycache__"))
    return root, ended(root, root / "project")


def ended(root: Path, project: Path) -> list[int]:
    """The exit code of each command in a new project, with the package under `root`."""
    project.mkdir()
    (project / "agent.py").write_text(
        'from dreamgym_kit.recipes.desk.graph import simple_graph\n\ngraph = simple_graph("scripted")\n'
    )
    _, _, rest = SETTINGS_FILE.read_text().partition("tasks =")
    rest = rest.partition("\n")[2]
    (project / "dreamgym.toml").write_text(f'graph = "agent:graph"\ntasks = "{TASKS_FILE}"\n{rest}')
    commands = (("buffer", "import", str(RECORDINGS_FILE)), *COMMANDS)
    paths = os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", EACH, json.dumps(commands)],
        cwd=project,
        env={**os.environ, "PYTHONPATH": paths, "PYTHONSAFEPATH": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr[-2000:]
    return list(map(int, done.stdout.rpartition("codes:")[2].split()))


@pytest.mark.slow
@pytest.mark.parametrize(
    "names",
    [tuple(PLUGINS), *(pytest.param((name,), marks=pytest.mark.nightly) for name in PLUGINS)],
    ids=" ".join,
)
def test_without_plug_ins_the_other_commands_end_as_before(
    names: tuple[str, ...], whole: tuple[Path, list[int]], tmp_path: Path
) -> None:
    root, before = whole
    shutil.copytree(root / "dreamgym_kit", tmp_path / "dreamgym_kit")
    for pattern in (pattern for name in names for pattern in PLUGINS[name]):
        gone = list((tmp_path / "dreamgym_kit").glob(pattern))
        assert gone, f"{pattern} is not in the package"
        for path in gone:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert ended(tmp_path, tmp_path / "project") == before
