"""Writes `dreamgym.toml`: every key with a word on it, guesses with their reasons, for a person to correct.

A key at its default stands as a comment, so that a later default reaches the user; reading what was
written gives the same settings. Texts from the graph (descriptions, names) can only ever be comments
or quoted: they cannot add a key.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from inspect import cleandoc
from typing import Any

import tomlkit

from dreamgym_kit.settings.read import sections
from dreamgym_kit.settings.schema import Settings, declared
from dreamgym_kit.settings.tool_models import ToolModelSettings, as_data
from dreamgym_kit.vocabulary import Effect, ToolSpec

_WIDTH = 96
_HEAD = """\
# Settings of dreamgym-kit. Paths are relative to this file. What starts with # is off or at its default.
# Every key has an environment variable, DREAMGYM_<SECTION>_<KEY>: DREAMGYM_SIMULATE_REPEATS=4.
# No secrets here: keys and tokens belong in environment variables that your graph reads.
"""
_EFFECTS = """\

# What each tool does to its world. Correct the guesses: this is what a dry run rests on.
#   pure         computes from its arguments alone; runs for real in a dream
#   control      the framework's own: hand-off, todo list; runs for real in a dream
#   read         looks, changes nothing
#   write        changes something, can be undone
#   destructive  cannot be undone: mail, payment, delete
# What a tool answers, when it fails and what it changes can be said as well, in [tools.NAME.model] (see
# docs/dream.md);
# `dreamgym-kit rules export` writes down what recordings show of it.
"""
_GUESSED = "guessed = true  # nobody has confirmed it yet: delete this line once you have"
_EXAMPLES = """\

# Plain functions that act on the world without being tools:
# [functions."my_agent.mail:send"]
# effect = "destructive"

# Nodes that act on the world by themselves:
# [nodes.notify]
# effect = "write"

# Checkers that tasks name, and worlds that can be put up for `record`:
# [checkers]
# refunded_once = "my_agent.checks:refunded_once"
# [worlds.desk]
# ref = "my_agent.worlds:Desk"
"""


_UNPAIRED = re.compile("[\ud800-\udfff]")  # half a character: TOML has no form for it
_FAULT_EXAMPLE = """\

# What breaks in the dream, by tool pattern (error, timeout, timeout_applied, rate_limit, slow, malformed,
# stale_read, outage); a timeout_applied had taken effect:
# [faults."*"]
# rate = 0.05
# kinds = ["timeout", "timeout_applied"]
"""


def render_settings(settings: Settings, specs: Sequence[ToolSpec] = ()) -> str:
    """Write settings as commented TOML, with the tools of a graph where settings do not name them yet."""
    parts = [_HEAD, *_keys(settings, Settings())]
    for name, record in sections().items():
        section = getattr(settings, name)
        parts += ["", f"# {cleandoc(record.__doc__ or '')}", f"[{name}]", *_keys(section, record())]
    parts.append(_EFFECTS)
    parts += _tools(settings, [spec for spec in specs if spec.kind == "tool"])
    parts += _others(settings, [spec for spec in specs if spec.kind == "node"])
    if not (settings.functions or settings.nodes or settings.checkers or settings.worlds):
        parts.append(_EXAMPLES)
    parts += _faults(settings) if settings.faults else [_FAULT_EXAMPLE]
    return "\n".join(parts).rstrip("\n") + "\n"


def _keys(record: Any, default: Any) -> list[str]:
    lines = []
    for name, key in declared(record).items():
        value, usual = getattr(record, name), getattr(default, name)
        if isinstance(record, Settings) and isinstance(value, Mapping):  # the user's own names, written below
            continue
        text = f"{name} = {_value(key.example if value is None else value)}"
        lines.append(f"{text}  # {key.says}" if value != usual else f"# {text}  # {key.says}")
    return lines


def _tools(settings: Settings, specs: Iterable[ToolSpec]) -> list[str]:
    known = {spec.name: spec for spec in specs}
    lines: list[str] = []
    for name in [*known, *(name for name in settings.tools if name not in known)]:
        spec, said = known.get(name), settings.tools.get(name)
        if spec is not None and spec.description.strip():
            lines.append(f"# {_comment(spec.description)}")
        lines.append(f"[tools.{_name(name)}]")
        if said is not None:
            lines += [f"effect = {_value(said.effect)}", *([_GUESSED] if said.guessed else []), ""]
            lines += render_model(name, said.model) if said.model is not None else []
        elif spec is not None:
            guessed = [_GUESSED] if spec.source == "guessed" else []
            lines += [f"effect = {_value(spec.effect)}{_reason(spec)}", *guessed, ""]
    return lines


def render_model(name: str, model: ToolModelSettings) -> list[str]:
    """The tables of one tool's model, as `[tools.NAME.model]` has them."""
    data = as_data(model)
    several = {key: data.pop(key) for key in ("fails", "changes") if data.get(key)}
    table = f"tools.{_name(name)}.model"
    lines = [f"[{table}]", *(f"{_name(key)} = {_inline(value)}" for key, value in data.items()), ""]
    for key, entries in several.items():
        for entry in entries:
            lines += [
                f"[[{table}.{key}]]",
                *(f"{_name(one)} = {_inline(value)}" for one, value in entry.items()),
            ]
            lines.append("")
    return lines


