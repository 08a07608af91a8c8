"""Writes `dreamgym.toml`: what differs from the defaults, and the effects of the graph's tools.

Reading what was written gives the same settings. Texts from the graph (names) can only ever be quoted or
comments: they cannot add a key. `render_reference` writes all keys with their words.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from inspect import cleandoc
from typing import Any

import tomlkit

from dreamgym_kit.settings.read import lines_of, renamed, sections
from dreamgym_kit.settings.schema import Settings, ToolSettings, declared
from dreamgym_kit.types import Effect, ToolSpec

_HEAD = (
    "# Written by `dreamgym-kit init`. All settings: `dreamgym-kit init --all-settings` or "
    "docs/reference/settings."
)
_EFFECTS = (
    "# read: looks. write: can be undone. destructive: cannot. pure: computes only, so it really runs. "
    '"?": a guess to confirm.'
)
_WHY = {
    "match": "arguments that do not change a tool's answer, so they need not equal the recording",
    "guard": "other hosts than these are blocked in a dream",
    "gate": "exit code 1: failed, 3: inconclusive",
}
_ALWAYS = {"gate": ("min_pass_rate", "max_inconclusive")}
"""Keys that are written also at their default: a team changes them first."""
_FREE_TEXT = re.compile(
    r"(^|_)(body|comment|comments|description|message|note|notes|reason|subject|summary|text)$"
)
"""Names of arguments that usually hold free text."""
_REFERENCE = """\
# All settings of dreamgym-kit, at their defaults. This file is not read: copy lines into dreamgym.toml.
# Every key has an environment variable, DREAMGYM_<SECTION>_<KEY>, and `--set section.key=value` sets it.
# Keys and tokens belong in environment variables that your graph reads, not here.
"""

_HEADER = re.compile(r"\s*\[([^\[\]]+)\]")
_UNPAIRED = re.compile("[\ud800-\udfff]")  # half a character: TOML has no form for it


def with_new_names(text: str) -> tuple[str, list[str]]:
    """Settings text with the names of today, all else as it is, and what was renamed."""
    new_names, lines, renames = renamed(), text.split("\n"), []
    for old, line in lines_of(text).items():
        # below a renamed section, under a name of the user's
        own = old not in new_names and old[:1] in new_names
        was, now = (old[:1], new_names[old[:1]]) if own else (old, new_names.get(old))
        if now is None:
            continue
        before = lines[line - 1]
        lines[line - 1] = re.sub(rf"\b{was[-1]}\b(?=\s*[.=\]])", now[-1], before, count=1)
        renames += [f"{'.'.join(was)} -> {'.'.join(now)}"] if lines[line - 1] != before else []
    joined = "\n".join(_joined(lines))
    return joined if joined.endswith("\n") or not text.endswith("\n") else f"{joined}\n", renames


def _joined(lines: list[str]) -> list[str]:
    """The lines of a settings file in which two sections that became one stand as one.

    A key that the first has, too, becomes a comment.
    """
    headers = [(at, header[1]) for at, line in enumerate(lines) if (header := _HEADER.match(line))]
    ends = [*(at for at, _ in headers), len(lines)]
    tables: dict[str, list[str]] = {"": lines[: ends[0]]}
    for (at, name), end in zip(headers, ends[1:], strict=True):
        if name not in tables:
            tables[name] = lines[at:end]
            continue
        have = {line.partition("=")[0].strip() for line in tables[name]}
        tables[name] += [
            f"# {line}" if "=" in line and line.partition("=")[0].strip() in have else line
            for line in lines[at + 1 : end]
        ]
    return [line for table in tables.values() for line in table]


def render_settings(settings: Settings, specs: Sequence[ToolSpec] = ()) -> str:
    """Write settings as TOML, with the tools of a graph where settings do not name them yet."""
    tools = [spec for spec in specs if spec.kind == "tool"]
    parts = [_HEAD, *_pairs(_changed(settings, Settings())), "", *_tools(settings, tools)]
    parts += _match(settings, tools)
    for name, record in sections().items():
        section = getattr(settings, name)
        changed = _changed(section, record(), always=_ALWAYS.get(name, ()) if specs else ())
        if changed:
            why = f"  # {_WHY[name]}" if name in _WHY and specs else ""
            parts += [f"[{name}]{why}", *_pairs(changed), ""]
    parts += _others(settings, [spec for spec in specs if spec.kind == "node"])
    return "\n".join(parts).rstrip("\n") + "\n"


def render_reference() -> str:
    """Every key at its default, as a comment with its words."""
    parts = [_REFERENCE, *_described(Settings())]
    for name, record in sections().items():
        parts += ["", f"# {cleandoc(record.__doc__ or '')}", f"# [{name}]", *_described(record())]
    return "\n".join(parts) + "\n"


def _described(record: Any) -> list[str]:
    lines = []
    for name, key in declared(record).items():
        value = getattr(record, name)
        if isinstance(record, Settings) and isinstance(value, Mapping):
            lines.append(f"# [{name}]  {key.says}")
        else:
            lines.append(f"# {name} = {_value(key.example if value is None else value)}  # {key.says}")
    return lines


def _changed(record: Any, default: Any, *, always: Sequence[str] = ()) -> dict[str, str]:
    """The keys that differ from their defaults, as TOML; not tables of the user's own names."""
    changed = {}
    for name in declared(record):
        value = getattr(record, name)
        own_names = isinstance(record, Settings) and isinstance(value, Mapping)
        if not own_names and (value != getattr(default, name) or name in always) and value is not None:
            changed[name] = _value(value)
    return changed


