"""When the agent's model spoke in an episode: between what it had heard and what it asked for.

A run directory keeps the time of every call and of the episode, and none of the model: a model's turn is put
from the end of what came before to the start of the first call that it asked for. Turns are marked so.
"""

from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass

from dreamgym_kit.plain import JsonValue
from dreamgym_kit.vocabulary import Episode, Transition


@dataclass(frozen=True, slots=True)
class ModelTurn:
    """One message of the agent's model."""

    heard: tuple[Mapping[str, JsonValue], ...]  # what was new since it last spoke
    said: Mapping[str, JsonValue]
    start_s: float  # Unix time
    end_s: float


def begun(episode: Episode, otherwise: float) -> float:
    """When an episode began; `otherwise` where it does not say and has no call with a time."""
    known = [step.recorded_at for step in episode.transitions if step.recorded_at > 0]
    return episode.started_at if episode.started_at > 0 else min(known, default=otherwise)


def ended(episode: Episode, start_s: float) -> float:
    """When an episode that began at `start_s` was over: never before its last call."""
    last = max((step.recorded_at + step.elapsed_s for step in episode.transitions), default=0.0)
    return max(start_s + max(0.0, episode.elapsed_s), last)


def model_turns(episode: Episode, start_s: float, end_s: float) -> list[ModelTurn]:
    """The turns of the agent's model, in the order of the transcript."""
    waiting: dict[str, deque[Transition]] = defaultdict(deque)
    for step in episode.transitions:
        if step.call.call_id is not None:
            waiting[step.call.call_id].append(step)
    final = max((place for place, said in enumerate(episode.messages) if _by_model(said)), default=-1)
    turns: list[ModelTurn] = []
    heard: list[Mapping[str, JsonValue]] = []
    now = start_s
    for place, message in enumerate(episode.messages):
        if not _by_model(message):
            heard.append(message)
            continue
        asked = [call.get("id") for call in message.get("tool_calls") or ()]
        steps = [waiting[name].popleft() for name in asked if waiting.get(name)]
        unasked = end_s if place == final else now
        said_at = max(now, min((step.recorded_at for step in steps), default=unasked))
        turns.append(ModelTurn(tuple(heard), message, now, said_at))
        heard = []
        now = max([said_at, *(step.recorded_at + step.elapsed_s for step in steps)])
    return turns


def _by_model(message: Mapping[str, JsonValue]) -> bool:
    return message.get("role") == "assistant"
