"""R3: the first signal finishes what runs (under 10 s), the second stops (under 1 s); the run resumes.

The seconds are those that the run's process had: a pause of the machine's counts as MOST_PAUSE_S at most.
"""

import json
import random
import signal
import subprocess
import sys
import time
from array import array
from itertools import pairwise
from pathlib import Path

import pytest

from dreamgym_kit.rollout.journal import JournalReader

SCRIPT = Path(__file__).parents[1] / "rollout" / "scripted_run.py"
FIRST_S, SECOND_S = 10.0, 1.0
MOST_PAUSE_S = 0.05  # between two turns of a process that looks for one every 10 ms
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}
SIGNALS = list(CODES)


def start(root: Path, *options: str) -> subprocess.Popen[str]:
    """Begin a run; give it back once its first episodes run."""
    events = root / "run" / "events.jsonl"
    process = subprocess.Popen(
        [sys.executable, str(SCRIPT), str(root), "run", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A job that a shell put into the background ignores SIGINT, and so would its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    while process.poll() is None and not (events.exists() and events.stat().st_size):
        time.sleep(0.005)
    return process


def signalled(
    root: Path, process: subprocess.Popen[str], *numbers: signal.Signals, most_s: float = 30.0
) -> float:
    """Send the signals, each once the one before was taken; give the seconds from the last one to the end."""
    pressed = root / f"pressed-{process.pid}"
    for place, number in enumerate(numbers):
        while process.poll() is None and pressed.stat().st_size < place:  # two at once would be one
            time.sleep(0.005)
        process.send_signal(number)
    sent = time.monotonic()
    while process.poll() is None and had(root, process, sent) < most_s:
        time.sleep(0.02)
    process.kill()
    process.communicate()
    return had(root, process, sent)


def had(root: Path, process: subprocess.Popen[str], since: float) -> float:
    """The seconds that a process had since then, without those in which it got no turn."""
    turns = array("d")
    turns.frombytes((root / f"turns-{process.pid}").read_bytes())
    times = [since, *(turn for turn in turns if turn > since)]
    return sum(min(after - before, MOST_PAUSE_S) for before, after in pairwise(times))


def journaled(root: Path) -> set[str]:
    return {episode.id for episode in JournalReader(root / "run" / "episodes.jsonl")}


def begun(root: Path) -> set[str]:
    events = [json.loads(line) for line in (root / "run" / "events.jsonl").read_text().splitlines()]
    return {event["episode"] for event in events if event["event"] == "episode_started"}


def first_signal(root: Path, number: signal.Signals, moment_s: float, *options: str) -> float:
    process = start(root, "--episodes", "4000", "--seconds", "0.3", *options)
    time.sleep(moment_s)
    seconds = signalled(root, process, number)
    assert process.returncode == CODES[number]
    assert journaled(root) == begun(root), "what ran was finished"
    assert len(journaled(root)) < 4000
    return seconds


def second_signal(root: Path, number: signal.Signals, moment_s: float, *options: str) -> tuple[float, int]:
    process = start(root, "--episodes", "40", "--seconds", "600", *options)
    time.sleep(moment_s)
    seconds = signalled(root, process, number, number)
    return seconds, process.returncode


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_finishes_what_runs(tmp_path: Path, number: signal.Signals) -> None:
    seconds = first_signal(tmp_path, number, 0.2)
    print(f"R3 first {seconds:.2f} s")
    assert seconds < FIRST_S


@pytest.mark.parametrize("number", SIGNALS)
def test_the_second_signal_stops(tmp_path: Path, number: signal.Signals) -> None:
    seconds, code = second_signal(tmp_path, number, 0.1)
    print(f"R3 second {seconds:.2f} s")
    assert (seconds < SECOND_S, code) == (True, CODES[number])


@pytest.mark.slow
@pytest.mark.parametrize("number", SIGNALS)
def test_over_workers_signals_do_the_same(tmp_path: Path, number: signal.Signals) -> None:
    first = first_signal(tmp_path / "a", number, 0.2, "--workers", "2")
    second, code = second_signal(tmp_path / "b", number, 0.1, "--workers", "2", "--way", "blocks")
    print(f"R3 workers first {first:.2f} s second {second:.2f} s")
    assert (first < FIRST_S, second < SECOND_S, code) == (True, True, CODES[number])


@pytest.mark.parametrize("way", ["thread", "blocks", "stubborn"])
def test_the_second_signal_stops_whatever_holds_the_process(tmp_path: Path, way: str) -> None:
    seconds, code = second_signal(tmp_path, signal.SIGINT, 0.1, "--way", way)
    assert (seconds < SECOND_S, code) == (True, 130)


def test_a_stopped_run_resumes_to_its_end(tmp_path: Path) -> None:
    process = start(tmp_path, "--episodes", "40", "--seconds", "0.1", "--stand-at", "8")
    while process.poll() is None and len(journaled(tmp_path)) < 8:
        time.sleep(0.02)
    signalled(tmp_path, process, signal.SIGTERM, signal.SIGTERM)
    before = journaled(tmp_path)
    out, _ = start(tmp_path, "--episodes", "40", "--seconds", "0.01").communicate(timeout=100)
    totals = json.loads(out)
    assert totals["earlier"] == len(before) == 8
    assert totals["success"] + totals["failure"] + totals["undetermined"] == len(journaled(tmp_path)) == 40


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_fifty_random_moments(tmp_path: Path) -> None:
    dice = random.Random(3)
    first, second = [], []
    for place in range(25):
        number = dice.choice(SIGNALS)
        first.append(first_signal(tmp_path / f"a{place}", number, dice.uniform(0, 1.0)))
        way = dice.choice(["await", "thread", "blocks", "stubborn"])
        seconds, code = second_signal(tmp_path / f"b{place}", number, dice.uniform(0, 0.5), "--way", way)
        assert code == CODES[number]
        second.append(seconds)
    print(f"R3 moments=50 first_max={max(first):.2f} s second_max={max(second):.2f} s")
    assert max(first) < FIRST_S
    assert max(second) < SECOND_S


@pytest.mark.slow
def test_a_switch_that_is_deaf_to_the_second_signal_is_caught(tmp_path: Path) -> None:
    process = start(tmp_path, "--episodes", "40", "--seconds", "600", "--plant", "deaf")
    assert signalled(tmp_path, process, signal.SIGINT, signal.SIGINT, most_s=2 * SECOND_S) >= SECOND_S
    assert process.returncode == -signal.SIGKILL
