"""Which read to make next, when a world is crawled: those without arguments, then each with every id found.

Decides calls only; who makes them is another's. Where a value was found (a field of a read's answer, an
argument that worked, a word of a task) says which arguments it may be: equal and related names first. Of
names that tell nothing a few values are tried, and only what has worked is gone on with. The same answers in
the same order give the same calls.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from dreamgym_kit.dream.json_values import is_key, is_scalar, properties_of, spell
from dreamgym_kit.dream.observed import failed
from dreamgym_kit.dream.things import singular, words
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.types import Call, ToolSpec

WORDS = "words"
"""What the names of origins begin with whose values a person or a task gave."""

_TRIES = {0: 2, 1: 4, 2: 8, 3: 12}  # failures in a row, without any success, after which an origin is left
_WORD_TRIES = 8
_MAX_VALUES = 20_000  # of one origin
_DEEPEST = 8
_KEYS = frozenset({"id", "no", "number", "key", "ref", "code", "name", "uuid", "slug"})

_LETTERS, _DIGITS = re.compile(r"[^\W\d_]+"), re.compile(r"\d+")
_PLURAL = re.compile(r"(?<=[A-Z]{2})s(?![a-z])")
_TYPES: Mapping[str, tuple[type, ...]] = {"string": (str,), "integer": (int,), "number": (int, float)}


@dataclass(slots=True)
class _Origin:
    """Values of one kind: where they were found, in the order found."""

    name: str  # the field, argument or list that they stand in
    parent: str = ""  # what holds the field
    values: dict[str, JsonValue] = field(default_factory=dict)  # by spelling

    def add(self, value: JsonValue) -> None:
        if len(self.values) < _MAX_VALUES:
            self.values.setdefault(spell(value), value)


@dataclass(slots=True)
class _Way:
    """One origin as the source of one argument."""

    tool: str
    argument: str
    from_words: bool  # a person or a task gave the values
    level: int  # 3: equal names, 2: related, 1: share a word, 0: nothing says so
    place: int = 0  # values gone through
    worked: int = 0
    failures: int = 0

    @property
    def is_open(self) -> bool:
        """Whether it is gone on with."""
        most = _WORD_TRIES if self.from_words else _TRIES[self.level]
        return self.worked > 0 or self.failures < most


_Candidate = tuple[Call, _Way | None]
"""A call, and the way by which its argument was found."""


class Frontier:
    """The reads of one world that are still to be made.

    Args:
        reads: the tools that may be called.
        words: values that a person or a task gives to begin with.
    """

    def __init__(self, reads: Iterable[ToolSpec], words: Iterable[JsonValue] = ()) -> None:
        self._reads = sorted(reads, key=lambda spec: (len(_required(spec)), spec.name))
        self._done: set[str] = set()
        self._origins: dict[str, _Origin] = {}
        self._ways: dict[tuple[str, str, str], _Way] = {}
        self._records: dict[str, dict[str, JsonValue]] = {}
        self._pending: dict[str, _Way] = {}  # by key of the call
        for word in words:
            if is_key(word):  # "C12" and "C7" are of one kind, "Ana" is of another
                kind = _LETTERS.sub("a", _DIGITS.sub("#", str(word)))
                self._origin(f"{WORDS} {kind}", WORDS, "").add(word)

    def next(self) -> Call | None:
        """The call to make now; None when there is none left."""
        for call, way in self._calls():
            if call.key not in self._done:
                self._done.add(call.key)
                if way is not None:
                    self._pending[call.key] = way
                return call
        return None

    def record_answer(self, call: Call, seen: JsonValue) -> None:
        """Record a read's answer (see `state.observed`), of this crawl or an earlier one."""
        self._done.add(call.key)
        way = self._pending.pop(call.key, None) or self._likely_way(call)
        worked = not failed(seen)
        if way is not None:
            way.worked += worked
            way.failures += not worked
        if worked:
            self.record_ids(call, seen)

    def record_ids(self, call: Call, seen: JsonValue) -> None:
        """Record the ids of a successful call and of its answer."""
        for name, value in call.args.items():
            if is_key(value):
                self._origin(f"{call.tool}({name})", name, call.tool).add(value)
        self._take(call.tool, seen, dict(call.args), "", "", 0)

    def _likely_way(self, call: Call) -> _Way | None:
        """By which way an earlier crawl came to a call: the first origin that has its value."""
        for argument, value in call.args.items() if len(call.args) == 1 else ():
            for path, origin in self._origins.items():
                if spell(value) in origin.values:
                    return self._way(call.tool, argument, path)
        return None

    def _way(self, tool: str, argument: str, path: str) -> _Way:
        key = (tool, argument, path)
        if key not in self._ways:
            level = _likeness(argument, self._origins[path], tool)
            self._ways[key] = _Way(tool, argument, path.startswith(WORDS), level)
        return self._ways[key]

    def refused(self, call: Call) -> None:
        """Hear that a read gave no answer at all."""
        if (way := self._pending.pop(call.key, None)) is not None:
            way.failures += 1

    def _take(
        self, path: str, value: JsonValue, around: Mapping[str, JsonValue], name: str, parent: str, depth: int
    ) -> None:
        """Record each possible id with its path and the record that contains it."""
        if depth > _DEEPEST:
            return
        if isinstance(value, list):
            for item in value:
                self._take(f"{path}[]", item, around, name, parent, depth + 1)
        elif isinstance(value, dict):
            own = {key: item for key, item in value.items() if is_scalar(item)}
            fields = {**around, **own}
            if own:
                self._records.setdefault(spell(fields), fields)
            for key, item in value.items():
                inner = name if key.startswith("$") else key  # our own marks are no names
                if isinstance(item, dict) and not key.startswith("$"):
                    self._origin(f"{path}{{}}", name, parent).add(key)  # it may be a map of records
                self._take(f"{path}.{key}", item, fields, inner, name, depth + 1)
        elif is_key(value) and not (isinstance(value, str) and "\n" in value):
            self._origin(path, name, parent).add(value)

    def _origin(self, path: str, name: str, parent: str) -> _Origin:
        return self._origins.setdefault(path, _Origin(name, parent))

    def _calls(self) -> Iterator[_Candidate]:
        for spec in self._reads:
            if not _required(spec):
                yield Call(spec.name, {}), None
        for least in (2, 1, 0):
            for spec in self._reads:
                required = _required(spec)
                if len(required) == 1:
                    yield from self._by_one(spec, required[0], least)
                elif required and least == 2:
                    yield from self._by_several(spec, required)

    def _by_one(self, spec: ToolSpec, argument: str, least: int) -> Iterator[_Candidate]:
        schema = _schema(spec, argument)
        choices = _choices(schema)
        for value in choices:
            yield Call(spec.name, {argument: value}), None
        if choices:
            return
        for path, origin in list(self._origins.items()):
            way = self._way(spec.name, argument, path)
            if way.place < len(origin.values) and self._is_promising(way, least):
                for value in list(origin.values.values())[way.place :]:
                    way.place += 1  # what is not called now was called before, or does not fit
                    call = Call(spec.name, {argument: value})
                    if call.key not in self._done and _fits(value, schema) and self._is_likely(way, value):
                        yield call, way

    def _is_promising(self, way: _Way, least: int) -> bool:
        """Whether an origin is to be tried now."""
        if (way.level < least and not way.worked) or not way.is_open:
            return False
        # where to find the values of an argument is known: then nothing is guessed, but for words with digits
        return way.level >= 2 or way.worked > 0 or way.from_words or not self._is_known(way)

    def _is_likely(self, way: _Way, value: JsonValue) -> bool:
        if way.level >= 2 or way.worked:
            return True
        if way.from_words:
            return any(map(str.isdigit, str(value))) or not self._is_known(way)
        return not (isinstance(value, str) and " " in value)

    def _is_known(self, way: _Way) -> bool:
        """Whether it is known where the values of its argument are found: it worked, or names say so."""
        same = (
            other for other in self._ways.values() if (other.tool, other.argument) == (way.tool, way.argument)
        )
        return any(other.worked or (other.level >= 2 and other.place) for other in same)

    def _by_several(self, spec: ToolSpec, required: Sequence[str]) -> Iterator[_Candidate]:
        """Yield calls whose arguments come from one record, matched by name, or from the schema's choices."""
        for record in list(self._records.values()):
            args: dict[str, JsonValue] = {}
            for argument in required:
                schema = _schema(spec, argument)
                fitting = [
                    (_likeness(argument, _Origin(name), spec.name), value)
                    for name, value in record.items()
                    if is_key(value) and _fits(value, schema)
                ]
                best = max(fitting, key=lambda pair: pair[0], default=(0, None))
                if best[0] >= 2:
                    args[argument] = best[1]
                elif choices := _choices(schema):
                    args[argument] = choices[0]
            if len(args) == len(required):
                yield Call(spec.name, args), None


