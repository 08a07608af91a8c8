"""The input of a detector: one ended episode with its messages, calls, answers and permissions."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.types import Effect, Finding, Task, ToolSpec, Transition, cut_end

APPROVAL_WORDS = ("approv", "confirm", "authori", "permission", "consent")


@dataclass(frozen=True, slots=True)
class AnsweredInterrupt:
    """An answered interrupt of the graph."""

    after: int  # number of calls before it
    question: JsonValue
    reply: JsonValue


@dataclass(frozen=True, slots=True)
class Case:
    """One episode as evidence. Steps are the 1-based numbers that reports and links use.

    `cache` stores results that several detectors share, `shared` those that are equal in all episodes with
    the same `specs`: a run passes one to all of its cases.
    """

    task: Task
    steps: Sequence[Transition]
    messages: Sequence[Mapping[str, JsonValue]] = ()
    specs: Mapping[str, ToolSpec] = field(default_factory=dict)
    policy: str = ""  # system prompts of the agent's models
    interrupts: Sequence[AnsweredInterrupt] = ()
    approval: Sequence[str] = ()  # patterns of tools that require approval by the settings
    stop: str = "finished"
    shared: dict[object, Any] = field(default_factory=dict, repr=False, compare=False)
    cache: dict[object, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    _places: dict[int, int] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._places.update(_places(self.steps, self.messages))

    @property
    def changes(self) -> list[Transition]:
        """Return the calls that change the environment."""
        return [step for step in self.steps if step.effect.changes_environment]

    def place(self, step: Transition) -> int | None:
        """Return the index of the message that requested a call; None if code made the call."""
        return self._places.get(step.step)

    def seen_before(self, step: Transition) -> list[Transition]:
        """Return the calls that were answered before this one was requested."""
        here = self.place(step)
        earlier = (other for other in self.steps if other.step < step.step)
        if here is None:
            return list(earlier)
        return [other for other in earlier if (there := self.place(other)) is None or there < here]

    def messages_of(self, role: str, *, before: Transition | None = None) -> Iterator[tuple[int, str]]:
        """Yield a role's messages as (index, text), up to the one that requested a call."""
        end = self.place(before) if before is not None else None
        for place, message in enumerate(self.messages):
            if end is not None and place >= end:
                return
            if message.get("role") == role:
                text = text_of(message.get("content"))
                if text:
                    yield place, text

    @property
    def last_message(self) -> str:
        """The last message to the user; "" if the episode ended without one."""
        last = self.messages[-1] if self.messages else {}
        answered = self.stop == "finished" and last.get("role") == "assistant" and not last.get("tool_calls")
        return text_of(last.get("content")) if answered else ""


Detector = Callable[[Case], Iterable[Finding]]


def took_effect(step: Transition) -> bool:
    """Return whether a call may have taken effect: it succeeded or timed out."""
    return not step.answer.unanswered and (step.answer.error is None or step.answer.timed_out)


def severity_of(effect: Effect) -> str:
    """Return the severity of an effect: destructive is critical."""
    return "critical" if effect is Effect.DESTRUCTIVE else "warning"


def text_of(content: JsonValue) -> str:
    """Return the text of a message's content in any form."""
    if isinstance(content, str):
        return content
    if isinstance(content, Mapping):
        return text_of(content.get("text"))
    if isinstance(content, Sequence):
        return " ".join(filter(None, (text_of(block) for block in content)))
    return ""


def called(step: Transition) -> str:
    """Format a call briefly: the tool and its values."""
    return f"{step.call.tool} {brief(*step.call.args.values())}".rstrip()


def brief(*values: JsonValue) -> str:
    """Format values for a sentence, with visible line ends and cuts."""
    return cut_end(" ".join(map(str, values)).replace("\r", "\\r").replace("\n", "\\n"), 60)


def _places(steps: Sequence[Transition], messages: Sequence[Mapping[str, JsonValue]]) -> dict[int, int]:
    """Return the message of each call; repeated IDs are matched in order."""
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