def _inline(value: Any) -> str:
    """A JSON value on one line; TOML has no null, so that is a hole."""
    if value is None:
        return '"{null}"'
    if isinstance(value, Mapping):
        inside = ", ".join(f"{_name(key)} = {_inline(item)}" for key, item in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_inline(item) for item in value)}]"
    return _value(value)


def _reason(spec: ToolSpec) -> str:
    said = f"{spec.source}: {spec.reason}" if spec.reason else spec.source
    return f"  # {_comment(said)}"


def _others(settings: Settings, nodes: Iterable[ToolSpec]) -> list[str]:
    lines: list[str] = []
    for name, function in settings.functions.items():
        lines += [f"[functions.{_name(name)}]", f"effect = {_value(function.effect)}"]
        lines += [f"name = {_value(function.name)}", ""] if function.name is not None else [""]
    said = {name: node.effect for name, node in settings.nodes.items()}
    for name, effect in ({spec.name: spec.effect for spec in nodes} | said).items():
        lines += [f"[nodes.{_name(name)}]", f"effect = {_value(effect)}", ""]
    if settings.match:
        ignored = [(name, _value(one.ignore)) for name, one in settings.match.items()]
        lines += ["[match]", *(f"{_name(name)} = {{ ignore = {names} }}" for name, names in ignored), ""]
    if settings.checkers:
        lines += [
            "[checkers]",
            *(f"{_name(name)} = {_value(ref)}" for name, ref in settings.checkers.items()),
            "",
        ]
    for name, ref in settings.worlds.items():
        lines += [f"[worlds.{_name(name)}]", f"ref = {_value(ref)}", ""]
    return lines


def _faults(settings: Settings) -> list[str]:
    lines = ["", "# What breaks in the dream, by tool pattern."]
    for pattern, rule in settings.faults.items():
        lines.append(f"[faults.{_name(pattern)}]")
        lines += [f"{known.name} = {_value(getattr(rule, known.name))}" for known in fields(rule)]
        lines.append("")
    return lines


def _value(value: Any) -> str:
    if isinstance(value, Effect):
        value = str(value)
    if isinstance(value, tuple):
        return f"[{', '.join(_value(item) for item in value)}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_name(name)} = {_value(item)}' for name, item in value.items())}}}"
    if isinstance(value, str):
        return _escaped(tomlkit.item(_UNPAIRED.sub("\ufffd", value)).as_string())
    return str(tomlkit.item(value).as_string())


def _name(name: str) -> str:
    return _escaped(tomlkit.key(_UNPAIRED.sub("\ufffd", name)).as_string())


def _escaped(quoted: str) -> str:
    """What is not seen, or turns a line around, as escapes: what a person reads is what there is."""
    return "".join(
        one if one.isprintable() else f"\\u{ord(one):04x}" if ord(one) < 0x10000 else f"\\U{ord(one):08x}"
        for one in quoted
    )


def _comment(text: str) -> str:
    """One printable line: what a tool says about itself must not become a key."""
    plain = "".join(character if character.isprintable() else " " for character in text)
    line = " ".join(plain.split())
    return line if len(line) <= _WIDTH else f"{line[: _WIDTH - 3]}..."
