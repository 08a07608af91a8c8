"""Programs as text for people to read and correct: `Text("order ", Get("args.order_id"), " is gone")`.

The notation is nested calls with constants. It is parsed as a syntax tree and built from a closed list of
forms; nothing in it is ever executed. `packed` writes the same forms and all else that was mined as JSON, for
the kit itself.
"""

import ast
import json
import sys
import types
import typing
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from functools import partial
from typing import Any

import msgspec

from dreamgym_kit.dream.programs import conditions, effects, forms, queries
from dreamgym_kit.dream.programs.collections import Collections, Document, ListSite, Projection
from dreamgym_kit.dream.programs.conditions import Condition
from dreamgym_kit.dream.programs.environment_fields import EnvironmentFields
from dreamgym_kit.dream.programs.everywhere import Everywhere
from dreamgym_kit.dream.programs.model import CounterValue, ToolProgram
from dreamgym_kit.dream.programs.trees import TreeLeaf, TreeNode
from dreamgym_kit.errors import UserError
from dreamgym_kit.serialization import JsonValue

_WIDTH = 100
_BASIC = 0xFFFF


class Decide(msgspec.Struct, frozen=True):
    """Decide a call's outcome: an outcome's name, names with their recorded counts, or a further test."""

    condition: Condition
    yes: "Decide | str | Mapping[str, int] | None"
    no: "Decide | str | Mapping[str, int] | None" = None
    unknown: "Decide | str | Mapping[str, int] | None" = None


_FORMS: Mapping[str, type[msgspec.Struct]] = {"Decide": Decide} | {
    name: form
    for module in (forms, conditions, effects, queries)
    for name, form in vars(module).items()
    if isinstance(form, type)
    and issubclass(form, msgspec.Struct)
    and form not in (forms.Program, conditions.Condition)
}
_WORDS: Mapping[tuple[str, str], list[str]] = {
    ("Apply", "function"): list(forms.FUNCTIONS),
    ("Arithmetic", "op"): list(forms.OPERATIONS),
    ("Predicate", "test"): [*queries.TESTS, queries.WORDS],
}
_CONSTANTS = (str, int, float, bool, type(None))


def _restored(kind: type[Any], attributes: dict[str, Any]) -> Any:
    made: Any = object.__new__(kind)
    vars(made).update(attributes)
    return made


_PACKED: Mapping[str, Callable[..., Any]] = {
    **_FORMS,
    **{form.__name__: form for form in (TreeLeaf, TreeNode, ToolProgram, CounterValue, Everywhere)},
    **{form.__name__: form for form in (Document, ListSite, Projection)},
    **{form.__name__: partial(_restored, form) for form in (Collections, EnvironmentFields)},
    "tuple": lambda *items: items,
    "set": lambda *items: set(items),
    "frozenset": lambda *items: frozenset(items),
    "dict": lambda *items: dict(zip(items[::2], items[1::2], strict=True)),
    "Counter": lambda *items: Counter(dict(zip(items[::2], items[1::2], strict=True))),
}