def words_of(text: str) -> list[str]:
    """Return a task's words that may be ids or names, those with digits first."""
    candidates = dict.fromkeys(word.strip(".,;:!?\"'()[]{}<>") for word in text.split())
    words = [word for word in candidates if word and (word[0].isupper() or any(map(str.isdigit, word)))]
    return sorted(words, key=lambda word: not any(map(str.isdigit, word)))


def _required(spec: ToolSpec) -> tuple[str, ...]:
    return tuple(spec.args_schema.get("required") or ())


def _schema(spec: ToolSpec, argument: str) -> Mapping[str, JsonValue]:
    schema = properties_of(spec.args_schema).get(argument)
    if isinstance(schema, dict) and "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        schema = (spec.args_schema.get("$defs") or {}).get(name)
    return schema if isinstance(schema, dict) else {}


def _choices(schema: Mapping[str, JsonValue]) -> list[JsonValue]:
    if "const" in schema:
        return [schema["const"]]
    return list(schema.get("enum") or ([True, False] if schema.get("type") == "boolean" else []))


def _fits(value: JsonValue, schema: Mapping[str, JsonValue]) -> bool:
    kinds = [schema, *(schema.get("anyOf") or ())]
    wanted = [kind["type"] for kind in kinds if isinstance(kind, dict) and isinstance(kind.get("type"), str)]
    return not wanted or any(isinstance(value, _TYPES.get(kind, ())) for kind in wanted)


