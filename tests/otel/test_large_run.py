"""Ten thousand steps are exported in the memory of a few: one episode is held at a time, and one batch."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dreamgym_kit.types import Episode

Write = Callable[..., Path]
STEPS = 10


def episodes(one: Episode, count: int) -> Iterator[Episode]:
    first = one.transitions[0]
    text = "a long answer " * 40
    for number in range(count):
        steps = tuple(
            replace(first, step=step, episode=f"t.{number}", answer=replace(first.answer, content=text))
            for step in range(1, STEPS + 1)
        )
        yield replace(one, id=f"t.{number}", repeat=number + 1, transitions=steps)


# What the system says of a child begins with the memory of the process that it was forked from.
TELLING = """
import pathlib, runpy, sys
sys.argv = sys.argv[1:]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
finally:
    print(pathlib.Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0], file=sys.stderr)
"""


def peak_mib(directory: Path, target: Path) -> float:
    """The most memory that the command ever held."""
    kit = str(Path(sys.executable).with_name("dreamgym-kit"))
    done = subprocess.run(
        [sys.executable, "-c", TELLING, kit, "export", str(directory), "-o", f"otel:{target}"],
        capture_output=True,
        text=True,
        check=True,
    )
    return int(done.stderr.split()[-1]) / 2**10


@pytest.mark.nightly
def test_memory_does_not_grow_with_the_run(write_run: Write, episode: Episode, tmp_path: Path) -> None:
    few = peak_mib(write_run(episodes(episode, 50), "few"), tmp_path / "few.jsonl")
    many = peak_mib(write_run(episodes(episode, 1_000), "many"), tmp_path / "many.jsonl")
    assert (tmp_path / "many.jsonl").stat().st_size > 20 * 2**20
    assert many < few + 10
