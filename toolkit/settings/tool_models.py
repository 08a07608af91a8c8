"""What `[tools.NAME.model]` may say: a tool's answer, failures and effects, as data a person writes.

The same small vocabulary as that of the rules mined from recordings; drafts of a model come in this form
too. Decides the words and checks them (see `templates` for texts and paths); `dream.state.stated` makes
answers of them. Every message names place, field and the nearest known word.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
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
_MODEL_KEYS = ("said_by", "views", "fails", "fails_only", "answer", "changes", "keeps", "fresh")
_VIEW_KEYS = ("read", "bind", "row", "at")
_FAIL_KEYS = ("when", "error", "error_type", "answer")
_CHANGE_KEYS = ("read", "bind", *WRITING, "delete", "whole")
_HEADS = ("args", "answer", "key", "old", "fresh", "row", "view", "bound", "call")
_ALIAS = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OF_ARGUMENTS = ("args", "key")
_HEAD = re.compile(r"[.\[(]")
_DEEPEST = 12


@dataclass(frozen=True, slots=True)
class ViewSettings:
    """A read, or one row of it, under a name of one's own."""

    read: str
    bind: Mapping[str, str] = field(default_factory=dict)  # argument of the read, or ".field" of it -> name
    row: Mapping[str, str] = field(default_factory=dict)  # field of the one row -> name
    at: str = ""  # where in the answer the rows are; "" when it is the list itself


@dataclass(frozen=True, slots=True)
class ConditionSettings:
    """One test of a named value."""

    of: str
    test: str  # one of TESTS
    value: JsonValue


@dataclass(frozen=True, slots=True)
class FailSettings:
    """When the tool fails, and with what: an error that it raises, or an answer that tells of it."""

    when: tuple[ConditionSettings, ...]  # all have to hold; none: always
    error: str | None = None
    error_type: str = "ToolException"
    answer: JsonValue = None


@dataclass(frozen=True, slots=True)
class ChangeSettings:
    """What a write that succeeded does to the views of one read."""

    read: str
    bind: Mapping[str, str] = field(default_factory=dict)
    operations: tuple[tuple[str, str, JsonValue], ...] = ()  # (set, ... or delete; path; value)
    whole: JsonValue = None  # the whole new answer


@dataclass(frozen=True, slots=True)
class ToolModelSettings:
    """What is said of one tool; what is left out is left to the recordings."""

    views: Mapping[str, ViewSettings] = field(default_factory=dict)
    fails: tuple[FailSettings, ...] = ()  # the first that holds
    fails_only: bool = False  # it never fails otherwise, whatever recordings show
    answer: JsonValue = None  # what it answers when it succeeds
    changes: tuple[ChangeSettings, ...] = ()
    keeps: tuple[str, ...] = ()  # reads, or patterns of reads, that the write leaves alone
    fresh: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # made-up id in the answer -> examples
    said_by: str | None = None

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
    return _Reader(where).model(data, key)


