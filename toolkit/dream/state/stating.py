"""Mined tool models in the form that settings have, for a person to take over and correct.

Only what that form can say is said: a leaf of a tree whose tests are all of its vocabulary, the answer of
the commonest success, effects and reads left alone. What cannot be said is left out, never bent.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from dreamgym_kit.dream.state.effects import EffectRule
from dreamgym_kit.dream.state.expressions import Expression
from dreamgym_kit.dream.state.models import ToolModels
from dreamgym_kit.dream.state.operations import OperationStep
from dreamgym_kit.dream.state.templates import Template
from dreamgym_kit.dream.state.texts import parts_of
from dreamgym_kit.dream.state.trees import Node
from dreamgym_kit.dream.state.wrapping import unwrapped
from dreamgym_kit.errors import UserError
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.settings.templates import escaped
from dreamgym_kit.settings.tool_models import ToolModelSettings, read_model

_PURE = 0.8  # share of a leaf's calls that have its form
_LEAST = 2  # calls of a failure
_SAMPLES = 3
_SIGNS = {"plus": "+", "minus": "-", "times": "*"}


class _Unsayable(Exception):
    """The settings' form has no words for it."""


def as_stated(models: ToolModels, tool: str) -> ToolModelSettings | None:
    """What was mined of a tool, as a person would declare it; None where nothing can be said."""
    data: dict[str, Any] = {"fails": list(_fails(models, tool))}
    success = _commonest_success(models, tool)
    if success is not None:
        answer = _valid({"answer": _tried(models.answers[tool, success].template)})
        data["answer"] = answer.get("answer")
        data["changes"] = list(_changes(models.rules.get((tool, success), {})))
    data["keeps"] = sorted(_kept(models, tool))
    made_up = models.fresh.get(tool, {}).items()
    data["fresh"] = {
        path: [str(one) for one in samples[:_SAMPLES]] for path, samples in made_up if path.strip(".")
    }
    said = {key: value for key, value in data.items() if value}
    return read_model(said, ("tools", tool, "model"), _nowhere) if set(said) - {"fresh"} else None


def _fails(models: ToolModels, tool: str) -> Iterator[dict[str, JsonValue]]:
    root = models.trees.get(tool)
    for path, leaf in _leaves(root, ()) if root is not None else ():
        form, count = leaf.counts.most_common(1)[0]
        answer = models.answers.get((tool, form))
        if answer is None or not answer.failure or count < max(_LEAST, _PURE * leaf.counts.total()):
            continue
        try:
            fail = {"when": [_condition(*test) for test in path], **_failure(_value(answer.template))}
        except _Unsayable:
            continue
        if _valid({"fails": [fail]}):
            yield fail


def _leaves(
    node: Node, path: tuple[tuple[Node, int], ...]
) -> Iterator[tuple[tuple[tuple[Node, int], ...], Node]]:
    if node.feature is None:
        yield path, node
        return
    for way, branch in enumerate(node.branches):
        if branch is not None:
            yield from _leaves(branch, (*path, (node, way)))


def _condition(node: Node, way: int) -> dict[str, JsonValue]:
    """A test of a tree as a condition."""
    feature = node.feature or ()
    if way == 2:
        raise _Unsayable
    if feature[0] == "is":
        texts = {"True": True, "False": False, "None": None}
        value = texts.get(str(node.value), escaped(str(node.value)))
        return {"of": feature[1], ("is", "is_not")[way]: value}
    holds = (node.value is True) == (way == 0)
    match feature:
        case ("=", left, right):
            return {"of": left, "is" if holds else "is_not": f"{{{right}}}"}
        case ("in", left, right):
            return {"of": left, "in" if holds else "not_in": f"{{{right}}}"}
        case (">", left, right):
            return {"of": left, "above" if holds else "at_most": f"{{{right}}}"}
        case ("positive", left):
            return {"of": left, "above" if holds else "at_most": 0}
        case ("done",):
            return {"of": "call.done", "is": holds}
    raise _Unsayable


def _failure(value: JsonValue) -> dict[str, JsonValue]:
    parts = value.get("$answer") if isinstance(value, dict) else None
    if not isinstance(parts, dict):
        return {"answer": unwrapped(value)}
    if not isinstance(parts.get("error"), str):
        raise _Unsayable
    return {"error": parts["error"], "error_type": parts.get("error_type") or "ToolException"}


def _commonest_success(models: ToolModels, tool: str) -> str | None:
    seen = {
        form: answer.template.seen
        for (name, form), answer in models.answers.items()
        if name == tool and not answer.failure
    }
    return max(seen, key=lambda form: (seen[form], form)) if seen else None


