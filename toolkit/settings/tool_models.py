"""What `[tools.NAME.model]` may say: a tool's answer, failures and effects, as data a person writes.

The same small vocabulary as that of the rules mined from recordings; drafts of a model come in this form
too. Decides the words and checks them (see `templates` for texts and paths); `dream.state.stated` makes
answers of them. Every message names place, field and the nearest known word.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import partial
from typing import Any

from dreamgym_kit.errors import UnknownName, UserError
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.settings.templates import names_in, parse_path, parse_text

Where = Callable[..., str]

TESTS = (
    *("is", "is_not", "one_of", "above", "below", "at_least", "at_most"),
    *("in", "not_in"),
)
WRITING = ("set", "add", "subtract", "append", "prepend", "remove")
"""Operations that are tables from path to value."""
_HEADS = ("args", "answer", "key", "old", "fresh", "row", "view", "bound", "call")
_ALIAS = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OF_ARGUMENTS = ("args", "key")
_HEAD = re.compile(r"[.\[(]")
_DEEPEST = 12


def _part(read: str | type, default: Any = MISSING) -> Any:
    """Declare a field: the method of `_Reader` that reads it, or the class of its items, and its default.

    `dict` stands for an empty one.
    """
    if default is dict:
        return field(default_factory=dict, metadata={"read": read})
    return field(default=default, metadata={"read": read})


@dataclass(frozen=True, slots=True)
class ViewSettings:
    """A read, or one row of it, under a name of one's own."""

    read: str = _part("text")
    bind: Mapping[str, str] = _part("names", dict)  # argument of the read, or ".field" of it -> name
    row: Mapping[str, str] = _part("names", dict)  # field of the one row -> name
    at: str = _part("path", "")  # where in the answer the rows are; "" when it is the list itself


@dataclass(frozen=True, slots=True)
class ConditionSettings:
    """One test of a named value."""

    of: str
    test: str  # one of TESTS
    value: JsonValue


@dataclass(frozen=True, slots=True)
class FailSettings:
    """When the tool fails, and with what: an error that it raises, or an answer that tells of it."""

    when: tuple[ConditionSettings, ...] = _part("conditions", ())  # all have to hold; none: always
    error: str | None = _part("message", None)
    error_type: str = _part("text", "ToolException")
    answer: JsonValue = _part("value", None)


@dataclass(frozen=True, slots=True)
class ChangeSettings:
    """What a write that succeeded does to the views of one read: operations by path, or a new answer."""

    read: str = _part("text")
    bind: Mapping[str, str] = _part("known_names", dict)
    set: Mapping[str, JsonValue] = _part("writes", dict)
    add: Mapping[str, JsonValue] = _part("writes", dict)
    subtract: Mapping[str, JsonValue] = _part("writes", dict)
    append: Mapping[str, JsonValue] = _part("writes", dict)
    prepend: Mapping[str, JsonValue] = _part("writes", dict)
    remove: Mapping[str, JsonValue] = _part("writes", dict)
    delete: tuple[str, ...] = _part("paths", ())
    whole: JsonValue = _part("value", None)  # the whole new answer

    @property
    def operations(self) -> tuple[tuple[str, str, JsonValue], ...]:
        """All but the whole: what is done, path and value."""
        writes = ((kind, path, value) for kind in WRITING for path, value in getattr(self, kind).items())
        return (*writes, *(("delete", path, None) for path in self.delete))


@dataclass(frozen=True, slots=True)
class ToolModelSettings:
    """What is said of one tool; what is left out is left to the recordings."""

    said_by: str | None = _part("text", None)
    views: Mapping[str, ViewSettings] = _part("views", dict)
    fails: tuple[FailSettings, ...] = _part(FailSettings, ())  # the first that holds
    fails_only: bool = _part("flag", False)  # it never fails otherwise, whatever recordings show
    answer: JsonValue = _part("value", None)  # what it answers when it succeeds
    changes: tuple[ChangeSettings, ...] = _part(ChangeSettings, ())
    keeps: tuple[str, ...] = _part("texts", ())  # reads, or patterns of reads, that the write leaves alone
    fresh: Mapping[str, tuple[str, ...]] = _part("samples", dict)  # made-up id in the answer -> examples

    def reads(self) -> Iterable[tuple[tuple[str, ...], str]]:
        """The reads that it names, each with its key; patterns are left out."""
        for name, view in self.views.items():
            yield ("views", name, "read"), view.read
        for number, change in enumerate(self.changes, start=1):
            yield ("changes", str(number), "read"), change.read
        for pattern in self.keeps:
            if not any(sign in pattern for sign in "*?["):
                yield ("keeps",), pattern

    def arguments(self) -> Iterable[tuple[tuple[str, ...], str]]:
        """The own arguments ("args.NAME") that it names, each with its key."""
        data = as_data(self)
        for key in ("views", "fails", "answer", "changes"):
            for where, name in _named_in(data.get(key), (key,)):
                head, _, rest = name.partition(".")
                argument = _HEAD.split(rest, maxsplit=1)[0]
                if head == "args" and argument:
                    yield where, argument


