"""Turns parsed TOML or JSON data into the records of `schema`; refuses what it does not know.

Types, bounds and choices are those that `schema` declares. Every message says
where the key stands, which kind of value it wants and which kind it found; no message repeats a value
that looks like a secret (those are refused before anything else).
"""

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from math import isfinite
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from dreamgym_kit.errors import UnknownName, UserError
from dreamgym_kit.settings.schema import (
    RENAMED_KEYS,
    RENAMED_SECTIONS,
    Key,
    Settings,
    ToolSettings,
    declared,
    without_none,
)
from dreamgym_kit.settings.secrets import looks_secret, names_secret
from dreamgym_kit.settings.views import check_view
from dreamgym_kit.types import ArgumentReader, Effect, EffectWhen

Where = Callable[..., str]
_Record = TypeVar("_Record")
_NOT_KEYS = frozenset({"path", "lines"})
_WORLD_KEYS = ("ref",)
_TOO_LARGE = 2**63
_TOKEN = re.compile(
    r"""\"{3}(?:\\.|[^\\])*?\"{3,}|'{3}.*?'{3,}|"(?:\\.|[^"\\])*"|'[^']*'|\#[^\n]*|[\n\[\]{}=]|[^"'\#\n\[\]{}=]+""",
    re.DOTALL,
)
_NO_SECRETS = frozenset(
    {"max_calls_per_tool", "rate_per_tool", "max_tokens", "secrets"}
)  # tools by name, a number, names


def keys_of(record: type) -> tuple[str, ...]:
    """Return the keys that a section may have."""
    return tuple(field.name for field in fields(record) if field.name not in _NOT_KEYS)


@cache
def sections() -> Mapping[str, type]:
    """The sections with fixed keys: name -> record."""
    hints = get_type_hints(Settings)
    return {name: hints[name] for name in keys_of(Settings) if is_dataclass(hints[name])}


@cache
def renamed() -> Mapping[tuple[str, ...], tuple[str, ...]]:
    """Sections and keys of earlier versions, with what each is called now."""
    moved: dict[tuple[str, ...], tuple[str, ...]] = {(old,): (new,) for old, new in RENAMED_SECTIONS.items()}
    for section, record in sections().items():
        names = [section, *(old for old, new in RENAMED_SECTIONS.items() if new == section)]
        for name, key in declared(record).items():
            moved |= {
                (before, key.was or name): (section, name) for before in names if key.was or before != section
            }
    return moved | RENAMED_KEYS


def refuse_renamed(data: Mapping[str, Any], where: Where) -> None:
    """Refuse keys of earlier versions, all of them at once, each with its new name."""
    new_names = renamed()
    problems = []
    for name, value in data.items():
        inner = [(name, key) for key in value] if isinstance(value, Mapping) else []
        below: list[tuple[str, ...]] = [pair for pair in inner if pair in new_names]
        for old in below or [(name,)]:
            if old in new_names:
                problems.append(f"{where(*old)}: '{'.'.join(old)}' is now '{'.'.join(new_names[old])}'.")
    if problems:
        raise UserError("\n".join([*problems, "Rename them, or run: dreamgym-kit init --update"]))


def lines_of(text: str) -> dict[tuple[str, ...], int]:
    """Give the 1-based line of every key and table header of a valid TOML text; `tomllib` does not.

    Keys inside an inline table or an array count to the line of the key that holds them; the n-th of several
    `[[tables]]` of one name has n after its name: ("fails", "2", "error").
    """
    lines: dict[tuple[str, ...], int] = {}
    several: dict[tuple[str, ...], int] = {}  # [[tables]] so far
    table: tuple[str, ...] = ()
    for line, tokens in _statements(text):
        if tokens[0] == "[":
            one_of_several = tokens[1] == "["
            key = table = _numbered(_parts("".join(tokens).strip("[]")), several, last=not one_of_several)
            if one_of_several:
                several[table] = several.get(table, 0) + 1
                key = table = (*table, str(several[table]))
        else:
            key = (*table, *_parts("".join(tokens[: tokens.index("=")])))
        for length in range(1, len(key) + 1):
            lines.setdefault(key[:length], line)
    return lines


