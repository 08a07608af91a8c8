"""The kit's own tool spans: a transition as span attributes, and back, without loss.

Arguments and answer stand where OpenTelemetry's GenAI convention has them, so that any viewer shows them.
`dreamgym.transition` holds the rest of the kit's record, so that nothing of it depends on how attributes are
typed; the record's `id` is made of the content, so that what was cut, masked or edited on its way is told
and never taken for what was answered. A dreamt call can not be taken for a real one: what has any
`dreamgym.` attribute is read here or not at all.
"""

import json
from collections.abc import Mapping

from dreamgym_kit.bounded_json import read_json
from dreamgym_kit.errors import NotSerializable
from dreamgym_kit.replay.records import TRANSITIONS, dump_record, transition_from_record
from dreamgym_kit.replay.transfer import UnreadableLine
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.types import Source, Transition

NAMESPACE = "dreamgym."
TRANSITION = "dreamgym.transition"
ARGUMENTS = "gen_ai.tool.call.arguments"
RESULT = "gen_ai.tool.call.result"

Attribute = str | bool | int | float


def to_attributes(transition: Transition) -> dict[str, Attribute]:
    """Give a transition as the attributes of its span.

    Raises:
        NotSerializable: a value in it has no JSON form.
    """
    record = TRANSITIONS.write(transition)
    call, answer = dict(record["call"]), dict(record["answer"])
    args, content = call.pop("args"), answer.pop("content")
    as_text = isinstance(content, str) and _has_utf8(content)
    rest = dump_record({**record, "call": call, "answer": answer, "result": "text" if as_text else "json"})
    attributes: dict[str, Attribute] = {
        ARGUMENTS: spelled(args),
        RESULT: content if as_text else spelled(content),
        "dreamgym.dreamt": transition.answer.source is not Source.REAL,
        "dreamgym.source": str(transition.answer.source),
        "dreamgym.confidence": float(transition.answer.confidence),
        "dreamgym.effect": str(transition.effect),
        "dreamgym.episode": transition.episode,
        "dreamgym.step": transition.step,
        "dreamgym.environment": str(transition.environment),
        "dreamgym.task": transition.task,
        TRANSITION: rest,
    }
    optional = {"dreamgym.why": transition.answer.why, "dreamgym.node": transition.call.node}
    return attributes | {name: text for name, text in optional.items() if text}


def is_own(attributes: Mapping[str, JsonValue]) -> bool:
    """Whether the kit wrote a span, or whatever became of it elsewhere."""
    return any(name.startswith(NAMESPACE) for name in attributes)


def from_attributes(attributes: Mapping[str, JsonValue]) -> Transition:
    """Read what `to_attributes` gave.

    Raises:
        NotSerializable: something is missing, or was changed since.
    """
    record = read_json(_text(attributes, TRANSITION))
    call, answer = (record.get(part) if isinstance(record, dict) else None for part in ("call", "answer"))
    if not isinstance(call, dict) or not isinstance(answer, dict):
        raise NotSerializable(f"{TRANSITION} is not as it was written")
    args, content = _text(attributes, ARGUMENTS), _text(attributes, RESULT)
    call["args"] = read_json(args)
    answer["content"] = content if record.pop("result", None) == "text" else read_json(content)
    return transition_from_record(record)


def read_attributes(
    line: int, named: str, attributes: Mapping[str, JsonValue]
) -> Transition | UnreadableLine:
    """Read a tool span of the kit, or say that it is not as it was written."""
    try:
        return from_attributes(attributes)
    except NotSerializable as error:
        why = f"{named}: a call that dreamgym-kit exported and that was changed on its way ({error})"
        return UnreadableLine(line, why)


def read_kept_elsewhere(
    line: int, named: str, attributes: Mapping[str, JsonValue], given: JsonValue, answered: JsonValue
) -> Transition | UnreadableLine:
    """The same where a tool keeps arguments and answer beside the attributes, as text or as JSON."""
    sides = {ARGUMENTS: given, RESULT: answered}
    whole = {name: side if isinstance(side, str) else spelled(side) for name, side in sides.items()}
    return read_attributes(line, named, {**whole, **attributes})


def spelled(value: JsonValue) -> str:
    """JSON as people read it; escaped where a text has no UTF-8 form (a lone surrogate)."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return text if _has_utf8(text) else json.dumps(value, allow_nan=False)


def _has_utf8(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _text(attributes: Mapping[str, JsonValue], name: str) -> str:
    text = attributes.get(name)
    if not isinstance(text, str):
        raise NotSerializable(f"{name} was taken out")
    return text
