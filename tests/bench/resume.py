"""A run of `dreamgym-kit simulate` that is killed again and again, and resumed: is it the unbroken run?

200 episodes of the support desk from its shipped recordings, by the real command. The kills fall at random
numbers of finished episodes and a random moment later; the process ends itself there, for who watches it from
outside may look too late. Compared are the digests of all episodes and every
figure of report.json but times and names of the run.
"""

import json
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

EPISODES = 200
SIBLINGS = 4
KILLS = 20
PATIENCE_S = 300.0
COMMAND = "from dreamgym_kit.cli.main import main; main()"
DIES = """
import os, sys, threading, time
from dreamgym_kit.guard.egress import exempt
from dreamgym_kit.rollout.journal import Journal

finished, later_s, episodes = int(sys.argv.pop(1)), float(sys.argv.pop(1)), int(sys.argv.pop(1))
opened, append, dying = Journal.__init__, Journal.append, threading.Event()

def die():
    time.sleep(later_s)
    with exempt():
        os.kill(os.getpid(), 9)

def look(journal):
    if len(journal.done) >= finished and not dying.is_set():
        dying.set()
        threading.Thread(target=die, daemon=True).start()

def watched(journal, *arguments, **named):
    opened(journal, *arguments, **named)
    look(journal)

def counted(journal, episode):
    if len(journal.done) == episodes - 1:
        time.sleep(3600)  # the run does not end before it is killed
    added = append(journal, episode)
    look(journal)
    return added

Journal.__init__, Journal.append = watched, counted
"""


@dataclass(frozen=True, slots=True)
class Trial:
    """What an unbroken run and a broken one have shown."""

    episodes: int
    kills: int
    different: int  # episodes that differ, are missing, or stand in the journal twice
    report_differs: tuple[str, ...]  # parts of report.json


def measure(seed: int) -> list[tuple[str, float, str]]:
    """Figures for the bench runner: episodes that differ; a report that differs counts as one more."""
    trial = run_trial(seed)
    return [("different", trial.different + len(trial.report_differs), "episodes")]


def quick(seed: int) -> list[tuple[str, float, str]]:
    """The figure in small."""
    trial = run_trial(seed, episodes=60, kills=3)
    return [("different", trial.different + len(trial.report_differs), "episodes")]


def run_trial(seed: int, *, episodes: int = EPISODES, kills: int = KILLS) -> Trial:
    """Run once unbroken and once with `kills` kills.

    Raises:
        RuntimeError: the command failed, or ended before all kills were done.
    """
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        desk = _Desk(Path(name), episodes)
        whole = desk.finish("whole")
        for finished in sorted(chance.sample(range(episodes * 9 // 10), kills)):
            desk.kill("broken", finished, chance.uniform(0, 0.05))
        broken = desk.finish("broken")
        twice = desk.lines("broken") - len(broken)
        return Trial(
            episodes=len(whole),
            kills=kills,
            different=twice + sum(whole.get(one) != broken.get(one) for one in whole.keys() | broken.keys()),
            report_differs=_differing(desk.report("whole"), desk.report("broken")),
        )


class _Desk:
    """The support desk, its recordings and its tasks in a folder of their own."""

    def __init__(self, folder: Path, episodes: int) -> None:
        from dreamgym_kit.recipes.desk.record import RECORDINGS_FILE, SETTINGS_FILE
        from dreamgym_kit.recipes.desk.tasks import TASKS_FILE

        self._folder, self._episodes = folder, episodes
        self._settings = SETTINGS_FILE
        self._tasks = folder / "tasks.jsonl"
        lines = TASKS_FILE.read_text("utf-8").splitlines(keepends=True)[: episodes // SIBLINGS]
        if len(lines) * SIBLINGS != episodes:
            raise RuntimeError(f"the desk has {len(lines)} tasks: not enough for {episodes} episodes")
        self._tasks.write_text("".join(lines), "utf-8")
        done = self._command("buffer", "import", str(RECORDINGS_FILE), "--buffer", str(folder / "desk.db"))
        if done.wait(PATIENCE_S) != 0:
            raise RuntimeError("the desk's recordings could not be imported")

    def kill(self, runs: str, finished: int, later_s: float) -> None:
        """Go on with the run below the folder `runs`; SIGKILL it once so many episodes are in the journal."""
        dies = (str(finished), str(later_s), str(self._episodes))
        code = self._start(runs, dies).wait(PATIENCE_S)
        if code != -signal.SIGKILL:
            raise RuntimeError(f"the run ended with code {code} before it was killed")

    def finish(self, runs: str) -> dict[str, str]:
        """Go on with the run below the folder `runs` to its end; give the digests by episode."""
        from dreamgym_kit.rollout.rundir import RunDirectory

        code = self._start(runs).wait(PATIENCE_S)
        if code not in (0, 1):  # 1: the gate of the scripted agent's planted bug
            raise RuntimeError(f"simulate ended with code {code}")
        return {one.id: one.digest for one in RunDirectory.open(self._run(runs)).episodes()}

    def lines(self, runs: str) -> int:
        """Whole lines of the journal."""
        journals = list((self._folder / runs).glob("*/episodes.jsonl"))
        return journals[0].read_bytes().count(b"\n") if journals else 0

    def report(self, runs: str) -> dict[str, Any]:
        """The report of the run below the folder `runs`."""
        found: dict[str, Any] = json.loads((self._run(runs) / "report.json").read_text("utf-8"))
        return found

    def _run(self, runs: str) -> Path:
        (found,) = (self._folder / runs).glob("*/manifest.json")
        return found.parent

    def _start(self, runs: str, dies: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        """Begin a run below the folder `runs`, or go on with the one that is there."""
        begun = any((self._folder / runs).glob("*/manifest.json"))
        where = ["--buffer", str(self._folder / "desk.db")]
        what = ["--tasks", str(self._tasks), "-n", str(SIBLINGS), "--set", f"runs={self._folder / runs!s}"]
        again = ["--resume", str(self._run(runs))] if begun else []
        return self._command(
            "--config", str(self._settings), "simulate", *where, *what, *again, "--json", dies=dies
        )

    def _command(self, *arguments: str, dies: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", DIES + COMMAND if dies else COMMAND, *dies, *arguments]
        return subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=self._folder
        )


def _differing(one: dict[str, Any], other: dict[str, Any]) -> tuple[str, ...]:
    """The parts in which two reports differ, but for times and names of the run."""
    for report in (one, other):
        report["manifest"] = {key: report["manifest"][key] for key in ("mode", "graph", "not_run", "strays")}
        report["cost"].pop("seconds")
    return tuple(sorted(key for key in one.keys() | other.keys() if one.get(key) != other.get(key)))
