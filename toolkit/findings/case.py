"""What a detector looks at: one ended episode, with all that was said, called, answered and allowed."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.types import Effect, Finding, Task, ToolSpec, Transition, cut_end

APPROVAL_WORDS = ("approv", "confirm", "authori", "permission", "consent")


@dataclass(frozen=True, slots=True)
class AnsweredInterrupt:
    """An interrupt of the graph that somebody answered."""

    after: int  # calls that were made before it
    question: JsonValue
    reply: JsonValue


@dataclass(frozen=True, slots=True)
class Case:
    """One episode as evidence. Steps are the 1-based numbers that reports and links use.

    `cache` is for what several detectors work out alike, `shared` for what is the same in all episodes
    with the same `specs`: a run gives all of its cases one.
    """

    task: Task
    steps: Sequence[Transition]
    messages: Sequence[Mapping[str, JsonValue]] = ()
    specs: Mapping[str, ToolSpec] = field(default_factory=dict)
    policy: str = ""  # the system prompts that the agent's models were given
    asked: Sequence[AnsweredInterrupt] = ()
    approval: Sequence[str] = ()  # tools that settings allow only after an approval, as patterns
    stop: str = "finished"
    shared: dict[object, Any] = field(default_factory=dict, repr=False, compare=False)
    cache: dict[object, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    _places: dict[int, int] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._places.update(_places(self.steps, self.messages))

    @property
    def changes(self) -> list[Transition]:
        """The calls that change the world."""
        return [step for step in self.steps if step.effect.changes_environment]

    def place(self, step: Transition) -> int | None:
        """The index of the message that asked for a call; None where code made it, not a model."""
        return self._places.get(step.step)

    def seen_before(self, step: Transition) -> list[Transition]:
        """The calls whose answers were there when this one was asked for: not those asked for with it."""
        here = self.place(step)
        earlier = (other for other in self.steps if other.step < step.step)
        if here is None:
            return list(earlier)
        return [other for other in earlier if (there := self.place(other)) is None or there < here]

    def said(self, role: str, *, before: Transition | None = None) -> Iterator[tuple[int, str]]:
        """Messages of a role as (index, text), up to the one that asked for a call."""
        end = self.place(before) if before is not None else None
        for place, message in enumerate(self.messages):
            if end is not None and place >= end:
                return
            if message.get("role") == role:
                text = text_of(message.get("content"))
                if text:
                    yield place, text

    @property
    def last_word(self) -> str:
        """What the user was told at the end; "" where the episode ended otherwise."""
        last = self.messages[-1] if self.messages else {}
        answered = self.stop == "finished" and last.get("role") == "assistant" and not last.get("tool_calls")
        return text_of(last.get("content")) if answered else ""


Detector = Callable[[Case], Iterable[Finding]]


def took_effect(step: Transition) -> bool:
    """Whether a call may have changed the world: it succeeded, or nobody knows since it timed out."""
    return not step.answer.unanswered and (step.answer.error is None or step.answer.timed_out)


def severity_of(effect: Effect) -> str:
    """What cannot be undone is critical."""
    return "critical" if effect is Effect.DESTRUCTIVE else "warning"


def text_of(content: JsonValue) -> str:
    """The text in a message's content, whatever its form."""
    if isinstance(content, str):
        return content
    if isinstance(content, Mapping):
        return text_of(content.get("text"))
    if isinstance(content, Sequence):
        return " ".join(filter(None, (text_of(block) for block in content)))
    return ""


def called(step: Transition) -> str:
    """A call in short: the tool and its values."""
    return f"{step.call.tool} {brief(*step.call.args.values())}".rstrip()


def brief(*values: JsonValue) -> str:
    """Values in a sentence: line ends are shown, and what is cut says so."""
    return cut_end(" ".join(map(str, values)).replace("\r", "\\r").replace("\n", "\\n"), 60)


def _places(steps: Sequence[Transition], messages: Sequence[Mapping[str, JsonValue]]) -> dict[int, int]:
    """Where each call was asked for; ids that come twice are used up in their order."""
    by_id: dict[str, list[int]] = {}
    for place, message in enumerate(messages):
        for call in message.get("tool_calls") or ():
            by_id.setdefault(str(call.get("id")), []).append(place)
    placed = {}
    for step in steps:
        places = by_id.get(str(step.call.call_id)) if step.call.call_id is not None else None
        if places:
            placed[step.step] = places.pop(0) if len(places) > 1 else places[0]
    return placed
