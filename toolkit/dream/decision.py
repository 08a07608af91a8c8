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
from dreamgym_kit.dream.structured_output import closed, read_object
from dreamgym_kit.errors import NotSerializable
from dreamgym_kit.serialization import JsonValue, escaped
from dreamgym_kit.types import Answer, Call, Effect, Source, ToolSpec, Transition

MAX_CHANGES = 2
"""Changed facts of one call; models get more than that wrong nearly always (arXiv 2605.07247)."""
_MAX_ANSWER = 20_000  # characters of what a decision may hold
_LEAF_TYPES = ["string", "number", "boolean", "null"]


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


def read_decision(text: str) -> Decision:
    """Read a model's words.

    Raises:
        NotSerializable: not one JSON object of the schema; says what is wrong, for one repair.
    """
    output = read_object(text, SCHEMA, max_bytes=_MAX_ANSWER)
    return Decision(
        reasoning=output["reasoning"],
        outcome=output["outcome"],
        like=output["like"],
        leaves={leaf["path"]: leaf["value"] for leaf in output["leaves"]},
        answer=output["answer"],
        error=output["error"],
        changes=tuple(output["set"]),
        confidence=float(output["confidence"]),
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
        return Answer(source=Source.UNANSWERED, confidence=0.0, why="the model cannot tell either")
    if decision.changes and not tool.effect.changes_environment:
        raise NotSerializable(f"set: {call.tool} only reads; it changes nothing")
    if len(decision.changes) > MAX_CHANGES:
        raise NotSerializable(
            f"set: at most {MAX_CHANGES} changes; a call that changes more is outcome 'unknown'"
        )
    example = _example(decision.like, call, examples)
    if decision.outcome == "error":
        return _failure(decision, tool, example)
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
        carried = _carried(example.answer.content, _replacements(example.call, call))
        content = _filled(carried, decision.leaves, call)
        artifact = _artifact(example.answer, content)
    return Answer(
        content=content,
        artifact=artifact,
        source=Source.MODEL,
        confidence=CEILING[form_of(decision)] * decision.confidence,
        cites=(example.id,) if example is not None else (),
        changes=changes,
    )


def _failure(decision: Decision, tool: ToolSpec, example: Transition | None) -> Answer:
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
        why=f"reasoned for a {Effect(tool.effect)} tool",
    )


def _example(like: int | None, call: Call, examples: Sequence[Transition]) -> Transition | None:
    if like is None:
        return None
    if not 1 <= like <= len(examples):
        raise NotSerializable(f"like: there is no example {like}; there are {len(examples)}")
    found = examples[like - 1]
    if found.call.tool != call.tool:
        raise NotSerializable(f"like: example {like} is of {found.call.tool}, not of {call.tool}")
    return found


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


def _replacements(example: Call, call: Call) -> dict[str, str]:
    """What an example's arguments were, by what this call's are: copying is code's work."""
    given = {name: value for name, value in call.args.items() if isinstance(value, str)}
    return {
        value: given[name]
        for name, value in example.args.items()
        if isinstance(value, str) and len(value) > 1 and name in given and given[name] != value
    }


def _carried(form: JsonValue, replacements: Mapping[str, str]) -> JsonValue:
    """The form with this call's arguments where the example has its own: as whole values and as words."""
    if not replacements:
        return form
    if isinstance(form, dict):
        return {name: _carried(value, replacements) for name, value in form.items()}
    if isinstance(form, list):
        return [_carried(value, replacements) for value in form]
    if not isinstance(form, str):
        return form
    if form in replacements:
        return replacements[form]
    words = "|".join(map(re.escape, sorted(replacements, key=len, reverse=True)))
    return re.sub(rf"(?<!\w)(?:{words})(?!\w)", lambda found: replacements[found[0]], form)


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


def _parsed(text: str, examples: Sequence[Transition], form: AnswerSchema | None) -> JsonValue:
    """A whole answer as the tool gives its answers: an object where its examples or its form are objects."""
    if form is not None and form.wants_object:
        return escaped(read_json(text))
    if any(
        isinstance(example.answer.content, (dict, list))
        for example in examples
        if example.answer.error is None
    ):
        return escaped(read_json(text))
    return text


def _as_object(text: str) -> JsonValue | None:
    try:
        found = read_json(text)
    except NotSerializable:
        return None
    return found if isinstance(found, (dict, list)) else None
