"""One episode on the way to the real tools: which of its calls are refused, and what is remembered of it."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from dreamgym_kit.interfaces import RunHook
from dreamgym_kit.routing.session import Identity
from dreamgym_kit.types import Call, Effect, ToolSpec

reading: ContextVar[str] = ContextVar("dreamgym_reading", default="")
"""The reading tool whose real body is running in this context; "": none is."""


@dataclass(frozen=True, slots=True)
class SupervisedCalls(RunHook):
    """Lets no reading tool change the environment from its body, and no tool run that nobody described."""

    described: Mapping[str, ToolSpec]

    def forbids(self, call: Call, tool: ToolSpec) -> str:
        """See `RunHook.forbids`."""
        inside = reading.get()
        if inside and tool.effect.changes_environment:
            return (
                f"{call.tool} ({tool.effect}) was about to run inside {inside}, which reads; it did not run"
            )
        if call.tool not in self.described:
            return f"{call.tool} is a tool that nobody described; it did not run"
        return ""


def effect_of(spec: ToolSpec) -> Effect:
    """What a tool does to its world; a guess is not taken for harmless."""
    if spec.source == "guessed" and not spec.effect.runs_in_dream:
        return Effect.DESTRUCTIVE
    return spec.effect


class RealWrites:
    """Counts an episode's real writes, to tell which calls ran beside one. Thread-safe.

    A model may ask for several calls in one turn, and they run at once. What the dream expects of a call
    rests on the writes before it; where one of them is under way, it expects something of another state.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begun = self._under_way = 0

    def now(self) -> int:
        """Where a call begins: how many were begun; -1 while one is under way."""
        with self._lock:
            return -1 if self._under_way else self._begun

    @contextmanager
    def under_way(self, *, writes: bool) -> Iterator[None]:
        """While a real call runs and its answer is kept; `writes`: it changes the world."""
        with self._lock:
            self._begun, self._under_way = self._begun + writes, self._under_way + writes
        try:
            yield
        finally:
            with self._lock:
                self._under_way -= writes

    def beside(self, since: int, *, writes: bool) -> bool:
        """Whether another one ran beside the call that began at `since`."""
        with self._lock:
            return since < 0 or self._begun > since + writes


@dataclass(slots=True)
class EpisodeNotes:
    """What an overseer remembers of one session; it reads and changes it."""

    doubts: list[str] = field(default_factory=list)  # where dream and reality differed, in sentences
    unsure: bool = False  # a real write failed and may have taken effect: nobody knows the state
    made: dict[str, int] = field(default_factory=dict)  # real calls that change the world, by key
    writes: RealWrites = field(default_factory=RealWrites)
    held_numbers: dict[Identity, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    """Numbers of held calls, with the doubts that were shown, for resumed nodes."""
