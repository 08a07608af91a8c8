"""How many real bodies run in dreams, over every shape, sync and async.

Each body leaves a line in a file and a connection to loopback; a row counts as leaking when either is
there. Rows are run in random order, again and again, until there were enough calls.
"""

import random
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))  # `shapes` lies beside this folder
from shapes.canary import Canary, canary_in
from shapes.everything import rows, run_dreamt
from shapes.stage import Shape

from dreamgym_kit.adapters.langgraph.intercept.install import install, uninstall
from dreamgym_kit.errors import EpisodeStop

CALLS = 10_000


@dataclass(frozen=True, slots=True)
class Leaks:
    """What some passes over the shapes have shown."""

    leaked: tuple[str, ...]  # a body's name for each time that one ran
    wrong: tuple[str, ...]  # rows whose dream was not asked as often as it should have been, or looked odd
    calls: int
    shapes: int


def measure(seed: int) -> list[tuple[str, float, str]]:
    """Figures for the bench runner."""
    found = leaks(seed, CALLS)
    return [
        ("leaks", len(found.leaked), "calls"),
        ("calls", found.calls, "calls"),
        ("shapes", found.shapes, "shapes"),
    ]


def leaks(seed: int, calls: int, *, every: int = 1, sabotage: Callable[[], None] = lambda: None) -> Leaks:
    """Run shapes until the dream has answered `calls` calls; at least each once.

    Args:
        seed: orders the rows.
        calls: how many answered calls are enough.
        every: take every n-th row only.
        sabotage: done once the gate stands; a planted bug, to see that it is found.
    """
    leaked: list[str] = []
    wrong: list[str] = []
    answered = 0
    chance = random.Random(seed)
    with _gate(), _quiet(), tempfile.TemporaryDirectory() as folder, canary_in(Path(folder)) as canary:
        sabotage()
        todo = rows()[::every]
        chance.shuffle(todo)
        once = False
        while answered < calls or not once:
            for shape, kind in todo:
                dreamt, looks_right = _run(shape, kind)
                leaked += _traces(canary, shape)
                answered += dreamt
                if dreamt != shape.dreamt or not looks_right:
                    wrong.append(f"{shape.name}, {kind}")
            once = True
    return Leaks(tuple(leaked), tuple(wrong), answered, len(todo))


def _run(shape: Shape, kind: str) -> tuple[int, bool]:
    try:
        ran = run_dreamt(shape, kind)
    except (Exception, EpisodeStop):  # a leak may make the agent fail; the canary knows
        return 0, False
    return ran.dreamt, ran.looks_right


def _traces(canary: Canary, shape: Shape) -> list[str]:
    written = canary.written()
    heard = canary.heard(len(written))
    canary.clear()
    found = [name for name in written if name not in shape.may_run]
    return found + ["heard, not written"] * max(0, heard - len(written))


@contextmanager
def _gate() -> Iterator[None]:
    install()
    try:
        yield
    finally:
        uninstall()


@contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
