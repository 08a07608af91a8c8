"""The parts of a rule as a person would say them: values, what is done to a place, what is asked of a call.

Data of the toolkit is told in words; names of tools, fields and arguments are told as they are.
"""

import json
import re
from collections.abc import Sequence

from dreamgym_kit.dream.state.trees import Feature
from dreamgym_kit.serialization import JsonValue

_NAME = re.compile(r"\{([^{}]+)\}")  # a whole text that is one name: "{args.city}"
_ROW = re.compile(
    r"\[([^\[\]=]+)=([^\[\]=]+)\]"
)  # the row of a list whose field is so: "[order_id=args.order_id]"
_WHOLE = "the answer"
_FORMS = {"s": "a text", "n": "a number", "[]": "a list", "null": "nothing"}
_SAID = {
    "set": "sets {place} to {value}",
    "new": "adds the field {place}: {value}",
    "delete": "takes {place} away",
    "append": "puts {value} last in {place}",
    "prepend": "puts {value} first in {place}",
    "remove": "takes {value} out of {place}",
    "add": "adds {value} to {place}",
    "subtract": "subtracts {value} from {place}",
}
_ASKED = {  # of a known fact: as it is, and otherwise
    "=": ("{0} is {1}", "{0} is not {1}"),
    "in": ("{0} is among {1}", "{0} is not among {1}"),
    ">": ("{0} is more than {1}", "{0} is not more than {1}"),
    "positive": ("{0} is more than 0", "{0} is not more than 0"),
    "seen": ("something here has named {0}", "nothing here has named {0}"),
    "done": ("this very call has gone well before", "this very call has not gone well before"),
}


def quoted(value: JsonValue) -> str:
    """A value as it is said: texts in single quotes, all else as JSON."""
    if isinstance(value, str) and "'" not in value:
        return f"'{value}'"
    return json.dumps(value, ensure_ascii=False)


def stated(value: JsonValue) -> str:
    """A value of a stated model: a text that is one name ("{args.city}") is told as that name."""
    named = _NAME.fullmatch(value) if isinstance(value, str) else None
    return named[1] if named is not None else quoted(value)


def spelled(expression: str) -> str:
    """A mined expression: a constant text in single quotes, all else as it is."""
    try:
        value: JsonValue = json.loads(expression)
    except ValueError:
        return expression
    return quoted(value)


def operation(kind: str, path: str, value: str) -> str:
    """What is done to one place: "sets status to 'blocked'"."""
    place = _place(path)
    if kind == "set" and value.startswith(("old + ", "old - ")):
        kind, value = ("add" if value[4] == "+" else "subtract"), value[6:]
    if kind in ("append", "prepend", "remove") and place == _WHOLE:
        place = "the list"
    return _SAID[kind].format(place=place, value=value)


def question(feature: Feature, value: object, way: int) -> str:
    """What a decision asks of a call, where it is so (0), is not so (1), or where nobody knows (2)."""
    kind, about = feature[0], feature[1:]
    if way == 2:
        told = question(feature, value, 0)
        return f"it is not known {'what ' + about[0] + ' is' if kind == 'is' else 'whether ' + told}"
    if kind == "is":
        flag = value in ("True", "False")  # as facts spell them
        said = str(value).lower() if flag else quoted(str(value))
        return f"{about[0]} is{' not' if way else ''} {said}"
    if kind == "type":
        return f"{about[0]} is{' not' if way else ''} of type {value}"
    if kind == "before":
        return f"this very call was{' not' if way else ''} answered {value} before"
    return _ASKED[kind][(way == 1) == bool(value)].format(*about)


def whole(parts: Sequence[tuple[str, str]]) -> str:
    """A value of several parts, each with its path: "a record with city = args.city"."""
    if len(parts) == 1 and not parts[0][0]:
        return parts[0][1]
    return "a record with " + ", ".join(f"{path} = {value}" for path, value in parts)


def form(spelled_form: str) -> str:
    """What form an answer has: one letter is told as what it stands for, a failure by its words."""
    if spelled_form in _FORMS:
        return _FORMS[spelled_form]
    failure = _failure(spelled_form)
    return spelled_form if failure is None else f"the failure '{failure}'"


def _failure(spelled_form: str) -> str | None:
    """The words of an answer that failed: "{$answer:{content:...,error:WORDS,error_type:KIND}}"."""
    inside = spelled_form.removeprefix("{$answer:{").removesuffix("}}")
    told, found, kind = inside.rpartition(",error_type:")
    if len(spelled_form) - len(inside) != len("{$answer:{}}") or not found or set(kind) & set(",{}"):
        return None
    if told.startswith("content:"):
        _, found, told = told.rpartition(",error:")
        return told if found else None
    return told.removeprefix("error:") if told.startswith("error:") else None


def _place(path: str) -> str:
    """A path as words: the fields, then the row that they stand in."""
    rows = [f"the row with {row[1]} = {row[2]}" for row in _ROW.finditer(path)]
    fields = ".".join(part for part in _ROW.sub("", path).split(".") if part)
    return " of ".join([*([fields] if fields else []), *reversed(rows)]) or _WHOLE
