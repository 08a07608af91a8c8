"""The kernel sandbox: what gets out of it, what is told of it, and what it costs.

`escapes`: of `tries` ways out (tests/confined/escapes.py), those that succeed in the namespace sandbox, as
seen from outside where that can show it; `escapes_landlock`: the same where namespaces are refused, by the
filter of tests/confined/no_namespaces.py. `reported_share`: of the tries that the namespace sandbox held,
those that stderr, or a report, has. `start_ms`: the median time of `enter` in a fresh process. `share`:
episodes a second of the support desk, 216 episodes at concurrency 16, in the namespace sandbox, as a share
of those without one; the runs take turns, and the best of each is compared: neighbours only slow them down.
"""

import json
import statistics
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from confined.canary import Canary, Outcome

from dreamgym_kit.sandbox.confining import NAMESPACES, available

KIT = str(Path(sys.executable).with_name("dreamgym-kit"))
REFUSED = [sys.executable, str(Path(__file__).parents[1] / "confined" / "no_namespaces.py")]
STARTS, ROUNDS = 15, 5
ENTER = """
import sqlite3, time
from dreamgym_kit.sandbox.confining import Plan, enter
began = time.perf_counter()
enter(Plan(hosts=("api.openai.com", "localhost:8000")), wanted="require")
print(1000 * (time.perf_counter() - began))
"""


class NotHere(Exception):
    """This machine has no namespace sandbox."""

    skips = True


def measure(seed: int) -> list[tuple[str, float, str]]:
    """Figures for the bench runner; `seed`: of the desk's run."""
    best = available()
    if best.kind != NAMESPACES:
        raise NotHere(str(best))
    whole, weaker = escapes([]), escapes(REFUSED)
    held = len(whole.tried) - len(whole.escaped)
    if weaker.escaped:
        print(f"sandbox: out of Landlock: {', '.join(weaker.escaped)}", file=sys.stderr)
    return [
        ("tries", len(whole.tried), "ways out"),
        ("escapes", len(whole.escaped), "ways out"),
        ("escapes_landlock", len(weaker.escaped), "ways out"),
        ("reported_share", len(whole.told) / held, "of those held"),
        ("start_ms", statistics.median(start_ms() for _ in range(STARTS)), "ms"),
        ("share", share(seed), "of the throughput without it"),
    ]


def escapes(below: list[str]) -> Outcome:
    """Try everything in the sandbox that stands below these words."""
    with tempfile.TemporaryDirectory() as root, Canary(Path(root, "outside")) as canary:
        (project := Path(root, "project")).mkdir()
        return canary.run([*below, KIT, "sandbox", "--"], project)


def start_ms() -> float:
    """Milliseconds that one process takes to enter."""
    done = subprocess.run([sys.executable, "-c", ENTER], capture_output=True, text=True, check=True)
    return float(done.stdout)


def share(seed: int) -> float:
    """Throughput with the sandbox, as a share of that without."""
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root)
        _desk(folder)
        seconds: dict[str, list[float]] = {"auto": [], "off": []}
        for _ in range(ROUNDS):
            for way, taken in seconds.items():
                taken.append(_seconds(folder, way, seed))
    return min(seconds["off"]) / min(seconds["auto"])


def _desk(folder: Path) -> None:
    from dreamgym_kit.adapters.stores.sqlite import SqliteStore
    from dreamgym_kit.recipes.desk.record import RECORDINGS_FILE, SETTINGS_FILE
    from dreamgym_kit.recipes.desk.tasks import TASKS_FILE
    from dreamgym_kit.replay.transfer import import_jsonl

    with closing(SqliteStore(folder / "dreamgym.db")) as store:
        import_jsonl(RECORDINGS_FILE, store)
    settings = SETTINGS_FILE.read_text("utf-8").replace("data/tasks.jsonl", str(TASKS_FILE))
    (folder / "dreamgym.toml").write_text(settings, "utf-8")


def _seconds(folder: Path, way: str, seed: int) -> float:
    command = [
        KIT,
        "simulate",
        "-n",
        "3",
        "--set",
        "simulate.concurrency=16",
        "--set",
        f"simulate.seed={seed}",
    ]
    done = subprocess.run(
        [*command, "--set", f"guard.sandbox={way}", "--json"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    report = json.loads(done.stdout)
    assert (report["sandbox"]["kind"] == NAMESPACES) is (way == "auto"), report["sandbox"]
    assert sum(report["counts"].values()) == 216, report["headline"]
    return float(report["cost"]["seconds"])
