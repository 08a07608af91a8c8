"""The settings reference, from the records themselves: keys, types, defaults, flags, variables, sentences.

What a key says, its choices and its bounds are declared in `settings/schema.py`; the commands
say which of them have a flag.
"""

import inspect
import json
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from markdown_pages import code, page_of, row, text
from sphinx.application import Sphinx

from dreamgym_kit.cli import evaluate, s2r, simulate, train
from dreamgym_kit.settings import read
from dreamgym_kit.settings.load import environment_names
from dreamgym_kit.settings.schema import Key, Settings, declared, without_none
from dreamgym_kit.types import Effect

HEAD = ("| key | what it says, what it can be, which flag and variable say it too |", "| --- | --- |")
KINDS: Mapping[Any, str] = {bool: "true or false", int: "whole number", float: "number", str: "text"}
NAMED = {
    "tools": "NAME of a tool",
    "functions": '"pkg.mod:function"',
    "nodes": "NAME of a node",
    "faults": '"PATTERN" of tools',
    "match": '"PATTERN" of tools',
}


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.add_directive("settings-reference", page_of(settings_page))
    return {"parallel_read_safe": True}


def settings_page() -> Iterator[str]:
    """The lines of the page."""
    hints, keys, flags = get_type_hints(Settings), declared(Settings), flags_of_keys()
    plain = [key for key in read.keys_of(Settings) if _record(hints[key]) is None]
    yield from ("## At the top of the file", "", *HEAD)
    for key in plain:
        yield _row(Settings, key, (key,), flags)
    for section in read.keys_of(Settings):
        record = _record(hints[section])
        if record is None:
            continue
        title = section if is_dataclass(hints[section]) else f"{section}.{NAMED[section]}"
        yield from ("", f"## [{title}]", "", text(inspect.getdoc(record) or ""), "")
        if section in keys:
            yield from (text(f"Tables by name: {keys[section].says}."), "")
        yield from HEAD
        for key in read.keys_of(record):
            yield _row(record, key, (section, key), flags)


def flags_of_keys() -> dict[tuple[str, ...], list[str]]:
    """Which flag sets which key, as the commands declare it."""
    return {
        tuple(key.split(".")): [flag]
        for command in (simulate.command, simulate.record, evaluate.command, train.command, s2r.command)
        for key, flag in command.flags.items()
    }


def _row(record: type, key: str, place: tuple[str, ...], flags: Mapping[tuple[str, ...], list[str]]) -> str:
    said = declared(record)[key]
    kind = get_type_hints(record)[key]
    variables = {setting: name for name, setting in environment_names().items()}
    ways = [*flags.get(place, ()), *filter(None, [variables.get(place)])]
    default = next(known for known in fields(record) if known.name == key)
    told = [text(said.says), f"*{_kind(kind, said)}; {_default(default)}*", " ".join(map(code, ways))]
    return row(code(key), "<br>".join(filter(None, told)))


def _record(kind: Any) -> type | None:
    """The record that a section's keys are of; None for a plain key."""
    if is_dataclass(kind):
        return kind
    inner = get_args(kind)[-1] if get_origin(kind) is not None and get_args(kind) else None
    return inner if is_dataclass(inner) and get_origin(kind) is not UnionType else None


def _kind(kind: Any, said: Key) -> str:
    kind = without_none(kind)
    if said.among:
        listed = "list of " if get_origin(kind) is tuple else ""
        return listed + ", ".join(map(code, said.among))
    if kind is Effect:
        return ", ".join(code(effect) for effect in Effect)
    if get_origin(kind) is tuple:
        return f"list of {KINDS[get_args(kind)[0]]}s"
    if get_origin(kind) is not None:
        return f"table: name = {KINDS.get(get_args(kind)[1], 'text or table')}"
    return KINDS.get(kind, "table") + (_bounds(said) if kind in (int, float) else "")


def _bounds(said: Key) -> str:
    return f", {said.least:g} to {said.most:g}" if said.most is not None else f", at least {said.least:g}"


def _default(field: Any) -> str:
    if field.default is MISSING:
        return "has to be said" if field.default_factory is MISSING else "default: empty"
    if field.default is None:
        return "default: not set"
    return "default: empty" if field.default == () else f"default: {code(json.dumps(field.default))}"