def _statements(text: str) -> Iterator[tuple[int, list[str]]]:
    """Headers and assignments, without comments: the line that each begins on, and its tokens."""
    line = first = 1
    depth = 0
    tokens: list[str] = []
    for match in _TOKEN.finditer(f"{text}\n"):
        part = match[0]
        line += part.count("\n")
        if part == "\n" and depth == 0:
            if tokens:
                yield first, tokens
            first, tokens = line, []
        elif part[0] != "#" and not part.isspace():
            depth += (part in "[{") - (part in "]}")
            tokens.append(part)


def _numbered(
    table: tuple[str, ...], several: Mapping[tuple[str, ...], int], *, last: bool
) -> tuple[str, ...]:
    """The name with numbers where it goes through one of several tables."""
    named: tuple[str, ...] = ()
    for place, part in enumerate(table, start=1):
        named = (*named, part)
        if named in several and (last or place < len(table)):
            named = (*named, str(several[named]))
    return named


def _parts(dotted: str) -> tuple[str, ...]:
    """Split a dotted key as TOML does, quotes and escapes included."""
    parts: list[str] = []
    inner: object = tomllib.loads(f"{dotted.strip()} = 0")
    while isinstance(inner, dict):
        ((name, inner),) = inner.items()
        parts.append(name)
    return tuple(parts)


def read_settings(data: Mapping[str, Any], where: Where) -> dict[str, Any]:
    """Check all of `data` and give the values for `Settings(**values)`.

    Args:
        data: what the parser made of the file, or of the environment.
        where: names the place of a key ("dreamgym.toml:14").

    Raises:
        UserError: all keys that are wrong, a line each.
    """
    refuse_secrets(data, where)
    refuse_renamed(data, where)
    reader, problems = _Reader(where), list[str]()
    try:
        return reader.record(Settings, data, ())
    except UserError as first:
        for name, value in data.items():
            for part in [{key: value[key]} for key in value] if isinstance(value, Mapping) else [value]:
                try:
                    reader.record(Settings, {name: part}, ())
                except UserError as error:
                    problems.append(str(error))
        raise (UserError("\n".join(dict.fromkeys(problems))) if len({*problems}) > 1 else first) from None


def read_section(record: type[_Record], data: Any, key: tuple[str, ...], where: Where) -> _Record:
    """Read what stands in one section; `where` as for `read_settings`.

    Raises:
        UserError: a key or a value cannot be in it.
    """
    return record(**_Reader(where).record(record, data, key))


def refuse_secrets(data: Mapping[str, Any], where: Where) -> None:
    """Refuse a credential anywhere in `data`, without repeating it."""
    for key, value in _leaves(data, ()):
        ours = (len(key) == 1 or key[0] in sections()) and not _NO_SECRETS & {*key[:2]}
        if ours and names_secret(key[-1]):
            raise UserError(
                f"{where(*key)}: key '{key[-1]}' would hold a secret, and settings keep none; "
                "set it as an environment variable that your graph reads."
            )
        if any(looks_secret(part) for part in key) or (isinstance(value, str) and looks_secret(value)):
            raise UserError(
                f"{where(*key)}: this looks like a key or token, and settings keep none; "
                "name the environment variable instead."
            )


def _leaves(value: Any, key: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield (*key, name), None
            yield from _leaves(inner, (*key, name))
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner, key)
    elif key:
        yield key, value


_PLAIN = Key("")
_RULES_HAVE = {
    "answer": "`answer` of [outcomes.ok]",
    "fails": "`decides`, and an outcome with `fails = true` for each",
    "fails_only": "`decides` without any further outcome",
    "changes": "[updates], by the record that an argument names",
    "keeps": "`unaffected`, the views that stay",
    "views": "names such as order_id<args.order_id>.status, in `decides` and `answer`",
    "fresh": "MadeUp in the `answer`",
}
"""Where the parts of a tool model, as settings had it once, stand in a rules file."""


