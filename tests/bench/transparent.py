"""Does an agent say the same, byte for byte, while its calls are recorded as without the kit?

Every shape is run for real three times, from the same script: without the gate, with the gate idle, and
recording. What comes out (messages, stream parts, results, failures) is compared as text. Ids and times
that are random in the framework itself are blanked first; parts of a stream are compared in any order,
since parallel nodes finish in any order.
"""

import asyncio
import random
import re
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain_core.messages import BaseMessage

sys.path.append(str(Path(__file__).parents[1]))  # `shapes` lies beside this folder
from shapes.canary import canary_in
from shapes.everything import rows
from shapes.stage import Shape

from dreamgym_kit.adapters.langgraph.intercept.install import install, uninstall
from dreamgym_kit.routing.process import entered
from dreamgym_kit.routing.router import CallRouter, Mode
from dreamgym_kit.routing.session import Session

_RANDOM = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\b[0-9a-f]{32}\b|\bcall-\d+"
    r"|\d{4}-\d\d-\d\dT[\d:.+]+|0x[0-9a-f]+"
    r"|\d+\.\d{10,}"  # the clock, in branch and checkpoint versions
)
Session_ = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True, slots=True)
class Compared:
    """How many things were said, and where they differed."""

    said: int
    different: tuple[str, ...]  # "shape, kind, when"


def measure(seed: int) -> list[tuple[str, float, str]]:
    """Figures for the bench runner."""
    found = transparent(seed)
    return [("different", len(found.different), "messages"), ("said", found.said, "messages")]


def transparent(seed: int, *, every: int = 1, sabotage: Callable[[], None] = lambda: None) -> Compared:
    """Run every n-th row bare, idle and recorded, and compare.

    Args:
        seed: orders the rows.
        every: take every n-th row only.
        sabotage: done once the gate stands; a planted bug, to see that it is found.
    """
    todo = rows()[::every]
    random.Random(seed).shuffle(todo)
    with tempfile.TemporaryDirectory() as folder, canary_in(Path(folder)), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bare = [_said(shape, kind, nullcontext) for shape, kind in todo]
        install()
        try:
            sabotage()
            idle = [_said(shape, kind, nullcontext) for shape, kind in todo]
            recorded = [_said(shape, kind, _recording) for shape, kind in todo]
        finally:
            uninstall()
    different: list[str] = []
    for (shape, kind), *said in zip(todo, bare, idle, recorded, strict=True):
        for when, other in zip(("idle", "recording"), said[1:], strict=True):
            different += [f"{shape.name}, {kind}, {when}"] * _differing(said[0], other)
    return Compared(sum(map(len, bare)), tuple(different))


def _recording() -> AbstractContextManager[Any]:
    return entered(Session(CallRouter(Mode.RECORD)))


def _said(shape: Shape, kind: str, around: Session_) -> list[str]:
    """What one real run says, as texts."""
    runs = shape.build()
    run = runs.sync if kind == "sync" else runs.anync
    assert run is not None
    try:
        with around():
            result = run() if kind == "sync" else asyncio.run(_awaited(run))
    except Exception as error:
        return [_text(f"{type(error).__name__}: {error}")]
    if isinstance(result, dict) and "messages" in result:
        rest = {key: value for key, value in result.items() if key != "messages"}
        return [_text(message) for message in [*result["messages"], rest]]
    return [_text(part) for part in result] if isinstance(result, list) else [_text(result)]


async def _awaited(run: Any) -> Any:
    return await run()


def _text(value: Any) -> str:
    shown = value.model_dump_json() if isinstance(value, BaseMessage) else repr(value)
    return _RANDOM.sub("<random>", shown)


def _differing(one: list[str], other: list[str]) -> int:
    left, right = Counter(one), Counter(other)
    return max((left - right).total(), (right - left).total())