class UnreadableProgram(UserError):
    """Text is not a valid program; `line` is the line within it, from 1."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


def write(value: Any, indent: str = "") -> str:
    """Serialize a form, or a value in it, as text."""
    short = _short(value)
    if len(indent) + len(short) <= _WIDTH:
        return short
    inner = indent + "  "
    opening, parts, closing = _parts(value)
    if not parts:
        return short
    lines = [f"{inner}{name}{write(part, inner)}," for name, part in parts]
    return "\n".join([opening, *lines, indent + closing])


def _short(value: Any) -> str:
    opening, parts, closing = _parts(value)
    return opening + ", ".join(f"{name}{_short(part)}" for name, part in parts) + closing


def _parts(value: Any) -> tuple[str, list[tuple[str, Any]], str]:
    """Split a value into its opening text, its parts with their prefixes, and its closing text."""
    if isinstance(value, msgspec.Struct):
        return f"{type(value).__name__}(", list(_arguments(value)), ")"
    if isinstance(value, Mapping):
        return "{", [(f"{_text(name)}: ", part) for name, part in value.items()], "}"
    if isinstance(value, (list, tuple)):
        return "[", [("", part) for part in value], "]"
    if isinstance(value, (set, frozenset)):
        return "[", [("", part) for part in sorted(value)], "]"
    return _text(value) if isinstance(value, str) else repr(value), [], ""


def _text(value: str) -> str:
    """Quote a string and escape unprintable characters, as both Python and TOML read it."""
    signs = json.dumps(value, ensure_ascii=False)
    return "".join(sign if sign.isprintable() else _escaped(ord(sign)) for sign in signs)


def _escaped(code: int) -> str:
    return f"\\u{code:04x}" if code <= _BASIC else f"\\U{code:08x}"


def _arguments(form: msgspec.Struct) -> Iterable[tuple[str, Any]]:
    fields = msgspec.structs.fields(form)
    if _is_spread(type(form)):
        return [("", part) for part in getattr(form, fields[0].name)]
    return [
        ("" if field.required else f"{field.name}=", getattr(form, field.name))
        for field in fields
        if field.required or getattr(form, field.name) not in (field.default, {})
    ]


def _is_spread(form: type[msgspec.Struct]) -> bool:
    """Whether a form's only field is a tuple, whose items are then its arguments."""
    fields = msgspec.structs.fields(form)
    return len(fields) == 1 and typing.get_origin(fields[0].type) is tuple


