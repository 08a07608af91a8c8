"""Every shape, and how one is run inside a dream."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any

from shapes import agents, direct, foreign, middleware, nested
from shapes.stage import Shape, dream

from dreamgym_kit.adapters.langgraph.intercept.install import hook_tool_functions
from dreamgym_kit.routing.process import entered
from dreamgym_kit.routing.session import Session
from dreamgym_kit.types import Source

SHAPES: list[Shape] = [
    *direct.SHAPES,
    *agents.SHAPES,
    *middleware.SHAPES,
    *nested.SHAPES,
    *foreign.SHAPES,
]
KINDS = ("sync", "async")


@dataclass(frozen=True)
class Ran:
    """One run of a shape in a dream."""

    session: Session
    looks_right: bool

    @property
    def dreamt(self) -> int:
        """How many calls the dream answered."""
        kept = self.session.ledger.transitions()
        return sum(entry.answer.source is Source.SCRIPTED for entry in kept)


def rows() -> list[tuple[Shape, str]]:
    """Every shape in every kind that it has."""
    return [(shape, kind) for shape in SHAPES for kind in _kinds(shape)]


@cache  # to know it, the shape has to be built
def _kinds(shape: Shape) -> tuple[str, ...]:
    runs = shape.build()
    return tuple(kind for kind, run in zip(KINDS, (runs.sync, runs.anync), strict=True) if run is not None)


def run_dreamt(
    shape: Shape, kind: str, *, around: Callable[[], AbstractContextManager[Any]] = nullcontext
) -> Ran:
    """Build a shape and run it once inside a dreaming session of its own."""
    runs = shape.build()
    if shape.captured:
        hook_tool_functions()
    session = dream(control=shape.control)
    with around(), entered(session):
        if kind == "sync":
            assert runs.sync is not None
            result = runs.sync()
        else:
            assert runs.anync is not None
            result = asyncio.run(_awaited(runs.anync))
    return Ran(session, runs.looks(result))


async def _awaited(run: Any) -> Any:
    return await run()
