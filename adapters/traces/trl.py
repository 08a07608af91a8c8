"""Rows of training sets: TRL's prompt and completion as messages, ShareGPT's from and value, steps of text.

`messages` with `tools` is read by `openai_messages`, whatever wrote it. Steps of text (ReAct: an action, an
observation) become calls of one tool, `take_action`; a thought among them is no call, and is counted.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from dreamgym_kit.adapters.traces.conversation import Asked, Said, Told, Unclear, joined
from dreamgym_kit.adapters.traces.openai_messages import descriptions_in, episode_of, read_messages
from dreamgym_kit.adapters.traces.seen import Item, Passed, Record, SeenCall, Unread
from dreamgym_kit.adapters.traces.values import decoded, reply
from dreamgym_kit.plain import JsonValue, escaped
from dreamgym_kit.vocabulary import Answer

STEP_TOOL = "take_action"
_CALLS = frozenset({"function_call", "tool_call"})
_ANSWERS = frozenset({"observation", "tool", "function_response"})


def is_row(value: Mapping[str, JsonValue]) -> bool:
    """Whether a record is of one of these forms."""
    return (
        isinstance(value.get("conversations"), list)
        or (isinstance(value.get("prompt"), list) and isinstance(value.get("completion"), list))
        or _steps(value) is not None
    )


def read_row(record: Record) -> Iterator[Item]:
    """Give the calls of one row."""
    value = record.value
    if isinstance(value.get("conversations"), list):
        yield from _sharegpt(record)
    elif (steps := _steps(value)) is not None:
        yield from _text_steps(record, steps)
    else:
        yield from read_messages(record, [*value["prompt"], *value["completion"]], value.get("tools"))


def _sharegpt(record: Record) -> Iterator[Item]:
    found = False
    for item in joined(
        _said(record.value["conversations"]),
        episode=episode_of(record.value),
        line=record.line,
        descriptions=descriptions_in(record.value.get("tools")),
    ):
        found = True
        yield item
    if not found:
        yield Passed("conversation without calls")


def _said(parts: list[JsonValue]) -> Iterator[Said]:
    turn, told = 0, True
    for part in parts:
        who = part.get("from") if isinstance(part, dict) else None
        if who in _CALLS:
            turn += told
            told = False
            asked = decoded(part.get("value"))
            for call in asked if isinstance(asked, list) else [asked]:
                if isinstance(call, dict) and isinstance(call.get("name"), str):
                    yield Asked(turn, call["name"], call.get("arguments", call.get("parameters")))
                else:
                    yield Unclear("a function_call whose value is no JSON object with a name")
        elif who in _ANSWERS:
            told = True
            yield Told(reply(part.get("value")))
        else:
            told = True


def _steps(value: Mapping[str, JsonValue]) -> list[dict[str, Any]] | None:
    steps = value.get("steps")
    fits = (
        isinstance(steps, list) and steps and all(isinstance(one, dict) and "action" in one for one in steps)
    )
    return steps if fits else None


def _text_steps(record: Record, steps: list[dict[str, Any]]) -> Iterator[Item]:
    episode = episode_of(record.value)
    for number, step in enumerate(steps, start=1):
        action = step["action"]
        if not isinstance(action, str):
            yield Unread(record.line, f"step {number}: an action that is no text")
        elif action.lstrip().lower().startswith(("think:", "think[")):
            yield Passed("thought")
        else:
            seen = Answer(escaped(reply(step["observation"]).content)) if "observation" in step else None
            yield SeenCall(record.line, episode, STEP_TOOL, {"action": action}, seen, turn=number)
