"""Route a call: to the dream, the real tool, the supervised real tool, or a refusal."""

import functools
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from dreamgym_kit.routing.effects import same_objects, what_runs
from dreamgym_kit.types import Effect, ToolSpec


class Mode(StrEnum):
    """The purpose of a session."""

    DREAM = "dream"
    RECORD = "record"
    S2R = "s2r"  # S2R: some real tools run, all supervised

    @property
    def bare(self) -> bool:
        """Whether every tool runs unsupervised; otherwise side effects are guarded and memory is a copy."""
        return self is Mode.RECORD


class Stage(StrEnum):
    """The stage of an S2R session."""

    SHADOW = "shadow"  # reads are real, writes are dreamed
    APPROVE = "approve"  # reads are real, each write needs approval
    LIVE = "live"  # writes are real; destructive ones need approval, unless allowed by name


def writes_are_real(mode: Mode, stage: Stage) -> bool:
    """Return whether an episode's writes change the environment."""
    return mode is Mode.RECORD or (mode is Mode.S2R and stage is not Stage.SHADOW)


class Route(StrEnum):
    """The route of one call."""

    DREAM = "dream"
    REAL = "real"
    OVERSEEN = "overseen"  # the real tool, after the overseer admits the call


@functools.lru_cache(maxsize=1024)
def _stranger(tool: str) -> ToolSpec:
    """Return one cached spec per unknown name, because judgments are cached by spec."""
    return ToolSpec(tool, Effect.DESTRUCTIVE, reason="never described")


@dataclass(frozen=True, slots=True)
class CallRouter:
    """The routing rules of one session.

    While dreaming, no entry leads a reading, writing or destructive tool to the real one; an undescribed tool
    counts as destructive. In S2R (`Mode.S2R`) these tools are dreamed or supervised, as the stage requires,
    and never run freely. A call is judged by the called object if there is a `judge`; the name alone gives
    the strictest effect known for it.
    """

    mode: Mode
    specs: Mapping[str, ToolSpec] = field(default_factory=dict)
    structured: frozenset[str] = frozenset()  # names of structured outputs; nothing runs for them
    stage: Stage = Stage.SHADOW  # of `Mode.S2R`
    judge: Callable[[object, ToolSpec], ToolSpec] | None = None  # (called, spec of its name) -> its own
    left_out: frozenset[str] = frozenset()  # provider tools hidden from the model
    _judged: dict[int, tuple[weakref.ref[Any], ToolSpec, ToolSpec, tuple[object, ...]]] = field(
        init=False, default_factory=dict, compare=False, repr=False
    )  # by id: judged object, spec of its name, own spec, code at that time

    @property
    def writes_are_real(self) -> bool:
        """Whether an episode's writes exist afterwards, for a checker."""
        return writes_are_real(self.mode, self.stage)

    def spec(self, tool: str, called: object = None) -> ToolSpec:
        """Return a tool's spec; an unknown name is destructive.

        Only a user's declaration for the object, or the framework's code, can weaken it; a guess cannot.
        """
        declared = self.specs.get(tool)
        named = declared if declared is not None else _stranger(tool)
        if called is None or self.judge is None:
            return named
        before = self._judged.get(id(called))
        if before is not None and before[0]() is called and before[1] is named:
            own = before[2]
            if not own.effect.runs_in_dream or same_objects(before[3], what_runs(called)):
                return own
        own = self.judge(called, named)
        if declared is None and own.source == "guessed":
            own = named
        key, judged = id(called), self._judged
        judged[key] = (
            weakref.ref(called, lambda _: judged.pop(key, None) and None),
            named,
            own,
            what_runs(called),
        )
        return own

    def route(self, tool: str, called: object = None) -> Route:
        """Return the route of a tool's calls; `called` is the tool or function itself."""
        return self.route_of(self.spec(tool, called))

    def route_of(self, spec: ToolSpec) -> Route:
        """Return the route of calls of a known tool."""
        if self.mode is Mode.RECORD or spec.effect.runs_in_dream:
            return Route.REAL
        if self.mode is Mode.S2R and self._may_be_real(spec):
            return Route.OVERSEEN
        return Route.DREAM

    def _may_be_real(self, spec: ToolSpec) -> bool:
        """Return whether a tool may be real in shadow: only declared reads, because a guess may be wrong."""
        if self.stage is Stage.SHADOW:
            return spec.effect is Effect.READ and spec.source != "guessed"
        return True
