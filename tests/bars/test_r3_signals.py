"""R3: the first signal finishes what runs, the second stops; the run resumes.

What a second signal stops would last half an hour at least: that the run ends is what the signal did.
"""

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from each_row import each_row
from waiting import wait_until

from dreamgym_kit.rollout.journal import JournalReader

SCRIPT = Path(__file__).parents[1] / "rollout" / "scripted_run.py"
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}
SIGNALS = list(CODES)
ENDLESS = ("--episodes", "40", "--seconds", "3600")


@contextmanager
def running(root: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A run whose first episode has begun; it ends with the block."""
    events = root / "run" / "events.jsonl"
    with subprocess.Popen(
        [sys.executable, str(SCRIPT), str(root), "run", *options],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A job that a shell put into the background ignores SIGINT, and so would its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        try:
            wait_until(
                lambda: (
                    process.poll() is not None
                    or (events.exists() and "episode_started" in events.read_text())
                ),
                "the first episode",
            )
            yield process
        finally:
            process.kill()


def press(root: Path, process: subprocess.Popen[str], *numbers: signal.Signals) -> float:
    """Send each signal once the one before was taken; returns when the last was sent."""
    pressed = root / f"pressed-{process.pid}"
    for place, number in enumerate(numbers, 1):
        sent = time.monotonic()
        process.send_signal(number)
        wait_until(
            lambda place=place: process.poll() is not None or pressed.stat().st_size >= place,
            f"signal {place} to be taken",
        )
    return sent


def journaled(root: Path) -> set[str]:
    return {episode.id for episode in JournalReader(root / "run" / "episodes.jsonl")}


def begun(root: Path) -> set[str]:
    events = [json.loads(line) for line in (root / "run" / "events.jsonl").read_text().splitlines()]
    return {event["episode"] for event in events if event["event"] == "episode_started"}


def first_signal(root: Path, number: signal.Signals, *options: str, moment_s: float = 0.0) -> None:
    with running(root, "--episodes", "4000", "--seconds", "0.3", *options) as process:
        time.sleep(moment_s)
        press(root, process, number)
        assert process.wait() == CODES[number]
    assert journaled(root) == begun(root), "what ran was finished"
    assert len(journaled(root)) < 4000


def second_signal(root: Path, number: signal.Signals, *options: str, moment_s: float = 0.0) -> None:
    with running(root, *ENDLESS, *options) as process:
        time.sleep(moment_s)
        press(root, process, number, number)
        assert process.wait() == CODES[number]


@each_row("number", SIGNALS)
def test_the_first_signal_finishes_what_runs(tmp_path: Path, number: signal.Signals) -> None:
    first_signal(tmp_path, number)


@each_row("number", SIGNALS)
def test_the_second_signal_stops(tmp_path: Path, number: signal.Signals) -> None:
    second_signal(tmp_path, number)


@pytest.mark.slow
@pytest.mark.parametrize("number", SIGNALS)
def test_over_workers_signals_do_the_same(tmp_path: Path, number: signal.Signals) -> None:
    first_signal(tmp_path / "a", number, "--workers", "2")
    second_signal(tmp_path / "b", number, "--workers", "2", "--way", "blocks")


@each_row("way", ["thread", "blocks", "stubborn"])
def test_the_second_signal_stops_whatever_holds_the_process(tmp_path: Path, way: str) -> None:
    second_signal(tmp_path, signal.SIGINT, "--way", way)


def test_a_stopped_run_resumes_to_its_end(tmp_path: Path) -> None:
    with running(tmp_path, "--episodes", "40", "--seconds", "0.1", "--stand-at", "8") as process:
        wait_until(lambda: process.poll() is not None or len(journaled(tmp_path)) >= 8, "eight episodes")
        press(tmp_path, process, signal.SIGTERM, signal.SIGTERM)
        process.wait()
    before = journaled(tmp_path)
    with running(tmp_path, "--episodes", "40", "--seconds", "0.01") as process:
        totals = json.loads(process.communicate()[0])
    assert totals["earlier"] == len(before) == 8
    verdicts = ("passed", "failed", "inconclusive", "errors")
    assert sum(totals[name] for name in verdicts) == len(journaled(tmp_path)) == 40


@pytest.mark.slow
@pytest.mark.nightly
def test_fifty_random_moments(tmp_path: Path) -> None:
    dice = random.Random(3)
    for place in range(25):
        number = dice.choice(SIGNALS)
        first_signal(tmp_path / f"a{place}", number, moment_s=dice.uniform(0, 1.0))
        way = dice.choice(["await", "thread", "blocks", "stubborn"])
        second_signal(tmp_path / f"b{place}", number, "--way", way, moment_s=dice.uniform(0, 0.5))


@pytest.mark.slow
def test_a_switch_that_is_deaf_to_the_second_signal_is_caught(tmp_path: Path) -> None:
    with running(tmp_path, *ENDLESS, "--plant", "deaf") as process:
        press(tmp_path, process, signal.SIGINT, signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(2)  # expires: nothing is left that would end it
