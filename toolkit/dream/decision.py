"""What a model may say about a call, and the answer that code makes of it.

A model decides, points and changes; it writes whole answers only where no form is known. The decision is a
closed object: reasoning, outcome, a cited example as template, changed facts, open leaves, confidence.
There is no field for a reward, for being done or for another call, so no text can set one. Everything is
validated here, whatever the server promised.
"""

import copy
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dreamgym_kit.bounded_json import read_json
from dreamgym_kit.dream.answer_schema import AnswerSchema
from dreamgym_kit.dream.calibration import CEILING
from dreamgym_kit.dream.structured_output import closed, read_literal, read_object
from dreamgym_kit.errors import NotSerializable
from dreamgym_kit.serialization import JsonValue, escaped
from dreamgym_kit.types import Answer, Call, Source, ToolSpec, Transition

MAX_CHANGES = 2
"""Changed facts of one call; models get more than that wrong nearly always (arXiv 2605.07247)."""
_MAX_ANSWER = 20_000  # characters of what a decision may hold
_MAX_REASON = 600  # characters that are kept
_LEAF_TYPES = ["string", "number", "boolean", "null"]
_CARRIED_ANYWHERE = 10  # numbers below it stand for too many things to be an argument's copy


@dataclass(frozen=True, slots=True)
class Decision:
    """A validated decision."""

    reasoning: str
    outcome: str  # ok, error or unknown
    like: int | None  # which example, 1-based, gives the form
    leaves: Mapping[str, JsonValue]  # path in the form -> value
    answer: JsonValue  # whole content, where there is no example to be like
    error: str
    changes: tuple[Mapping[str, JsonValue], ...]
    confidence: float


SCHEMA: Mapping[str, JsonValue] = closed(
    reasoning={"type": "string"},
    outcome={"enum": ["ok", "error", "unknown"]},
    like={"type": ["integer", "null"]},
    leaves={"type": "array", "items": closed(path={"type": "string"}, value={"type": _LEAF_TYPES})},
    answer={"type": ["string", "null"]},
    error={"type": "string"},
    set={
        "type": "array",
        "items": closed(entity={"type": "string"}, field={"type": "string"}, value={"type": _LEAF_TYPES}),
    },
    confidence={"type": "number", "minimum": 0, "maximum": 1},
)


_READ: Mapping[str, JsonValue] = {
    **SCHEMA,
    "required": ["outcome"],
    "properties": {**SCHEMA["properties"], "answer": {}},
}
"""What is read: fields that were left out say nothing, and `answer` may be the value itself."""


def read_decision(text: str) -> Decision:
    """Read a model's words.

    Raises:
        NotSerializable: not one JSON object of the schema; says what is wrong, for one repair.
    """
    output = read_object(text, _READ, max_bytes=_MAX_ANSWER)
    return Decision(
        reasoning=output.get("reasoning", ""),
        outcome=output["outcome"],
        like=output.get("like") or None,  # examples are counted from 1
        leaves={leaf["path"]: leaf["value"] for leaf in output.get("leaves", ())},
        answer=output.get("answer"),
        error=output.get("error", ""),
        changes=tuple(output.get("set", ())),
        confidence=float(output.get("confidence", 0.0)),
    )


def form_of(decision: Decision) -> str:
    """The form of a decision, by which its support is known."""
    form = "whole" if decision.like is None else "template"
    return f"{form}_failure" if decision.outcome == "error" else form


def render(
    decision: Decision,
    call: Call,
    tool: ToolSpec,
    examples: Sequence[Transition],
    form: AnswerSchema | None = None,
) -> Answer:
    """Make the answer that a decision means; `form` says what the tool's answers look like.

    Raises:
        NotSerializable: it points at what is not there or changes what this tool cannot; for one repair.
    """
    if decision.outcome == "unknown":
        reason = _reason(decision)
        why = f"the model cannot tell either{f': {reason}' if reason else ''}"
        return Answer(source=Source.UNANSWERED, confidence=0.0, why=why)
    if decision.changes and not tool.effect.changes_environment:
        raise NotSerializable(f"set: {call.tool} only reads; it changes nothing")
    if len(decision.changes) > MAX_CHANGES:
        raise NotSerializable(
            f"set: at most {MAX_CHANGES} changes; a call that changes more is outcome 'unknown'"
        )
    example = _example(decision.like, call, examples)
    if decision.outcome == "error":
        return _failure(decision, example)
    changes = tuple(
        {
            "entity": str(_argument(change["entity"], call)),
            "field": change["field"],
            "value": _argument(change["value"], call),
        }
        for change in decision.changes
    )
    artifact: JsonValue = None
    if example is None:
        if decision.answer is None:
            raise NotSerializable("answer: without an example to be like, the whole answer has to stand here")
        content: JsonValue = _parsed(decision.answer, examples, form)
    elif example.answer.error is not None or example.answer.update is not None:
        raise NotSerializable(f"like: example {decision.like} is no plain successful answer")
    else:
        content = _filled(_carried(example.answer.content, example.call, call), decision.leaves, call)
        _check_said_twice(decision, content, examples, form)
        artifact = _artifact(example.answer, content)
    return Answer(
        content=content,
        artifact=artifact,
        source=Source.MODEL,
        confidence=CEILING[form_of(decision)] * decision.confidence,
        cites=(example.id,) if example is not None else (),
        why=_reason(decision),
        changes=changes,
    )


