"""What becomes of one drive through a graph: what was said and asked, and how it ended."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from dreamgym_kit.adapters.langgraph.episode.system_prompts import SystemPrompts
from dreamgym_kit.adapters.langgraph.episode.transcript import Transcript
from dreamgym_kit.findings.case import Asked
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.types import UserTurn


@dataclass(slots=True)
class EpisodeState:
    """What became of one drive through the graph."""

    transcript: Transcript
    values: Any = None
    stop: str = "finished"
    reason: str = ""
    traceback: tuple[str, ...] = ()  # the agent's own lines of the exception that ended it
    ran_on: bool = False  # the limit that ended it is of steps or context, which the agent itself spent
    waiting: list[Any] = field(default_factory=list)  # interrupts nobody answered
    heard: SystemPrompts = field(default_factory=SystemPrompts)
    replies: list[Asked] = field(default_factory=list)  # interrupts and their answers
    calls: Callable[[], int] = field(default=lambda: 0)  # made so far
    hear: Callable[[Iterable[str]], None] = field(default=lambda _: None)  # what the user says
    interrupted: Callable[[JsonValue], None] = field(default=lambda _: None)  # the graph asks a person
    over: Callable[[], bool] = field(default=lambda: False)  # the episode was stopped
    turns: list[UserTurn] = field(default_factory=list)  # of whoever stood in for a user

    def add_turn(self, kind: str, by: str, question: JsonValue = None, answer: JsonValue = None) -> None:
        """Keep what somebody is told, or is about to be, in place of a user."""
        place = len(self.transcript.records)
        self.turns.append(UserTurn(kind, by, place, self.calls(), question, answer))