@dataclass(frozen=True, slots=True)
class _Reader:
    where: Where

    def record(self, record: type, data: Any, key: tuple[str, ...]) -> dict[str, Any]:
        self._want(isinstance(data, Mapping), key, "a table", data)
        if record is ToolSettings and "model" in data:
            self._refuse_model(data["model"], key)
        known_keys = keys_of(record)
        hints, keys = get_type_hints(record), declared(record)
        values = {}
        for name, value in data.items():
            if name not in known_keys:
                raise self._unknown(name, known_keys, key)
            values[name] = self.value(hints[name], value, (*key, name), keys.get(name, _PLAIN))
        if "effect" in known_keys and "effect" not in values:
            effects = ", ".join(Effect)
            raise UserError(f"{self.where(*key)}: {_dotted(key)} says no 'effect'; one of {effects}.")
        if values.get("effect_when"):
            self._check_effect_when(values["effect"], values["effect_when"], key)
        if values.get("view") and "effect" in values:
            try:
                check_view(values["view"])
            except ValueError as error:
                raise UserError(f"{self.where(*key, 'view')}: {_dotted((*key, 'view'))}: {error}.") from None
        return values

    def _check_effect_when(self, effect: Effect, rules: EffectWhen, key: tuple[str, ...]) -> None:
        """What no reader understands has the tool's own effect: so that must not be a harmless one."""
        where = f"{self.where(*key, 'effect_when')}: {_dotted((*key, 'effect_when'))}"
        if not effect.changes_environment:
            raise UserError(
                f"{where}: a call that it cannot tell has the tool's effect, and '{effect}' changes nothing; "
                f'say effect = "destructive" in [{_dotted(key)}].'
            )
        for rule in rules.values():
            if isinstance(rule, Mapping) and any(value.runs_in_dream for value in rule.values()):
                raise UserError(
                    f"{where}: a call is read, write or destructive; 'pure' and 'control' are of tools."
                )

    def _refuse_model(self, model: Any, key: tuple[str, ...]) -> None:
        """Refuse a tool model of earlier versions; say of each of its parts where it is written now."""
        parts = model if isinstance(model, Mapping) else {}
        lines = [
            f"  {self.where(*key, 'model', part)}: {part}: {_RULES_HAVE.get(part, 'has no counterpart')}"
            for part in parts
        ]
        name = key[-1]
        head = (
            f"{self.where(*key, 'model')}: '{_dotted((*key, 'model'))}' is written in rules/{name}.toml now, "
            f"as a program. Delete it here; `dreamgym-kit rules export {name} > rules/{name}.toml` writes "
            "what recordings show of the tool, to be corrected there."
        )
        raise UserError("\n".join([head, *lines]))

    def value(self, kind: Any, value: Any, key: tuple[str, ...], holds: Key) -> Any:
        kind = without_none(kind)
        if kind is ToolSettings and isinstance(value, str):
            effect = value.removesuffix("?")
            return ToolSettings(self._effect(effect, key), guessed=effect != value)
        if kind == EffectWhen:
            return self._effect_when(value, key)
        if is_dataclass(kind) and isinstance(kind, type):
            return kind(**self.record(kind, value, key))
        if get_origin(kind) is tuple:
            return self._texts(value, key, holds)
        if kind is bool:
            self._want(isinstance(value, bool), key, "true or false", value)
            return value
        if kind is Effect:
            return self._effect(value, key)
        if kind in (int, float):
            return self._number(kind, value, key, holds)
        if kind in (str, object):  # the latter is the user's own, of whatever form
            return self._text(value, key, holds) if kind is str else value
        return self._named(get_args(kind)[1], value, key, holds)

    def _effect_when(self, value: Any, key: tuple[str, ...]) -> EffectWhen:
        """Read, by argument, a reader's name or a table from value to effect."""
        self._want(isinstance(value, Mapping), key, 'a table: { query = "sql" }', value)
        rules: dict[str, ArgumentReader | dict[str, Effect]] = {}
        for argument, rule in value.items():
            where = (*key, argument)
            if isinstance(rule, Mapping):
                rules[argument] = {
                    text: self._effect(effect, (*where, text)) for text, effect in rule.items()
                }
                continue
            reader, readers = self._text(rule, where, _PLAIN), [str(reader) for reader in ArgumentReader]
            if reader not in readers:
                raise UnknownName(
                    "reader", reader, known=readers, source=self.where(*where), where="the readers"
                )
            rules[argument] = ArgumentReader(reader)
        return rules

    def _named(self, kind: Any, value: Any, key: tuple[str, ...], holds: Key) -> dict[str, Any]:
        """A table whose keys are the user's own names."""
        self._want(isinstance(value, Mapping), key, "a table", value)
        read = {}
        for name, inner in value.items():
            if key == ("environments",):
                read[name] = self._environment(inner, (*key, name), holds)
            else:
                read[name] = self.value(kind, inner, (*key, name), holds)
            if key == ("functions",):
                self._reference(name, (*key, name))
        return read

    def _environment(self, value: Any, key: tuple[str, ...], holds: Key) -> str:
        self._want(isinstance(value, Mapping), key, 'a table: ref = "module:Class"', value)
        for name in value:
            if name not in _WORLD_KEYS:
                raise self._unknown(name, _WORLD_KEYS, key)
        if "ref" not in value:
            raise UserError(
                f"{self.where(*key)}: {_dotted(key)} says no 'ref'; write ref = \"module:Class\"."
            )
        return self._text(value["ref"], (*key, "ref"), holds)

    def _text(self, value: Any, key: tuple[str, ...], holds: Key) -> str:
        self._want(isinstance(value, str), key, "text", value)
        text: str = value
        if not text.strip():
            raise UserError(f"{self.where(*key)}: {_dotted(key)} is empty; give it a value or leave it out.")
        if "\0" in text:  # no path, host or name can hold one, and the system says so in a traceback
            raise UserError(f"{self.where(*key)}: {_dotted(key)} holds a NUL character; take it out.")
        if holds.form == "reference":
            self._reference(text, key)
        if holds.among and text not in holds.among:
            where = f"the choices for {_dotted(key)}"
            raise UnknownName("value", text, known=holds.among, source=self.where(*key), where=where)
        return text

    def _reference(self, text: str, key: tuple[str, ...]) -> None:
        module, colon, name = text.partition(":")
        if not (colon and module.strip() and name.strip()):
            raise UserError(f"{self.where(*key)}: '{text}' names no object; write \"module:name\".")

    def _texts(self, value: Any, key: tuple[str, ...], holds: Key) -> tuple[str, ...]:
        self._want(isinstance(value, (list, tuple)), key, "a list of texts", value)
        return tuple(self._text(item, key, holds) for item in value)

    def _effect(self, value: Any, key: tuple[str, ...]) -> Effect:
        text = self._text(value, key, _PLAIN)
        effects = [str(effect) for effect in Effect]
        if text not in effects:
            raise UnknownName("effect", text, known=effects, source=self.where(*key), where="the effects")
        return Effect(text)

    def _number(self, kind: type, value: Any, key: tuple[str, ...], holds: Key) -> float:
        allowed = (int,) if kind is int else (int, float)
        wanted = "a whole number" if kind is int else "a number"
        self._want(isinstance(value, allowed) and not isinstance(value, bool), key, wanted, value)
        if abs(value) >= _TOO_LARGE or not isfinite(value):
            raise UserError(f"{self.where(*key)}: {_dotted(key)} is no number to work with; leave it out.")
        low = value < holds.least
        if low or (holds.most is not None and value > holds.most):
            bound = f"at least {holds.least:g}" if low else f"at most {holds.most:g}"
            raise UserError(f"{self.where(*key)}: {_dotted(key)} must be {bound}; found {value:g}.")
        return float(value) if kind is float else int(value)

    def _want(self, fits: bool, key: tuple[str, ...], wanted: str, value: Any) -> None:
        if not fits:
            place = _dotted(key) or "the file"
            raise UserError(f"{self.where(*key)}: {place} wants {wanted}, found {_kind(value)}.")

    def _unknown(self, name: str, known_keys: tuple[str, ...], key: tuple[str, ...]) -> UserError:
        source = self.where(*key, name)
        for section, record in sections().items():
            if name in keys_of(record) and (section,) != key:
                here = f"not to [{'.'.join(key)}]" if key else "not to the top of the file"
                return UserError(f"{source}: key '{name}' belongs to [{section}], {here}.")
        where = f"the section [{'.'.join(key)}]" if key else "the settings"
        return UnknownName("key", name, known=known_keys, source=source, where=where)


def _dotted(key: tuple[str, ...]) -> str:
    return ".".join(part if part.isidentifier() else f'"{part}"' for part in key)


def _kind(value: Any) -> str:
    """Name what was found, as a person says it."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return f"the text '{value}'" if len(value) <= 40 else "a text"
        case int() | float():
            return f"the number {value}"
        case list() | tuple():
            return "a list"
        case Mapping():
            return "a table"
        case None:
            return "nothing"
    return f"a {type(value).__name__}"
