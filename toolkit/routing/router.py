"""Who answers a call: the dream, the real tool, the real tool under oversight, or nobody."""

import functools
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from dreamgym_kit.routing.effects import same_objects, what_runs
from dreamgym_kit.types import Effect, ToolSpec


class Mode(StrEnum):
    """What a session is for."""

    DREAM = "dream"
    RECORD = "record"
    S2R = "s2r"  # from the dream to the real tools: some run, none without its overseer

    @property
    def bare(self) -> bool:
        """Whether every tool simply runs; else the gate holds what no tool holds, and memory is a copy."""
        return self is Mode.RECORD


class Stage(StrEnum):
    """How far a session on the way to the real tools may go."""

    SHADOW = "shadow"  # reads are real, writes are dreamed
    APPROVE = "approve"  # reads are real, each write waits for its approval
    LIVE = "live"  # writes are real; one that cannot be undone waits, unless a person named it


def writes_are_real(mode: Mode, stage: Stage) -> bool:
    """Whether the world is changed by what an episode writes."""
    return mode is Mode.RECORD or (mode is Mode.S2R and stage is not Stage.SHADOW)


class Route(StrEnum):
    """Who answers one call."""

    DREAM = "dream"
    REAL = "real"
    OVERSEEN = "overseen"  # the real tool, once its overseer lets the call pass


@functools.lru_cache(maxsize=1024)
def _stranger(tool: str) -> ToolSpec:
    """One spec for each name: what was judged is remembered by it."""
    return ToolSpec(tool, Effect.DESTRUCTIVE, reason="never described")


@dataclass(frozen=True, slots=True)
class CallRouter:
    """The gate's rules for one session.

    There is no entry that sends a reading, writing or destructive tool through to the real one
    while dreaming; a tool that nobody described counts as destructive. On the way to the real tools
    (`Mode.S2R`) the same tools are dreamed or overseen, as the stage says, and never just run.
    Who is called is judged by the object that is called, where there is a `judge`; its name alone says what
    is known of all that bear it.
    """

    mode: Mode
    specs: Mapping[str, ToolSpec] = field(default_factory=dict)
    structured: frozenset[str] = frozenset()  # names that only shape an answer; nothing runs for them
    stage: Stage = Stage.SHADOW  # of `Mode.S2R`
    judge: Callable[[object, ToolSpec], ToolSpec] | None = None  # (called, spec of its name) -> its own
    left_out: frozenset[str] = frozenset()  # tools of the model's provider that its model is not told of
    _judged: dict[int, tuple[weakref.ref[Any], ToolSpec, ToolSpec, tuple[object, ...]]] = field(
        init=False, default_factory=dict, compare=False, repr=False
    )  # by id: what was judged, by which spec of its name, its own, and what it ran then

    @property
    def writes_are_real(self) -> bool:
        """Whether what an episode writes is there afterwards, for a checker to look at."""
        return writes_are_real(self.mode, self.stage)

    def spec(self, tool: str, called: object = None) -> ToolSpec:
        """The tool as known; one of a name that nobody knew is a destructive stranger.

        Only a person's word about the very object, or the framework's code, says less of it: no guess does.
        """
        known = self.specs.get(tool)
        named = known if known is not None else _stranger(tool)
        if called is None or self.judge is None:
            return named
        before = self._judged.get(id(called))
        if before is not None and before[0]() is called and before[1] is named:
            own = before[2]
            if not own.effect.runs_in_dream or same_objects(before[3], what_runs(called)):
                return own
        own = self.judge(called, named)
        if known is None and own.source == "guessed":
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
        """Who answers calls of this tool in this session; `called` is the tool or function itself."""
        return self.route_of(self.spec(tool, called))

    def route_of(self, spec: ToolSpec) -> Route:
        """Who answers calls of a tool that is known to be this one."""
        if self.mode is Mode.RECORD or spec.effect.runs_in_dream:
            return Route.REAL
        if self.mode is Mode.S2R and self._may_be_real(spec):
            return Route.OVERSEEN
        return Route.DREAM

    def _may_be_real(self, spec: ToolSpec) -> bool:
        """In shadow only what somebody said to read: a guess may be a write by another name."""
        if self.stage is Stage.SHADOW:
            return spec.effect is Effect.READ and spec.source != "guessed"
        return True