def _likeness(argument: str, origin: _Origin, tool: str) -> int:
    """Rate how well the names of a value and an argument match: 3 equal ... 0 not at all."""
    wanted, origin_tokens, parent = _tokens(argument), _tokens(origin.name), _tokens(origin.parent)
    if not origin_tokens or origin.name == WORDS:
        return 0
    if wanted == origin_tokens and not set(wanted) <= _KEYS:
        return 3
    about = set(wanted) - _KEYS or set(_tokens(tool)) - _KEYS  # get_user(name) is about a user's name
    given = set(origin_tokens) - _KEYS
    if about and (about <= given or (given and given <= about)):
        return 2
    if about & set(parent) and (set(origin_tokens) & _KEYS or not given):
        return 3 if set(wanted) & set(origin_tokens) & _KEYS else 2
    if wanted == origin_tokens:
        return 2
    return int(bool(about & given))


def _tokens(name: str) -> tuple[str, ...]:
    """The words of a name in singular, as far as a crawl needs it: "orderIds" is order, id; "SKUs" is sku."""
    parts = map(singular, words(_PLURAL.sub("", name)))  # `singular` keeps "status"; here "menus" is menu
    return tuple(part[:-1] if part.endswith(("us", "is")) and len(part) > 3 else part for part in parts)