@dataclass(slots=True)
class _Reader:
    where: Where
    heads: tuple[str, ...] = _HEADS

    def model(self, data: Any, key: tuple[str, ...]) -> ToolModelSettings:
        table = self.table(data, key, _MODEL_KEYS)
        views = {
            name: self.view(view, (*key, "views", name)) for name, view in self.named(table, key, "views")
        }
        for name in views:
            if name in _HEADS or not _ALIAS.fullmatch(name):
                raise self.wrong((*key, "views", name), f"'{name}' cannot be a view's name; take another")
        self.heads = (*views, *_HEADS)
        for name, view in views.items():
            for path in (*view.bind.values(), *view.row.values()):
                self.name(path, (*key, "views", name))
        only = table.get("fails_only", False)
        if not isinstance(only, bool):
            raise self.wrong((*key, "fails_only"), "wants true or false")
        return ToolModelSettings(
            views=views,
            fails=tuple(self.each(table.get("fails", []), (*key, "fails"), self.failing)),
            fails_only=only,
            answer=self.value(table.get("answer"), (*key, "answer")),
            changes=tuple(self.each(table.get("changes", []), (*key, "changes"), self.change)),
            keeps=self.texts(table.get("keeps", []), (*key, "keeps")),
            fresh={
                path: self.texts(samples if isinstance(samples, list) else [samples], (*key, "fresh", path))
                for path, samples in self.named(table, key, "fresh")
            },
            said_by=self.text(table["said_by"], (*key, "said_by")) if "said_by" in table else None,
        )

    def view(self, data: Any, key: tuple[str, ...]) -> ViewSettings:
        table = self.table(data, key, _VIEW_KEYS)
        at = table.get("at", "")
        return ViewSettings(
            self.needed(table, key, "read"),
            self.names(table, key, "bind"),
            self.names(table, key, "row"),
            self.path(at, (*key, "at")),
        )

    def failing(self, data: Any, key: tuple[str, ...]) -> FailSettings:
        table = self.table(data, key, _FAIL_KEYS)
        when = table.get("when", [])
        tests = tuple(self.each(when if isinstance(when, list) else [when], (*key, "when"), self.condition))
        error = self.value(table["error"], (*key, "error")) if "error" in table else None
        if (error is None) == ("answer" not in table):
            raise self.wrong(key, 'says either error = "message" or answer = what tells of the failure')
        if error is not None and not isinstance(error, str):
            raise self.wrong((*key, "error"), "wants the message as text")
        kind = self.text(table.get("error_type", "ToolException"), (*key, "error_type"))
        return FailSettings(tests, error, kind, self.value(table.get("answer"), (*key, "answer")))

    def condition(self, data: Any, key: tuple[str, ...]) -> ConditionSettings:
        table = self.table(data, key, ("of", *TESTS))
        of = self.needed(table, key, "of")
        self.name(of, (*key, "of"))
        tests = [name for name in table if name != "of"]
        if len(tests) != 1:
            raise self.wrong(key, f"wants one test beside of: {', '.join(TESTS)}")
        value = self.value(table[tests[0]], (*key, tests[0]))
        if tests[0] == "one_of" and not isinstance(value, list):
            raise self.wrong((*key, "one_of"), "wants a list of values")
        return ConditionSettings(of, tests[0], value)

    def change(self, data: Any, key: tuple[str, ...]) -> ChangeSettings:
        table = self.table(data, key, _CHANGE_KEYS)
        operations: list[tuple[str, str, JsonValue]] = []
        for kind in WRITING:
            for path, value in self.named(table, key, kind):
                place = self.path(path, (*key, kind, path))
                operations.append((kind, place, self.value(value, (*key, kind, path))))
        for path in self.texts(table.get("delete", []), (*key, "delete")):
            operations.append(("delete", self.path(path, (*key, "delete")), None))
        whole = self.value(table.get("whole"), (*key, "whole"))
        if bool(operations) == (whole is not None):
            raise self.wrong(key, f"wants either operations ({', '.join(WRITING)}, delete) or whole")
        read = self.needed(table, key, "read")
        bind = self.names(table, key, "bind")
        for argument, name in bind.items():
            self.name(name, (*key, "bind", argument))
        return ChangeSettings(read, bind, tuple(operations), whole)

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

    def names(self, table: Mapping[str, Any], key: tuple[str, ...], of: str) -> dict[str, str]:
        names = {}
        for argument, name in self.named(table, key, of):
            if argument in ("", "."):
                raise self.wrong((*key, of), f"'{argument}' names no argument and no field")
            names[argument] = self.text(name, (*key, of, argument))
        return names

    def each(self, data: Any, key: tuple[str, ...], read: Callable[[Any, tuple[str, ...]], Any]) -> list[Any]:
        if not isinstance(data, list):
            raise self.wrong(key, "wants a list of tables")
        return [read(item, (*key, str(number))) for number, item in enumerate(data, start=1)]

    def table(self, data: Any, key: tuple[str, ...], known: tuple[str, ...]) -> Mapping[str, Any]:
        if not isinstance(data, Mapping):
            raise self.wrong(key, f"wants a table with {', '.join(known)}")
        for name in data:
            if name not in known:
                source = self.where(*key, name)
                raise UnknownName("key", name, known=known, source=source, where=_dotted(key))
        return data

    def named(self, table: Mapping[str, Any], key: tuple[str, ...], name: str) -> Iterable[tuple[str, Any]]:
        inner = table.get(name, {})
        if not isinstance(inner, Mapping):
            raise self.wrong((*key, name), "wants a table")
        return inner.items()

    def needed(self, table: Mapping[str, Any], key: tuple[str, ...], name: str) -> str:
        if name not in table:
            raise self.wrong(key, f"says no '{name}'")
        return self.text(table[name], (*key, name))

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
    """The model as the data that `read_model` takes."""
    return _said(
        said_by=model.said_by,
        views={
            name: _said(read=view.read, bind=dict(view.bind), row=dict(view.row), at=view.at)
            for name, view in model.views.items()
        },
        fails=[_fail_data(fail) for fail in model.fails],
        fails_only=model.fails_only,
        answer=model.answer,
        changes=[_change_data(change) for change in model.changes],
        keeps=list(model.keeps),
        fresh={path: list(samples) for path, samples in model.fresh.items()},
    )


def _said(**parts: Any) -> dict[str, Any]:
    """The parts that say something; only an answer may be empty."""
    return {name: part for name, part in parts.items() if part or (name == "answer" and part is not None)}


def _fail_data(fail: FailSettings) -> dict[str, JsonValue]:
    when = [{"of": condition.of, condition.test: condition.value} for condition in fail.when]
    data = _said(when=when)
    if fail.error is None:
        return {**data, "answer": fail.answer}
    data["error"] = fail.error
    return data if fail.error_type == "ToolException" else {**data, "error_type": fail.error_type}


def _change_data(change: ChangeSettings) -> dict[str, JsonValue]:
    data = _said(read=change.read, bind=dict(change.bind))
    for kind, path, value in change.operations:
        if kind == "delete":
            data.setdefault("delete", []).append(path)
        else:
            data.setdefault(kind, {})[path] = value
    return data if change.whole is None else {**data, "whole": change.whole}


def _dotted(key: tuple[str, ...]) -> str:
    return ".".join(
        part if part.replace("_", "a").replace("-", "a").isalnum() else f'"{part}"' for part in key
    )
