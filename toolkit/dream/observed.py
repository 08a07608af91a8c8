"""A tool's answer as one JSON value, and back: what is mined, kept as state, and compared.

Most answers are their content. Failures, artifacts and state updates go under `$answer`. Text that is
JSON inside (as MCP servers and tool messages carry it), or records as Python prints them, is opened under
`$json`, so that rules see the fields; it is closed with the very spelling that it had. `opened` takes off
what a tool puts around its answer: JSON as text, a block of content.
"""

import ast
import json
import re
from collections.abc import Callable
from dataclasses import replace

from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.types import Answer

Wrap = Callable[[JsonValue], JsonValue]
"""Puts another inside into the wrapping of an observation."""
_PARTS = ("content", "artifact", "error", "error_type", "update")

_RAW = "\ue000"  # before what Python prints and no JSON has: nan, Timestamp('2023-11-30 09:00:00')
_QUOTED_RAW = re.compile(r"""'\\ue000([^']*)'|"\\ue000([^"]*)\"""")
_NO_LITERAL = re.compile(r"\bnan\b|\b[A-Za-z_][\w.]*\('[^'\\]*'\)")


_SPELLINGS: tuple[Callable[[JsonValue], str], ...] = (
    json.dumps,
    lambda value: json.dumps(value, separators=(",", ":")),
    lambda value: json.dumps(value, ensure_ascii=False),
    lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":")),
    lambda value: json.dumps(value, indent=2),
    lambda value: json.dumps(value, indent=2, ensure_ascii=False),
    lambda value: _QUOTED_RAW.sub(lambda match: match[1] or match[2], repr(value)),  # as Python writes it
)
_NUMBERS = tuple(range(len(_SPELLINGS)))  # what else stands there is a tool's own data


def observation(answer: Answer) -> JsonValue:
    """What the agent was told."""
    parts = {name: value for name in _PARTS if (value := getattr(answer, name)) is not None}
    if set(parts) <= {"content"}:
        return _opened(answer.content)
    return {"$answer": {name: _opened(value) for name, value in parts.items()}}


def answer_of(seen: JsonValue, like: Answer) -> Answer:
    """An observation as an answer; provenance, support, citations and reason are those of `like`."""
    parts = seen["$answer"] if _is_whole(seen) else {"content": seen}
    return replace(like, **{name: _closed(parts.get(name)) for name in _PARTS})


def unwrapped(seen: JsonValue) -> JsonValue:
    """An observation without what the tool puts around it."""
    inner, _ = opened(seen)
    return inner


def opened(seen: JsonValue) -> tuple[JsonValue, Wrap]:
    """What is inside of an observation, and what puts another inside back into the same wrapping."""
    if isinstance(seen, dict) and set(seen) == {"$json", "$spelling"}:
        return seen["$json"], lambda inner: {**seen, "$json": inner}
    if isinstance(seen, dict) and len(seen) == 1 and isinstance(parts := seen.get("$answer"), dict):
        if parts.get("content") is None or parts.get("error") is not None:
            return seen, as_it_is
        inner, put = opened(parts["content"])
        return inner, lambda other: {"$answer": {**parts, "content": put(other)}}
    if isinstance(seen, list) and len(seen) == 1 and _is_text_block(block := seen[0]):
        inner, put = opened(block.get("text"))
        return inner, lambda other: [{**block, "text": put(other)}]
    return seen, as_it_is


def failed(seen: JsonValue) -> bool:
    """Whether the tool said that it did not do it: an exception, or the usual forms of saying so."""
    if _is_whole(seen):
        parts = seen["$answer"]
        return parts.get("error") is not None or ("content" in parts and failed(parts["content"]))
    if isinstance(seen, dict):
        if "$json" in seen:
            return failed(seen["$json"])
        return bool(seen.get("error")) or seen.get("success") is False or seen.get("ok") is False
    if isinstance(seen, list):
        return bool(seen) and (isinstance(seen[0], (str, dict)) and failed(seen[0]))
    return isinstance(seen, str) and seen[:5].lower() == "error"


def _is_whole(seen: JsonValue) -> bool:
    return isinstance(seen, dict) and len(seen) == 1 and "$answer" in seen


def _opened(value: JsonValue) -> JsonValue:
    if isinstance(value, dict):
        return {key: _opened(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_opened(item) for item in value]
    if isinstance(value, str) and 2 <= len(value) <= 20_000 and value[0] in "{[" and value[-1] in "}]":
        return _opened_text(value)
    return value


def _opened_text(text: str) -> JsonValue:
    try:
        inside = _from_python(text) if text[1:2] in "{'" else json.loads(text, parse_constant=_no_json)
        for number, spelled in enumerate(_SPELLINGS):
            if spelled(inside) == text:
                return {"$json": inside, "$spelling": number}
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        pass
    return text


def _from_python(text: str) -> JsonValue:
    """Records as Python prints them; a text that starts so may be JSON all the same."""
    try:
        return json.loads(text, parse_constant=_no_json)
    except ValueError:
        inside = ast.literal_eval(_NO_LITERAL.sub(lambda match: repr(_RAW + match[0]), text))
        if json.loads(json.dumps(inside)) != inside:  # tuples, keys that are no texts
            raise ValueError(text) from None
        return inside


def _no_json(name: str) -> JsonValue:
    """NaN and infinity: equal to nothing, not even to themselves; such a text stays a text."""
    raise ValueError(name)


def _closed(value: JsonValue) -> JsonValue:
    if isinstance(value, dict):
        if set(value) == {"$json", "$spelling"} and value["$spelling"] in _NUMBERS:
            return _SPELLINGS[int(value["$spelling"])](value["$json"])
        return {key: _closed(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_closed(item) for item in value]
    return value


def _is_text_block(block: JsonValue) -> bool:
    return isinstance(block, dict) and block.get("type") == "text" and set(block) <= {"type", "text", "id"}


def as_it_is(inner: JsonValue) -> JsonValue:
    """The wrapping of what has none."""
    return inner