def _pairs(values: Mapping[str, str]) -> list[str]:
    """Lines of keys and values, in a column."""
    width = max(map(len, values), default=0)
    return [f"{name:<{width}} = {value}" for name, value in values.items()]


def render_effects(specs: Iterable[ToolSpec]) -> list[str]:
    """Lines of `[tools]` for these tools."""
    lines = {
        _name(spec.name): _effect(_settings_of(spec)) for spec in sorted(specs, key=lambda spec: spec.name)
    }
    return _pairs(lines)


def _settings_of(spec: ToolSpec) -> ToolSettings:
    """What settings would say of a tool as it is known."""
    return ToolSettings(
        spec.effect, guessed=spec.source == "guessed", effect_when=spec.effect_when, view=spec.view
    )


def render_tool(spec: ToolSpec) -> list[str]:
    """The same as a table of its own."""
    tool = _settings_of(spec)
    return _table(f"tools.{_name(spec.name)}", {"effect": tool.effect, **_beside_effect(tool)})


def _beside_effect(tool: ToolSettings) -> dict[str, Any]:
    return {name: getattr(tool, name) for name in _changed(tool, ToolSettings(tool.effect))}


def _effect(tool: ToolSettings) -> str:
    """A tool's effect as the value of one line."""
    if not tool.effect_when and not tool.view and tool.imagine is None:
        return _value(f"{tool.effect}{'?' if tool.guessed else ''}")
    return _value({"effect": tool.effect, **_beside_effect(tool)})


def _tools(settings: Settings, specs: Iterable[ToolSpec]) -> list[str]:
    """`[tools]`: a line for each effect."""
    guessed = {spec.name: _settings_of(spec) for spec in specs}
    tools = {**dict(sorted(guessed.items())), **settings.tools}
    effects = {_name(name): _effect(tool) for name, tool in tools.items()}
    return [_EFFECTS, "[tools]", *_pairs(effects), ""] if effects else []


def _match(settings: Settings, specs: Iterable[ToolSpec]) -> list[str]:
    """`[match]`: what was said, and as comments the arguments that look like free text."""
    rules = {_name(name): f"{{ ignore = {_value(rule.ignore)} }}" for name, rule in settings.match.items()}
    free = {
        _name(spec.name): f"{{ ignore = {_value(names)} }}"
        for spec in sorted(specs, key=lambda spec: spec.name)
        if spec.name not in settings.match and (names := _free_texts(spec))
    }
    if not rules and not free:
        return []
    width = max(map(len, [*rules, *free]))
    offered = [f"# {name:<{width}} = {value}" for name, value in free.items()]
    return [f"[match]  # {_WHY['match']}", *_pairs(rules), *offered, ""]


def _free_texts(spec: ToolSpec) -> tuple[str, ...]:
    properties = spec.args_schema.get("properties")
    if not isinstance(properties, Mapping) or spec.effect.runs_in_dream:
        return ()
    return tuple(
        name for name, schema in properties.items() if _FREE_TEXT.search(name) and _takes_text(schema)
    )


def _takes_text(schema: Any) -> bool:
    """Whether an argument may be any text: it is a string, perhaps among others, or of no stated type."""
    if not isinstance(schema, Mapping) or "enum" in schema or "const" in schema:
        return False
    ways = schema.get("anyOf") or schema.get("oneOf")
    if isinstance(ways, list):
        return any(map(_takes_text, ways))
    kind = schema.get("type", "string")
    return kind == "string" or (isinstance(kind, list) and "string" in kind)


def _others(settings: Settings, nodes: Iterable[ToolSpec]) -> list[str]:
    """The tables of the user's own names, but for tools."""
    lines: list[str] = []
    for name, function in settings.functions.items():
        lines += _table(f"functions.{_name(name)}", {"effect": function.effect, "name": function.name})
    chosen = {name: node.effect for name, node in settings.nodes.items()}
    for name, effect in ({spec.name: spec.effect for spec in nodes} | chosen).items():
        lines += _table(f"nodes.{_name(name)}", {"effect": effect})
    for name in ("context", "configurable", "checkers"):
        if values := getattr(settings, name):
            lines += _table(name, values)
    for name, ref in settings.environments.items():
        lines += _table(f"environments.{_name(name)}", {"ref": ref})
    for pattern, rule in settings.faults.items():
        lines += _table(f"faults.{_name(pattern)}", {key: getattr(rule, key) for key in declared(rule)})
    return lines


def _table(name: str, values: Mapping[str, Any]) -> list[str]:
    pairs = (f"{_name(key)} = {_value(value)}" for key, value in values.items() if value is not None)
    return [f"[{name}]", *pairs, ""]


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
        ch if ch.isprintable() else f"\\u{ord(ch):04x}" if ord(ch) < 0x10000 else f"\\U{ord(ch):08x}"
        for ch in quoted
    )