def _failure(decision: Decision, example: Transition | None) -> Answer:
    """A failure: the example's own words where one is cited."""
    if decision.changes:
        raise NotSerializable("set: a call that failed changes nothing")
    if example is not None and example.answer.error is None:
        raise NotSerializable(f"like: example {decision.like} is no failure")
    text = decision.error.strip() or (example.answer.error if example is not None else "") or ""
    if not text:
        raise NotSerializable("error: the tool's message is missing")
    return Answer(
        error=text[:1000],
        error_type=(example.answer.error_type if example is not None else None) or "ToolException",
        source=Source.MODEL,
        confidence=CEILING[form_of(decision)] * decision.confidence,
        cites=(example.id,) if example is not None else (),
        why=_reason(decision),
    )


def _example(like: int | None, call: Call, examples: Sequence[Transition]) -> Transition | None:
    if like is None:
        return None
    if not 1 <= like <= len(examples):
        raise NotSerializable(f"like: there is no example {like}; there are {len(examples)}")
    example = examples[like - 1]
    if example.call.tool != call.tool:
        raise NotSerializable(f"like: example {like} is of {example.call.tool}, not of {call.tool}")
    return example


def _filled(form: JsonValue, leaves: Mapping[str, JsonValue], call: Call) -> JsonValue:
    """The example's content with some of its leaves replaced; text that holds JSON is filled as JSON."""
    if isinstance(form, str):
        inner = _as_object(form)
        if inner is None:
            if not leaves:
                return form
            if set(leaves) == {""} and isinstance(leaves[""], str):
                return leaves[""]
            raise NotSerializable('leaves: the example is plain text; its only path is ""')
        return json.dumps(_filled(inner, leaves, call), ensure_ascii=False)
    for path, value in leaves.items():
        form = _with_leaf(form, path.split("."), _argument(value, call), path)
    return form


def _reason(decision: Decision) -> str:
    """Why the tool answers so, in the model's words: kept with the answer."""
    return " ".join(decision.reasoning.split())[:_MAX_REASON]


def _check_said_twice(
    decision: Decision, content: JsonValue, examples: Sequence[Transition], form: AnswerSchema | None
) -> None:
    """An answer beside an example that gives the form says the same; else nobody knows which is meant."""
    if decision.answer is not None and _only_text(content) != _only_text(
        _parsed(decision.answer, examples, form)
    ):
        raise NotSerializable(
            f"like, answer: example {decision.like} with its leaves gives {json.dumps(content)[:200]}, and "
            "answer says otherwise; send one of the two"
        )


def _carried(form: JsonValue, example: Call, call: Call, name: str = "") -> JsonValue:
    """The form with this call's arguments where the example has its own: copying is code's work.

    Texts, lists and larger numbers are carried as whole values and, but for lists, as words of a text; what
    could stand for anything (flags, small numbers, single letters) only in a field of the argument's name.
    """
    own = name in call.args and name in example.args
    if own and form == example.args[name] and isinstance(form, type(example.args[name])):
        return call.args[name]
    if isinstance(form, dict):
        return {key: _carried(value, example, call, key) for key, value in form.items()}
    changed = [
        (value, call.args[key])
        for key, value in example.args.items()
        if key in call.args and call.args[key] != value and _is_telling(value)
    ]
    for before, after in changed:
        if form == before and isinstance(form, type(before)):
            return after
    if isinstance(form, list):
        return [_carried(value, example, call) for value in form]
    words = {str(before): str(after) for before, after in changed if not isinstance(before, list)}
    if not isinstance(form, str):
        return form
    inner = _as_object(form)
    if inner is not None:  # text that holds JSON, as MCP servers send it
        carried = _carried(inner, example, call)
        return form if carried == inner else json.dumps(carried, ensure_ascii=False)
    if not words:
        return form
    pattern = "|".join(map(re.escape, sorted(words, key=len, reverse=True)))
    return re.sub(rf"(?<!\w)(?<!\d\.)(?:{pattern})(?!\w)(?!\.\d)", lambda match: words[match[0]], form)


