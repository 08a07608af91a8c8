"""Who answers a call: the dream, the real tool, or nobody."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from dreamgym_kit.vocabulary import Effect, ToolSpec


class Mode(StrEnum):
    """What a session is for."""

    DREAM = "dream"
    RECORD = "record"


class Route(StrEnum):
    """Who answers one call."""

    DREAM = "dream"
    REAL = "real"


@dataclass(frozen=True, slots=True)
class GatePolicy:
    """The gate's rules for one session.

    There is no entry that sends a reading, writing or destructive tool through to the real one
    while dreaming; a tool that nobody described counts as destructive.
    """

    mode: Mode
    specs: Mapping[str, ToolSpec] = field(default_factory=dict)
    structured: frozenset[str] = frozenset()  # names that only shape an answer; nothing runs for them

    def spec(self, tool: str) -> ToolSpec:
        """The tool as known; a destructive stranger where it is not."""
        known = self.specs.get(tool)
        return known or ToolSpec(tool, Effect.DESTRUCTIVE, reason="never described")

    def route(self, tool: str) -> Route:
        """Who answers calls of this tool in this session."""
        if self.mode is Mode.RECORD or self.spec(tool).effect.runs_in_dream:
            return Route.REAL
        return Route.DREAM