def _changes(rules: Mapping[str, EffectRule]) -> Iterator[dict[str, JsonValue]]:
    for read, rule in rules.items():
        if rule.keeps or ":" in read or rule.right <= rule.wrong:
            continue
        try:
            change = {"read": read, "bind": dict(rule.bind), **_program(rule)}
        except _Unsayable:
            continue
        if _valid({"changes": [change]}):
            yield change


def _program(rule: EffectRule) -> dict[str, JsonValue]:
    if rule.program is None:
        return {"whole": unwrapped(_value(rule.whole))}
    if [(_inside(path), kind) for path, kind in rule.program] == [((), "set")]:
        return {"whole": unwrapped(_value(rule.operations[rule.program[0]]))}
    done: dict[str, Any] = {}
    for path, kind in rule.program:
        place = ".".join(map(_step, _inside(path)))
        if kind == "delete":
            done.setdefault("delete", []).append(place)
        else:
            word = "set" if kind == "new" else kind
            done.setdefault(word, {})[place] = _value(rule.operations[path, kind])
    return done


def _inside(path: tuple[OperationStep, ...]) -> tuple[OperationStep, ...]:
    """A path without the wrapping of the answer, which statements leave out."""
    keys = [step.key for step in path]
    for wrapping in (["$answer", "content"], [0, "text"], ["$json"]):
        if keys[: len(wrapping)] == wrapping:
            keys, path = keys[len(wrapping) :], path[len(wrapping) :]
    return path


def _step(step: OperationStep) -> str:
    if step.kind == "key":
        if isinstance(step.key, int):
            return f"[{step.key}]"
        if not step.key or any(sign in step.key for sign in ".[]<>"):
            raise _Unsayable
    return str(step)


def _kept(models: ToolModels, tool: str) -> Iterator[str]:
    """The reads that every recorded success left alone, those of the very thing that it named too."""
    forms = [
        rules
        for (name, form), rules in models.rules.items()
        if name == tool and (answer := models.answers.get((name, form))) is not None and not answer.failure
    ]
    for read in {read for rules in forms for read in rules if ":" not in read}:
        found = [rules[read] for rules in forms if read in rules]
        alone = all(rule.keeps and not rule.changed and rule.other == rule.other_same for rule in found)
        seen = all(rule.witnessed((name, name) for name in rule.alike) for rule in found)
        if alone and seen and sum(rule.same + rule.other for rule in found) >= _LEAST:
            yield read


def _tried(template: Template) -> JsonValue:
    try:
        return unwrapped(_value(template))
    except _Unsayable:
        return None


def _value(template: Template) -> JsonValue:
    """What a template makes, as a value with holes."""
    best = template.best()
    parts = template.records or template.lengths
    if best is not None and (best[1] > 0.93 * template.seen or not parts):
        return _spoken(best[0])
    if template.records:
        return {
            key: _value(template.children[key])
            for key, count in template.keys.items()
            if count >= 0.5 * template.records and key in template.children
        }
    if template.lengths:
        length = template.lengths.most_common(1)[0][0]
        return [_value(template.items[length, place]) for place in range(length)]
    raise _Unsayable


def _spoken(expression: Expression) -> JsonValue:
    kind, of, text = expression
    if kind == "const":
        return _escaped(json.loads(text))
    if kind == "text":
        parts = (
            escaped(part) if isinstance(part, str) else _hole(part[0], part[1]) for part in parts_of(text)
        )
        return "".join(parts)
    said = {
        "name": lambda: of[0],
        "old_plus": lambda: f"old + {of[0]}",
        "old_minus": lambda: f"old - {of[0]}",
        "old_step": lambda: f"old {'-' if text.startswith('-') else '+'} {text.lstrip('-')}",
        "next": lambda: f"{of[0]} + 1",
        "default": lambda: f"{of[0]} or {text}",
    }
    if kind in said:
        return f"{{{said[kind]()}}}"
    if kind in ("with", "without"):
        raise _Unsayable
    return f"{{{kind} {of[0]}}}" if kind in ("float", "not") else f"{{{of[0]} {_SIGNS[kind]} {of[1]}}}"


def _hole(name: str, form: str) -> str:
    return f"{{{name}}}" if form == "text" else f"{{{name}|{form}}}"


def _escaped(value: JsonValue) -> JsonValue:
    if isinstance(value, dict):
        return {key: _escaped(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_escaped(item) for item in value]
    return escaped(value) if isinstance(value, str) else value


def _valid(data: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """The data where it can be read back; a name with a space or a brace cannot be said."""
    try:
        read_model(data, ("tool",), _nowhere)
    except UserError:
        return {}
    return data


def _nowhere(*_: str) -> str:
    return "mined"