def read(text: str, wanted: Any) -> Any:
    """Parse a text into a form.

    Args:
        text: in the notation.
        wanted: the required type, for example `forms.Program`.

    Raises:
        UnreadableProgram: the text is not of this type; gives the line and the form nearest to a wrong name.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None) or 1
        raise UnreadableProgram(f"not a program: {getattr(error, 'msg', error)}", line) from None
    try:
        return _fitted(_built(tree), wanted, tree.lineno)
    except RecursionError:
        raise UnreadableProgram("the program is nested too deeply", tree.lineno) from None


def _built(node: ast.expr) -> Any:
    if isinstance(node, ast.Call):
        return _built_form(node)
    if isinstance(node, (ast.List, ast.Tuple)):
        return tuple(_built(item) for item in node.elts)
    if isinstance(node, ast.Dict):
        names = [_built(name) if name is not None else None for name in node.keys]
        if all(isinstance(name, str) for name in names):
            return dict(zip(names, map(_built, node.values), strict=True))
    if isinstance(node, ast.Constant) and isinstance(node.value, _CONSTANTS):
        if isinstance(node.value, (int, float)) and node.value > sys.float_info.max:
            raise UnreadableProgram("a number this large cannot be read", node.lineno)
        return node.value
    if (
        isinstance(node, ast.UnaryOp)
        and isinstance(node.op, ast.USub)
        and isinstance(node.operand, ast.Constant)
    ):
        number = _built(node.operand)
        if isinstance(number, (int, float)) and not isinstance(number, bool):
            return -number
    raise UnreadableProgram(f"'{ast.unparse(node)[:60]}' is neither a form nor a constant", node.lineno)


def _built_form(node: ast.Call) -> msgspec.Struct:
    name = node.func.id if isinstance(node.func, ast.Name) else ast.unparse(node.func)[:60]
    form = _FORMS.get(name)
    if form is None:
        near = get_close_matches(name, _FORMS, n=1, cutoff=0)
        raise UnreadableProgram(f"unknown form '{name}'; did you mean '{near[0]}'?", node.lineno)
    fields = msgspec.structs.fields(form)
    if _is_spread(form):
        given: dict[str, Any] = {fields[0].name: tuple(map(_built, node.args))}
    else:
        given = {field.name: _built(arg) for field, arg in zip(fields, node.args, strict=False)}
    given |= {str(keyword.arg): _built(keyword.value) for keyword in node.keywords}
    names = [field.name for field in fields]
    wrong = sorted(set(given) - set(names))
    missing = [field.name for field in fields if field.required and field.name not in given]
    if wrong or missing or (len(node.args) > len(fields) and not _is_spread(form)):
        problem = "has too many arguments"
        if wrong or missing:
            problem = f"has no '{wrong[0]}'" if wrong else f"lacks '{missing[0]}'"
        raise UnreadableProgram(f"{name} {problem}; write {name}({', '.join(names)})", node.lineno)
    for (of, part), words in _WORDS.items():
        if of == name and given.get(part, "") not in words and part in given:
            near = get_close_matches(str(given[part]), words, n=1, cutoff=0)
            raise UnreadableProgram(
                f"{name} has no {part} '{given[part]}'; did you mean '{near[0]}'?", node.lineno
            )
    hints = typing.get_type_hints(form)
    return form(
        **{key: _fitted(value, hints[key], node.lineno, f"{name}.{key}") for key, value in given.items()}
    )


def _fitted(value: Any, hint: Any, line: int, place: str = "") -> Any:
    """Convert a value to the type that its field requires: lists become tuples, sets or lists."""
    for option in _options(hint):
        origin, inside = typing.get_origin(option) or option, typing.get_args(option)
        if origin is Any or option is Any:
            return _as_json(value)
        if origin is tuple and isinstance(value, tuple):
            parts = [inside[0]] * len(value) if inside[-1] is Ellipsis else list(inside)
            if len(parts) == len(value):
                return tuple(_fitted(part, of, line, place) for part, of in zip(value, parts, strict=True))
        elif origin is frozenset and isinstance(value, tuple):
            return frozenset(value)
        elif isinstance(origin, type) and issubclass(origin, Mapping) and isinstance(value, dict):
            of = inside[1] if len(inside) == 2 else Any
            return {name: _fitted(part, of, line, place) for name, part in value.items()}
        elif origin is float and isinstance(value, (int, float)) and not isinstance(value, bool):
            return value
        elif origin is int and isinstance(value, bool):
            continue
        elif isinstance(origin, type) and isinstance(value, origin):
            return value
    at = f"{place}: " if place else ""
    wanted = " or ".join(getattr(option, "__name__", str(option)) for option in _options(hint))
    raise UnreadableProgram(f"{at}{write(value)[:60]} is not a {wanted}", line)


def packed(value: Any) -> JsonValue:
    """Write mined forms and containers of them as JSON: `{"Get": [{"tuple": ["args.id"]}]}`.

    Raises:
        KeyError: a value is of another kind.
    """
    if value is None or isinstance(value, _CONSTANTS):
        return value
    if isinstance(value, list):
        return [packed(item) for item in value]
    kind = "dict" if isinstance(value, defaultdict) else type(value).__name__
    parts: Iterable[Any] = value
    if isinstance(value, dict):
        parts = [part for pair in value.items() for part in pair]
    elif kind not in ("tuple", "set", "frozenset"):
        fields = getattr(type(value), "__match_args__", None)
        parts = [vars(value)] if fields is None else [getattr(value, name) for name in fields]
    if kind not in _PACKED:
        raise KeyError(kind)
    return {kind: [packed(part) for part in parts]}


def unpacked(value: JsonValue) -> Any:
    """Read what `packed` wrote.

    Raises:
        KeyError, TypeError, ValueError: it did not write this.
    """
    if isinstance(value, list):
        return [unpacked(item) for item in value]
    if not isinstance(value, dict):
        return value
    ((kind, parts),) = value.items()
    return _PACKED[kind](*map(unpacked, parts))


def _options(hint: Any) -> list[Any]:
    if isinstance(hint, (types.UnionType,)) or typing.get_origin(hint) is typing.Union:
        return [option for inner in typing.get_args(hint) for option in _options(inner)]
    return [hint]


def _as_json(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_as_json(item) for item in value]
    if isinstance(value, dict):
        return {name: _as_json(item) for name, item in value.items()}
    return value
