"""The order in which an episode is told, for terminal and page alike.

What the agent said stands before the calls that it asked for with it; an interrupt stands where the graph
stopped: behind the messages and calls that were there already, before what came of its answer.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dreamgym_kit.vocabulary import Episode, Transition, UserTurn


@dataclass(frozen=True, slots=True)
class Said:
    """One message; `turn` where it is what somebody said in place of a user."""

    message: Mapping[str, Any]
    turn: UserTurn | None = None


def telling(episode: Episode) -> Iterator[Said | Transition | UserTurn]:
    """Give messages, calls and interrupts, each once."""
    replies = {turn.said: turn for turn in episode.user_turns if turn.kind == "reply"}
    left = deque(episode.transitions)
    waits = deque(turn for turn in episode.user_turns if turn.kind != "reply")
    by_id = {step.call.call_id: step.step for step in left if step.call.call_id is not None}

    def calls(last: int, said: int) -> Iterator[Transition | UserTurn]:
        while left and left[0].step <= last:
            while waits and waits[0].after < left[0].step and waits[0].said <= said:
                yield waits.popleft()
            yield left.popleft()

    for place, message in enumerate(episode.messages):
        asked = [by_id[call["id"]] for call in _calls(message) if call.get("id") in by_id]
        yield from calls(min(asked, default=1) - 1, place)
        while waits and waits[0].said <= place:
            yield waits.popleft()
        yield Said(message, replies.get(place))
        yield from calls(max(asked, default=0), place + 1)
    if left:
        yield from calls(left[-1].step, len(episode.messages))
    yield from waits


def _calls(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [call for call in message.get("tool_calls") or () if isinstance(call, Mapping)]
