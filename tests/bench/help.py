"""What `dreamgym-kit --help` costs: it imports nothing but typer, and takes little longer than typer does.

The comparison is a bare typer app with as many commands, run by turns; CPU time of the whole process.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

ROUNDS = 25
OURS = "from dreamgym_kit.cli.main import main\nmain()\n"
_THEN_TELL = """
import atexit, runpy, sys
atexit.register(lambda: print("\\n" + " ".join(sorted({name.partition(".")[0] for name in sys.modules}))))
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def measure(seed: int) -> list[tuple[str, float, str]]:
    """Figures for the bench runner. Nothing is drawn by chance: the seed changes nothing."""
    return figures()


def quick(seed: int) -> list[tuple[str, float, str]]:
    """The figures in small: of few rounds the quickest, which neighbours disturbed least."""
    return figures(rounds=11, of=min)


def figures(
    rounds: int = ROUNDS, of: Callable[[list[float]], float] = statistics.median
) -> list[tuple[str, float, str]]:
    """CPU time of `--help` to that of the bare app, medians unless told otherwise.

    Raises:
        RuntimeError: `--help` imported a package that typer does not need.
    """
    with tempfile.TemporaryDirectory() as folder:
        ours, bare = Path(folder) / "ours.py", Path(folder) / "bare.py"
        ours.write_text(OURS)
        bare.write_text(bare_app(len(commands())))
        more = imported(ours) - imported(bare) - {"dreamgym_kit"} - set(sys.stdlib_module_names)
        if more:
            raise RuntimeError(f"--help imported {', '.join(sorted(more))}")
        seconds: dict[Path, list[float]] = {ours: [], bare: []}
        for turn in range(rounds + 1):
            for script in (ours, bare):
                took = cpu_seconds(script, Path(folder) / "compiled")
                seconds[script] += [took] if turn else []  # what the first turn compiles is not compared
    ratio = of(seconds[ours]) / of(seconds[bare])
    return [("typer_ratio", ratio, "of a bare typer app")]


def commands() -> list[str]:
    """Every command of ours, those of groups too."""
    code = (
        "import json, typer.main, dreamgym_kit.cli.main as m\n"
        "def names(c):\n"
        "    if not hasattr(c, 'commands'):\n"
        "        return [c.name]\n"
        "    return [name for one in c.commands.values() for name in names(one)]\n"
        "print(json.dumps(names(typer.main.get_command(m.app))))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
    found: list[str] = json.loads(done.stdout)
    return found


def bare_app(number: int) -> str:
    """Source of a typer app with this many commands that do nothing."""
    lines = ["import typer", "app = typer.Typer(add_completion=False, rich_markup_mode=None)"]
    for one in range(number):
        lines += [
            "@app.command()",
            f"def command{one}(name: str = 'x', count: int = 1) -> None:",
            "    'Do it.'",
        ]
    return "\n".join([*lines, "app()", ""])


def imported(script: Path) -> set[str]:
    """Top-level names of all modules that `--help` leaves imported."""
    command = [sys.executable, "-c", _THEN_TELL, str(script), "--help"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def cpu_seconds(script: Path, compiled: Path) -> float:
    """CPU time of one `--help`, as the system counted it; bytecode is kept in a folder of its own."""
    command = [sys.executable, str(script), "--help"]
    known = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment = known | {"PYTHONPYCACHEPREFIX": str(compiled)}
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        raise RuntimeError(f"{script.name} --help ended with code {child.returncode}")
    return usage.ru_utime + usage.ru_stime
