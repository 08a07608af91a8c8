"""A newcomer's first minutes: README's two commands, in a fresh copy and fresh environments, by the clock.

`setup_s` is what stands before `demo` in the first command (environment and install), `demo_s` the demo
itself; `tests_setup_s` what stands before `pytest` in the second. The suite itself is what CI measures: here
it only has to be reached and pass one test. Also counted: what has to be typed, and the packages of a base
install, with those that langgraph alone would bring. What was typed is told on stderr.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
_CONSOLE = re.compile(r"```console\n(.*?)```", re.DOTALL)
_LEFT_OUT = (".git", ".links", "__pycache__", "runs")
_LONGEST_S = 1800
_TYPED: list[tuple[str, float]] = []  # what was typed, and the seconds it took


def measure(seed: int) -> list[tuple[str, float, str]]:
    """Figures for the bench runner. Nothing is drawn by chance: the seed changes nothing."""
    demo, tests = commands((CHECKOUT / "README.md").read_text("utf-8"))
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root) / "clone"
        shutil.copytree(CHECKOUT, folder, ignore=_not_a_clones)
        *install, shown = demo
        setup_s = sum(typed(part, folder) for part in install)
        demo_s = typed(shown, folder)
        ours, theirs = (packages(what, folder) for what in (".", langgraph_of(folder)))
        shutil.rmtree(folder / ".venv")
        *install, suite = tests
        tests_setup_s = sum(typed(part, folder) for part in install)
        typed(suite, folder, PYTEST_ADDOPTS="-k public_names")
    return [
        ("setup_s", setup_s, "s"),
        ("demo_s", demo_s, "s"),
        ("tests_setup_s", tests_setup_s, "s"),
        ("typed", len(demo), "commands to the demo"),
        ("packages", len(ours), "of a base install"),
        ("packages_langgraph", len(theirs), "of them langgraph's own"),
        ("packages_ours", len(ours - theirs), "of them the kit's"),
    ]


def table() -> str:
    """What a newcomer has to know and to type, with the seconds that each takes."""
    rows = "".join(f"| `{command}` | {seconds:.1f} |\n" for command, seconds in _TYPED)
    know = "To know: Python 3.11 or later, and a clone of this repository. No key, no account, no setting."
    return f"{know}\n\n| typed | seconds |\n| --- | --- |\n{rows}"


def quick(seed: int) -> list[tuple[str, float, str]]:
    """The demo alone, in the environment that is there."""
    command = Path(sys.executable).with_name("dreamgym-kit")
    with tempfile.TemporaryDirectory() as folder:
        return [("demo_s", typed(f"{command} demo", Path(folder)), "s")]


def commands(readme: str) -> list[list[str]]:
    """README's two commands, each as the parts that it is joined from."""
    lines = [line for block in _CONSOLE.findall(readme) for line in block.splitlines()]
    found = [line.split(" && ") for line in lines if " -m venv " in line]
    if len(found) != 2:
        raise RuntimeError(f"README.md has {len(found)} commands that begin with an environment, not 2")
    return found


def typed(command: str, folder: Path, **more: str) -> float:
    """Seconds that a command takes as a person would type it.

    Raises:
        RuntimeError: it failed.
    """
    print(f"  $ {command}", file=sys.stderr)
    begun = time.perf_counter()
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env={**os.environ, "PYTHONSAFEPATH": "", **more},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=_LONGEST_S,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(
            f"{command}: ended with {done.returncode}: {done.stdout[-500:]}{done.stderr[-2000:]}"
        )
    _TYPED.append((command, time.perf_counter() - begun))
    return _TYPED[-1][1]


def packages(what: str, folder: Path) -> set[str]:
    """Names of what pip would install for it into an empty environment."""
    report = folder / "packages.json"
    typed(f".venv/bin/pip install -q --dry-run --ignore-installed --report {report.name} '{what}'", folder)
    _TYPED.pop()  # ours to count with, nobody's to type
    return {str(one["metadata"]["name"]).lower() for one in json.loads(report.read_text())["install"]}


def langgraph_of(folder: Path) -> str:
    """The kit's own requirement of langgraph."""
    (found,) = re.findall(r'"(langgraph[><=][^"]*)"', (folder / "pyproject.toml").read_text())
    return str(found)


def _not_a_clones(folder: str, names: list[str]) -> list[str]:
    """What lies in a working copy and in no clone of it."""
    return [
        name
        for name in names
        if name in _LEFT_OUT or name.endswith("_cache") or (Path(folder) / name / "pyvenv.cfg").is_file()
    ]