def _is_telling(value: JsonValue) -> bool:
    """Whether a value that stands elsewhere too is very likely a copy of the argument."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return abs(value) >= _CARRIED_ANYWHERE
    return isinstance(value, (str, list)) and len(value) > (isinstance(value, str))


def _with_leaf(form: JsonValue, parts: Sequence[str], value: JsonValue, path: str) -> JsonValue:
    """The form with one leaf replaced that exists and keeps its kind; forms do not grow by it."""
    if not parts:
        if isinstance(form, (dict, list)) or not _same_kind(form, value):
            raise NotSerializable(f"leaves: '{path}' is a {type(form).__name__} in the example")
        return value
    inner = _as_object(form) if isinstance(form, str) else None
    if inner is not None:  # text that holds JSON, as MCP servers send it
        return json.dumps(_with_leaf(inner, parts, value, path), ensure_ascii=False)
    part, *rest = parts
    if isinstance(form, dict) and part in form:
        return {**form, part: _with_leaf(form[part], rest, value, path)}
    if isinstance(form, list) and part.isdecimal() and int(part) < len(form):
        at = int(part)
        return [*form[:at], _with_leaf(form[at], rest, value, path), *form[at + 1 :]]
    raise NotSerializable(f"leaves: the example has no '{path}'")


def _same_kind(before: JsonValue, after: JsonValue) -> bool:
    if before is None or after is None:
        return True
    return all(isinstance(before, kind) == isinstance(after, kind) for kind in (bool, str))


def _argument(value: JsonValue, call: Call) -> JsonValue:
    """`arg:name` points at an argument: copying is code's work."""
    if isinstance(value, str) and value.startswith("arg:"):
        name = value.removeprefix("arg:")
        if name not in call.args:
            raise NotSerializable(f"arg:{name}: {call.tool} was called without it")
        return escaped(call.args[name])
    return value


def _artifact(example: Answer, content: JsonValue) -> JsonValue:
    """What stands beside a content: an MCP tool's structured form of it, else as the example has it."""
    beside = copy.deepcopy(example.artifact)
    if not isinstance(beside, dict) or "structured_content" not in beside:
        return beside
    before, after = _only_text(example.content), escaped(_only_text(content))
    if before is not None and beside["structured_content"] == before:
        return {**beside, "structured_content": after}
    if beside["structured_content"] == {"result": before}:
        return {**beside, "structured_content": {"result": after}}
    return beside


def _only_text(content: JsonValue) -> JsonValue:
    """The value that a single block of text spells; the text itself where it is no JSON object or list."""
    if isinstance(content, list) and len(content) == 1 and isinstance(content[0], dict):
        content = content[0].get("text")
    if not isinstance(content, str):
        return content
    inner = _as_object(content)
    return content if inner is None else inner


def _parsed(answer: JsonValue, examples: Sequence[Transition], form: AnswerSchema | None) -> JsonValue:
    """Convert a whole answer to the tool's form: a text if the schema or the examples are texts.

    Where neither tells, a text that is JSON is the object it spells: code that calls a tool reads fields.
    """
    contents = [example.answer.content for example in examples if example.answer.error is None]
    objects = any(isinstance(content, (dict, list)) for content in contents)
    if not isinstance(answer, str):
        texts = (form is not None and form.is_text) or (bool(contents) and not objects)
        return json.dumps(answer, ensure_ascii=False) if texts else escaped(answer)
    if (form is not None and form.wants_object) or objects:
        return escaped(read_literal(answer))
    if (form is not None and form.schema) or contents:
        return answer
    inner = _as_object(answer)
    return answer if inner is None else escaped(inner)


def _as_object(text: str) -> JsonValue | None:
    try:
        value = read_json(text)
    except NotSerializable:
        return None
    return value if isinstance(value, (dict, list)) else None
