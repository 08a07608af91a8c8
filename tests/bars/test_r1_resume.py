"""R1: a run that was killed and resumed is the unbroken run: same digests, same totals, nothing twice."""

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from waiting import wait_until

from dreamgym_kit.rollout.journal import JournalReader

SCRIPT = Path(__file__).parents[1] / "rollout" / "scripted_run.py"


@dataclass(frozen=True)
class Figures:
    different: int
    done_twice: int
    missing: int
    same_totals: bool
    kills: int


def command(root: Path, name: str, *options: str) -> list[str]:
    return [sys.executable, str(SCRIPT), str(root), name, *options]


def finish(root: Path, name: str, *options: str) -> dict[str, object]:
    done = subprocess.run(command(root, name, *options), stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def kill_after(target: int, root: Path, name: str, *options: str, moment_s: float) -> int:
    """Kill a run that has so many episodes and never ends by itself; gives the code with which it ended."""
    stands = ("--stand-at", str(target + 8))  # it comes by the target, however late it is killed
    with subprocess.Popen(command(root, name, *options, *stands), stdout=subprocess.DEVNULL) as process:
        try:
            wait_until(
                lambda: process.poll() is not None or len(lines(root, name)) >= target, f"{target} episodes"
            )
            time.sleep(moment_s)
        finally:
            process.kill()
    return process.returncode


def lines(root: Path, name: str) -> list[str]:
    """Ids in the journal's file as they stand there: the reader would hide one that stands twice."""
    path = root / name / "episodes.jsonl"
    text = path.read_text() if path.exists() else ""
    return [
        json.loads(line)["episode"]["id"] for line in text.splitlines(keepends=True) if line.endswith("\n")
    ]


def killed_and_resumed(root: Path, *, episodes: int, kills: int, plant: tuple[str, ...] = ()) -> Figures:
    size = ("--episodes", str(episodes))
    whole = finish(root, "unbroken", *size)
    dice = random.Random(1)
    killed = 0
    for target in sorted(dice.sample(range(1, episodes - 10), kills)):
        code = kill_after(target, root, "killed", *size, *plant, moment_s=dice.uniform(0, 0.01))
        killed += code == -signal.SIGKILL
    resumed = finish(root, "killed", *size, *plant)
    unbroken = {episode.id: episode.digest for episode in JournalReader(root / "unbroken/episodes.jsonl")}
    again = {episode.id: episode.digest for episode in JournalReader(root / "killed/episodes.jsonl")}
    counted = (
        *("total", "passed", "failed", "inconclusive", "errors", "cut", "not_run"),
        *("calls", "cost_usd", "stopped"),
    )
    assert len(unbroken) == episodes
    return Figures(
        different=sum(again.get(name) != digest for name, digest in unbroken.items()),
        done_twice=sum(count - 1 for count in Counter(lines(root, "killed")).values()),
        missing=len(unbroken.keys() - again.keys()),
        same_totals=all(whole[name] == resumed[name] for name in counted),
        kills=killed,
    )


def test_a_killed_and_resumed_run_is_the_unbroken_one(tmp_path: Path) -> None:
    figures = killed_and_resumed(tmp_path, episodes=60, kills=3)
    print(f"R1 {figures}")
    assert figures == Figures(0, 0, 0, True, 3)


@pytest.mark.slow
def test_two_hundred_episodes_killed_at_twenty_random_points(tmp_path: Path) -> None:
    figures = killed_and_resumed(tmp_path, episodes=200, kills=20)
    print(f"R1 {figures}")
    assert figures == Figures(0, 0, 0, True, 20)


@pytest.mark.slow
def test_over_workers_it_is_the_same(tmp_path: Path) -> None:
    figures = killed_and_resumed(tmp_path, episodes=60, kills=2, plant=("--workers", "2"))
    print(f"R1 workers {figures}")
    assert figures == Figures(0, 0, 0, True, 2)


@pytest.mark.slow
def test_a_journal_that_forgets_what_is_done_is_caught(tmp_path: Path) -> None:
    assert killed_and_resumed(tmp_path, episodes=40, kills=2, plant=("--plant", "forgetful")).done_twice > 0


@pytest.mark.slow
def test_episodes_that_depend_on_the_order_they_ran_in_are_caught(tmp_path: Path) -> None:
    assert killed_and_resumed(tmp_path, episodes=40, kills=2, plant=("--way", "by-order")).different > 0