def _named_in(
    value: JsonValue, key: tuple[str, ...], name: str = ""
) -> Iterable[tuple[tuple[str, ...], str]]:
    """The names in a model's data: in holes, in paths, and as the values of bind, row and of."""
    if isinstance(value, Mapping):
        for entry, item in value.items():
            if key[-1] in WRITING:
                yield from ((key, step.name) for step in parse_path(entry) if step.name)
            yield from _named_in(item, (*key, entry), entry)
    elif isinstance(value, list):
        for number, item in enumerate(value, start=1):
            yield from _named_in(item, (*key, str(number)), name)
    elif isinstance(value, str):
        if name == "of" or {"bind", "row"} & set(key[-2:-1]):
            yield key, value
        elif name not in ("read", "at"):
            yield from ((key, hole) for hole in names_in(parse_text(value)))


def read_model(data: Any, key: tuple[str, ...], where: Where) -> ToolModelSettings:
    """Check one model and give it as records.

    Raises:
        UserError: the first thing that is wrong, in one line.
    """
    model: ToolModelSettings = _Reader(where).record(ToolModelSettings, data, key)
    return model


@dataclass(slots=True)
class _Reader:
    where: Where
    heads: tuple[str, ...] = _HEADS

    def record(self, kind: type, data: Any, key: tuple[str, ...]) -> Any:
        """A record, its fields each read as their declarations say."""
        known = fields(kind)
        table = self.table(data, key, tuple(part.name for part in known))
        values = {}
        for part in known:
            read, own = part.metadata["read"], (*key, part.name)
            if part.name in table:
                reader = getattr(self, read) if isinstance(read, str) else partial(self.each, read)
                values[part.name] = reader(table[part.name], own)
            elif part.default is MISSING and part.default_factory is MISSING:
                raise self.wrong(key, f"says no '{part.name}'")
        made = kind(**values)
        if isinstance(made, FailSettings) and (made.error is None) == ("answer" not in table):
            raise self.wrong(key, 'says either error = "message" or answer = what tells of the failure')
        if isinstance(made, ChangeSettings) and bool(made.operations) == (made.whole is not None):
            raise self.wrong(key, f"wants either operations ({', '.join(WRITING)}, delete) or whole")
        return made

    def each(self, kind: type, data: Any, key: tuple[str, ...]) -> tuple[Any, ...]:
        if not isinstance(data, list):
            raise self.wrong(key, "wants a list of tables")
        return tuple(
            self.record(kind, item, (*key, str(number))) for number, item in enumerate(data, start=1)
        )

    def views(self, data: Any, key: tuple[str, ...]) -> dict[str, ViewSettings]:
        views = {name: self.record(ViewSettings, view, (*key, name)) for name, view in self.named(data, key)}
        for name in views:
            if name in _HEADS or not _ALIAS.fullmatch(name):
                raise self.wrong((*key, name), f"'{name}' cannot be a view's name; take another")
        self.heads = (*views, *_HEADS)
        for name, view in views.items():
            for path in (*view.bind.values(), *view.row.values()):
                self.name(path, (*key, name))
        return views

    def conditions(self, data: Any, key: tuple[str, ...]) -> tuple[ConditionSettings, ...]:
        tests = data if isinstance(data, list) else [data]
        return tuple(self.condition(test, (*key, str(at))) for at, test in enumerate(tests, start=1))

    def condition(self, data: Any, key: tuple[str, ...]) -> ConditionSettings:
        table = self.table(data, key, ("of", *TESTS))
        if "of" not in table:
            raise self.wrong(key, "says no 'of'")
        of = self.text(table["of"], (*key, "of"))
        self.name(of, (*key, "of"))
        tests = [name for name in table if name != "of"]
        if len(tests) != 1:
            raise self.wrong(key, f"wants one test beside of: {', '.join(TESTS)}")
        value = self.value(table[tests[0]], (*key, tests[0]))
        if tests[0] == "one_of" and not isinstance(value, list):
            raise self.wrong((*key, "one_of"), "wants a list of values")
        return ConditionSettings(of, tests[0], value)

    def writes(self, data: Any, key: tuple[str, ...]) -> dict[str, JsonValue]:
        return {
            self.path(path, (*key, path)): self.value(value, (*key, path))
            for path, value in self.named(data, key)
        }

    def paths(self, data: Any, key: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(self.path(path, key) for path in self.texts(data, key))

    def samples(self, data: Any, key: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
        return {
            path: self.texts(samples if isinstance(samples, list) else [samples], (*key, path))
            for path, samples in self.named(data, key)
        }

    def message(self, value: Any, key: tuple[str, ...]) -> str | None:
        error = self.value(value, key)
        if error is not None and not isinstance(error, str):
            raise self.wrong(key, "wants the message as text")
        return error

    def flag(self, value: Any, key: tuple[str, ...]) -> bool:
        if not isinstance(value, bool):
            raise self.wrong(key, "wants true or false")
        return value

    def value(self, value: Any, key: tuple[str, ...], depth: int = 0) -> JsonValue:
        """JSON with holes in its texts."""
        if depth > _DEEPEST:
            raise self.wrong(key, f"is nested deeper than {_DEEPEST} levels")
        if isinstance(value, str):
            try:
                parts = parse_text(value)
            except ValueError as error:
                raise self.wrong(key, str(error)) from None
            for name in names_in(parts):
                self.name(name, key)
            return value
        if isinstance(value, Mapping):
            return {name: self.value(item, (*key, name), depth + 1) for name, item in value.items()}
        if isinstance(value, list):
            return [self.value(item, key, depth + 1) for item in value]
        if value is None or isinstance(value, (bool, int, float)):
            return value
        raise self.wrong(key, f"wants JSON values, found a {type(value).__name__}; write it as text")

    def name(self, name: str, key: tuple[str, ...]) -> None:
        head, *rest = _HEAD.split(name, maxsplit=1)
        if head in _OF_ARGUMENTS and rest in ([], [""]):
            raise self.wrong(key, f"'{name}' names no argument; write {head}.NAME")
        if head not in self.heads:
            raise UnknownName(
                "name", name, known=self.heads, source=self.where(*key), where=f"what {_dotted(key)} can name"
            )

    def path(self, path: Any, key: tuple[str, ...]) -> str:
        if not isinstance(path, str):
            raise self.wrong(key, "wants a path as text")
        try:
            steps = parse_path(path)
        except ValueError as error:
            raise self.wrong(key, str(error)) from None
        for step in steps:
            if step.name:
                self.name(step.name, key)
        return path

    def names(self, data: Any, key: tuple[str, ...]) -> dict[str, str]:
        names = {}
        for argument, name in self.named(data, key):
            if argument in ("", "."):
                raise self.wrong(key, f"'{argument}' names no argument and no field")
            names[argument] = self.text(name, (*key, argument))
        return names

    def known_names(self, data: Any, key: tuple[str, ...]) -> dict[str, str]:
        names = self.names(data, key)
        for argument, name in names.items():
            self.name(name, (*key, argument))
        return names

    def table(self, data: Any, key: tuple[str, ...], known: tuple[str, ...]) -> Mapping[str, Any]:
        if not isinstance(data, Mapping):
            raise self.wrong(key, f"wants a table with {', '.join(known)}")
        for name in data:
            if name not in known:
                source = self.where(*key, name)
                raise UnknownName("key", name, known=known, source=source, where=_dotted(key))
        return data

    def named(self, data: Any, key: tuple[str, ...]) -> Iterable[tuple[str, Any]]:
        if not isinstance(data, Mapping):
            raise self.wrong(key, "wants a table")
        return data.items()

    def texts(self, value: Any, key: tuple[str, ...]) -> tuple[str, ...]:
        if not isinstance(value, list):
            raise self.wrong(key, "wants a list of texts")
        return tuple(self.text(item, key) for item in value)

    def text(self, value: Any, key: tuple[str, ...]) -> str:
        if not isinstance(value, str) or not value.strip():
            raise self.wrong(key, "wants a text that is not empty")
        return value

    def wrong(self, key: tuple[str, ...], problem: str) -> UserError:
        return UserError(f"{self.where(*key)}: {_dotted(key)}: {problem}.")


def as_data(model: ToolModelSettings) -> dict[str, JsonValue]:
    """The model as the data that `read_model` takes: what differs from its default."""
    data: dict[str, JsonValue] = _plain(model)
    return data


def _plain(value: Any) -> Any:
    if isinstance(value, ConditionSettings):
        return {"of": value.of, value.test: value.value}
    if is_dataclass(value):
        data = {}
        for part in fields(value):
            default = part.default if part.default_factory is MISSING else {}
            own = getattr(value, part.name)
            # a failure without an error has an answer, be it null
            answers = isinstance(value, FailSettings) and value.error is None and part.name == "answer"
            if own != default or answers:
                data[part.name] = _plain(own)
        return data
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def _dotted(key: tuple[str, ...]) -> str:
    return ".".join(
        part if part.replace("_", "a").replace("-", "a").isalnum() else f'"{part}"' for part in key
    )
