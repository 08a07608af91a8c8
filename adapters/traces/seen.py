"""What every format gives: a call as its trace tells it, a model's turn, or why something is neither.

Formats know where tool, arguments and answer lie; what becomes of them is decided in `assemble`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from dreamgym_kit.plain import JsonValue
from dreamgym_kit.vocabulary import Answer, Transition


@dataclass(frozen=True, slots=True)
class Record:
    """One JSON object of a file: a span, a run, an observation, a conversation."""

    line: int  # where it begins, 1-based
    value: Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True)
class Unread:
    """Something that could not be read, or not be used as it is."""

    line: int
    why: str
    unanswered: bool = False  # a whole call that nobody answered: told, but the file is not at fault


@dataclass(frozen=True, slots=True)
class Passed:
    """Something that was understood and holds no call."""

    kind: str  # "model span", "thought", "span"


@dataclass(frozen=True, slots=True)
class SeenCall:
    """A tool call in a trace. Order within an episode: by `turn` where the format tells it, else by time."""

    line: int
    episode: str
    tool: str
    args: Mapping[str, JsonValue]
    answer: Answer | None  # None: the trace ends before it, or left it out
    call_id: str | None = None
    node: str | None = None
    description: str = ""
    turn: int | None = None  # the model's turn that asked; None: found from `SeenTurn`s and times
    index: int | None = None  # place among the calls of its turn, where a model span tells it
    start_s: float = 0.0  # Unix time; 0.0 where the format has no times
    end_s: float = 0.0
    span: str = ""  # id of the span or run
    bare: bool = False  # the arguments are one value without its name


@dataclass(frozen=True, slots=True)
class SeenTurn:
    """A model call in a trace: what it asked for, and when it was done."""

    line: int
    episode: str
    end_s: float
    asked: tuple[tuple[str | None, str, Mapping[str, JsonValue]], ...] = ()  # (call id, tool, arguments)


Item = SeenCall | SeenTurn | Unread | Passed | Transition
