"""What can be named around a call, by which rules say where a value comes from.

`args.x` is an argument; `view.T.f` a field of the read T that takes no arguments; `row.T.p[f=x].g` field g
of the one record in any view of T at p whose f equals argument x, and `.@a` the argument of the read that
showed it; `bound.T(x).failed` whether the read T with this very value is known to fail; `answer.f` a
field of the write's own answer; `key.a` an argument of the read that an effect is told of; `fresh.f` an id
that is to be made up.
"""

from collections.abc import Mapping
from functools import cached_property

from dreamgym_kit.dream.state.values import fields, is_key, is_number, is_scalar, spell
from dreamgym_kit.dream.state.views import State
from dreamgym_kit.serialization import JsonValue

_MAX_NAMES = 160
_AMBIGUOUS = object()


class Names:
    """Named values, also found by their spelling."""

    def __init__(self, values: dict[str, JsonValue]) -> None:
        self.values = values

    @cached_property
    def by_spelling(self) -> dict[str, list[str]]:
        """Names by what they stand for."""
        found: dict[str, list[str]] = {}
        for name, value in self.values.items():
            found.setdefault(spell(value), []).append(name)
        return found

    @cached_property
    def texts(self) -> list[tuple[str, str]]:
        """(text, name) of what may occur inside a longer text, longest first, arguments before others."""
        found = [
            (text, f"{name}|{form}")
            for name, value in self.values.items()
            if is_scalar(value)
            for text, form in _spellings(value)
            if len(text) > 1 or (text and name.startswith("args."))
        ]
        return sorted(found, key=lambda item: (-len(item[0]), not item[1].startswith("args."), item[1]))

    @cached_property
    def numbers(self) -> list[tuple[str, JsonValue]]:
        """Operands: numbers that are not zero."""
        return [(name, value) for name, value in self.values.items() if is_number(value) and value != 0][:14]

    def with_more(self, more: Mapping[str, JsonValue]) -> "Names":
        """These names and others."""
        return Names({**self.values, **more})


def _spellings(value: JsonValue) -> list[tuple[str, str]]:
    if isinstance(value, str):
        return [(value, "text")] if len(value) <= 200 else []
    if value is None or isinstance(value, bool):
        return []
    found = [(str(value), "text"), (f"{value:.2f}", "cents")]
    if isinstance(value, float) and value.is_integer():
        found.append((str(int(value)), "whole"))
    return found


def spelled_as(value: JsonValue, form: str) -> str:
    """One of the ways in which a value stands in a text."""
    match form:
        case "cents":
            return f"{float(value):.2f}"
        case "whole":
            return str(int(value))
    return str(value)


def around(args: Mapping[str, JsonValue], state: State, fresh: Mapping[str, JsonValue]) -> Names:
    """Everything that can be named when a call with these arguments meets this state."""
    values: dict[str, JsonValue] = {}
    for key, value in args.items():
        values[f"args.{key}"] = value
        if isinstance(value, dict):
            values.update({f"args.{key}.{name}": item for name, item in fields(value, 8).items() if name})
    numeric = [(key, value) for key, value in args.items() if is_number(value)][:4]
    for place, (left, one) in enumerate(numeric):
        for right, other in numeric[place + 1 :]:
            values[f"args.({left}*{right})"] = one * other
    values.update({f"fresh.{path}": symbol for path, symbol in fresh.items()})
    for view in state.without_args():
        values.update(view.named)
        if len(values) > _MAX_NAMES:
            break
    _add_rows(values, args, state)
    return Names(values)


def _add_rows(values: dict[str, JsonValue], args: Mapping[str, JsonValue], state: State) -> None:
    for key, value in args.items():
        if not is_key(value):
            continue
        found: dict[str, object] = {}
        shown: dict[str, Mapping[str, JsonValue]] = {}
        for view, pattern, field, record in state.find(str(value)):
            if field is None:
                values[f"bound.{view.tool}({key}:{pattern}).failed"] = view.failed
                continue
            label = f"row.{view.tool}.{pattern}[{field}={key}]"
            known = found.get(label)
            if known is None:
                found[label], shown[label] = record, view.args
            elif known is not _AMBIGUOUS and known != record:
                found[label] = _AMBIGUOUS
        for label, record in found.items():
            if record is not _AMBIGUOUS and len(values) <= _MAX_NAMES:
                _name_record(values, label, record, shown[label])


def _name_record(
    values: dict[str, JsonValue], label: str, record: object, read_args: Mapping[str, JsonValue]
) -> None:
    values[label] = record
    if isinstance(record, dict):
        values.update({f"{label}.{name}": item for name, item in list(record.items())[:12]})
    values.update({f"{label}.@{name}": item for name, item in read_args.items()})
