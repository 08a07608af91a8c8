"""Records as JSON objects, and back: the dataclass is the schema, its type hints are the checks.

A field's `metadata` says what the hints cannot: `ALWAYS` (must be in the file although it has a default),
`IF_SET` (written only when it is not empty) and `NEVER` (not in the file). Fields with a default may be
missing, so a field that is added later is read from older files. Unknown fields are refused, so that a
misspelled one is not dropped silently. Messages name the field by its path ("world.seed: expected a whole
number, got 'seven'").
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from difflib import get_close_matches
from enum import Enum
from functools import partial
from types import NoneType, UnionType
from typing import Annotated, Any, Generic, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from dreamgym_kit.errors import NotJson
from dreamgym_kit.plain import JsonValue

Record = TypeVar("Record")
ALWAYS = {"disk": "always"}
IF_SET = {"disk": "if set"}
NEVER = {"disk": "never"}

Count = Annotated[int, msgspec.Meta(ge=0)]
Position = Annotated[int, msgspec.Meta(ge=1)]  # counted from 1
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Number = int | float  # either is kept as it was spelled, where a digest hashes it
FilledText = Annotated[str, msgspec.Meta(pattern=r"\S")]

_WORDS = {
    "str": "text", "int": "a whole number", "float": "a number", "bool": "true or false",
    "object": "an object", "array": "a list",
}  # fmt: skip
_TYPES = re.compile(r"`([a-z| ]+)`")
_PLACE = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")


class Codec(Generic[Record]):
    """Reads and writes one record class.

    Args:
        kind: a dataclass of scalars, enums, dataclasses, tuples and mappings of them, any of them or None.
        schema: newest version that this kit reads; files of the record hold a `schema`.
        computed: a property of the record that is written beside its fields and compared on reading.
        always_computed: whether a file must hold it.
        renamed: fields of earlier versions, by name, with what each is called now.
        nested: codecs of record classes inside that have a `schema` or `computed` of their own.
    """

    def __init__(
        self,
        kind: type[Record],
        *,
        schema: int | None = None,
        computed: str | None = None,
        always_computed: bool = False,
        renamed: Mapping[str, str] | None = None,
        nested: "Collection[Codec[Any]]" = (),
    ) -> None:
        self.kind, self._schema, self._computed = kind, schema, computed
        self._always_computed, self._renamed = always_computed, renamed or {}
        known: dict[type, Codec[Any]] = {one.kind: one for one in nested}
        hints = get_type_hints(kind, include_extras=True)
        self._fields = [
            _Field(one.name, hints[one.name], one.metadata.get("disk", ""), _has_default(one), known)
            for one in fields(kind)  # type: ignore[arg-type]
            if one.init and one.metadata.get("disk") != "never"
        ]
        beside = ["schema"] if schema is not None else []
        names = [*beside, *([computed] if computed else []), *(one.name for one in self._fields)]
        self.names = tuple(dict.fromkeys(names))
        self._set = frozenset(self.names)
        self._required = [one.name for one in self._fields if one.required]
        self._inner = [one for one in self._fields if one.codec is not None]

    def write(self, record: Record) -> dict[str, JsonValue]:
        """Give the record as a JSON object; values of any type are taken as they are."""
        made: dict[str, JsonValue] = {}
        if self._schema is not None:
            made["schema"] = getattr(record, "schema", self._schema)
        if self._computed is not None:
            made[self._computed] = getattr(record, self._computed)
        for one in self._fields:
            value = getattr(record, one.name)
            if value or not one.if_set:
                made[one.name] = value if one.write is None or value is None else one.write(value)
        return made

    def read(self, value: object, where: str = "", *, what: str = "this", compare: bool = True) -> Record:
        """Read what `write` wrote, or a person did.

        Args:
            value: as the JSON reader gives it.
            where: path of the object, for messages; "" for the outermost.
            what: what the outermost object is, for the message that it is not an object.
            compare: compare what is computed with what the file says.

        Raises:
            NotJson: names the missing, wrong or unknown field, a newer schema, or a computed field that
                the content does not have.
        """
        if type(value) is not dict:
            raise NotJson(f"{where or what}: expected an object, got {shown(value)}")
        record = self._checked(value, where)
        try:
            made = msgspec.convert(record, self.kind)
        except msgspec.ValidationError as error:
            raise NotJson(self._said(error, record, where)) from None
        if compare:
            self._compare(record, made, where)
        return made

    def problems(self, value: Mapping[str, object], where: str = "") -> list[str]:
        """Everything that is wrong with the fields of an object, each in a sentence that names its path."""
        found = [*self._unknown(value, where)]
        for one in self._fields:
            if one.name not in value:
                found += [f"{_path(where, one.name)}: missing"] if one.required else []
                continue
            try:
                one.check(value[one.name], _path(where, one.name))
                msgspec.convert(value[one.name], one.hint)
            except NotJson as error:
                found.append(str(error))
            except msgspec.ValidationError as error:
                found.append(self._said(error, value, where, inside=one.name))
        return found

    def _checked(self, value: dict[str, Any], where: str) -> dict[str, Any]:
        """The object with today's names, after a look at schema, names and what must be there."""
        if self._renamed:
            value = {self._renamed.get(name, name): item for name, item in value.items()}
        if self._schema is not None:
            self._check_schema(value, where)
        if not value.keys() <= self._set:
            raise NotJson(next(self._unknown(value, where)))
        for name in self._required:
            if name not in value:
                raise NotJson(f"{_path(where, name)}: missing")
        if self._always_computed and self._computed not in value:
            raise NotJson(f"{_path(where, str(self._computed))}: missing")
        for one in self._inner:
            if one.name in value:
                changed = one.check(value[one.name], _path(where, one.name))
                if changed is not value[one.name]:
                    value = {**value, one.name: changed}
        return value

    def _check_schema(self, value: Mapping[str, Any], where: str) -> None:
        """Look at the version first: what another one wrote is said by that, not by its fields."""
        path, newest = _path(where, "schema"), self._schema
        if "schema" not in value:
            raise NotJson(f"{path}: missing")
        schema = value["schema"]
        if type(schema) is not int:
            raise NotJson(f"{path}: expected a whole number, got {shown(schema)}")
        if schema > newest:  # type: ignore[operator]
            raise NotJson(
                f"{path}: {shown(schema)} is newer than {newest}, the newest here; update dreamgym-kit"
            )
        if schema < 1:
            raise NotJson(f"{path}: there is no schema {shown(schema)}; known: 1 to {newest}")

    def _unknown(self, value: Mapping[str, object], where: str) -> Iterator[str]:
        for name in value:
            if name not in self._set:
                yield f"{_path(where, name)}: {nearest('no such field', str(name), self.names)}"

    def _compare(self, value: Mapping[str, Any], made: Any, where: str) -> None:
        name = self._computed
        if name is not None and name in value and value[name] != getattr(made, name):
            edited = "" if self._always_computed else f"; if it was edited on purpose, remove its {name}"
            raise NotJson(
                f"{_path(where, name)}: {shown(value[name])} is not the {name} of this content "
                f"({getattr(made, name)}){edited}"
            )
        for one in self._inner:
            if one.codec is not None and one.codec.computes and one.name in value:
                one.compare(value[one.name], getattr(made, one.name), _path(where, one.name))

    @property
    def computes(self) -> bool:
        """Whether there is anything to compare, here or inside."""
        return self._computed is not None or any(
            one.codec is not None and one.codec.computes for one in self._inner
        )

    def _said(
        self, error: msgspec.ValidationError, value: Mapping[str, Any], where: str, inside: str = ""
    ) -> str:
        """What msgspec found, with the path, the words and the value of our messages."""
        text, _, at = str(error).partition(" - at ")
        steps = [key or place for key, place in _PLACE.findall(at.strip("`").removeprefix("$"))]
        steps = [inside, *steps] if inside else steps
        path = where
        found: Any = value
        for place, step in enumerate(steps):
            if step == "..." and place == 1 and isinstance(found, Mapping):
                step = self._wrong_key(steps[0], found)
            path = f"{path}[{step}]" if step.isdigit() or step == "..." else _path(path, step)
            if isinstance(found, Sequence) and step.isdigit() and not isinstance(found, str):
                found = found[int(step)]
            else:
                found = found.get(step, _GONE) if isinstance(found, Mapping) else _GONE
        if text.startswith("Object missing required field"):
            return f"{_path(path, text.split('`')[1])}: missing"
        if text.startswith("Invalid enum value"):
            name = str(found) if found is not _GONE else text.split("'")[1]
            return f"{path}: {nearest(shown(name), name, self._choices(steps))}"
        if "matching regex" in text:
            return f"{path}: is empty"
        text = _TYPES.sub(
            lambda types: " or ".join(_WORDS.get(one, one) for one in types[1].split(" | ")), text
        )
        if found is not _GONE:
            text = f"{text.partition(', got ')[0]}, got {shown(found)}"
        return f"{path}: {text[:1].lower()}{text[1:]}"

    def _wrong_key(self, name: str, value: Mapping[str, Any]) -> str:
        """The key of the first wrong value of an object, which msgspec does not name."""
        hint = next(one.hint for one in self._fields if one.name == name)
        for key, item in value.items():
            try:
                msgspec.convert({key: item}, hint)
            except msgspec.ValidationError:
                return key
        return "..."

    def _choices(self, steps: Sequence[str]) -> list[str]:
        """The names of the enum at a path."""
        names = [step for step in steps if not step.isdigit() and step != "..."]
        field = next((one for one in self._fields if names and one.name == names[0]), None)
        if field is None:
            return []
        if field.codec is not None:
            return field.codec._choices(names[1:])
        return [str(one.value) for one in field.enum or ()]


@dataclass(frozen=True, slots=True)
class _Shape:
    """How a value of a field holds what is inside it: it is that itself, or a list or an object of it."""

    many: str  # "", "list" or "object"

    def each(self, value: object) -> Iterator[tuple[str, Any]]:
        if self.many == "list" and isinstance(value, Sequence):
            yield from ((f"[{place}]", item) for place, item in enumerate(value))
        elif self.many == "object" and isinstance(value, Mapping):
            yield from ((f".{name}", item) for name, item in value.items())
        elif not self.many and value is not None:
            yield "", value


class _Field:
    """One field of a record class."""

    def __init__(
        self, name: str, hint: Any, disk: str, has_default: bool, known: "Mapping[type, Codec[Any]]"
    ) -> None:
        self.name, self.hint = name, hint
        self.required = disk == "always" or not has_default
        self.if_set = disk == "if set"
        self.enum: type[Enum] | None = None
        self.codec: Codec[Any] | None = None
        self.shape, inner = _shape(hint)
        if is_dataclass(inner):
            self.codec = known.get(inner) or Codec(inner, nested=known.values())  # type: ignore[arg-type]
        elif isinstance(inner, type) and issubclass(inner, Enum):
            self.enum = inner
        self.write = self._writer(inner)

    def check(self, value: Any, where: str) -> Any:
        """Hold the records inside to their own rules; gives the value with today's names."""
        codec = self.codec
        if codec is None:
            return value
        checked = [
            (item, codec._checked(item, where + place) if type(item) is dict else item)
            for place, item in self.shape.each(value)
        ]
        if all(item is now for item, now in checked):
            return value
        now = [item for _, item in checked]
        if self.shape.many == "object":
            return dict(zip(value, now, strict=True))
        return now if self.shape.many else now[0]

    def compare(self, value: Any, made: Any, where: str) -> None:
        """Compare what the records inside compute."""
        if self.codec is not None:
            pairs = zip(self.shape.each(value), self.shape.each(made), strict=True)
            for (place, item), (_, record) in pairs:
                self.codec._compare(item, record, where + place)

    def _writer(self, inner: Any) -> Callable[[Any], JsonValue] | None:
        """How a value is written; None: as it is."""
        one: Callable[[Any], JsonValue] | None = None
        if self.codec is not None:
            one = self.codec.write
        elif self.enum is not None:
            one = _enum_written
        elif inner in (float, Number):
            one = _plain_number
        elif get_origin(inner) is Mapping:
            one = _object_written
        if self.shape.many == "list":
            return list if one is None else partial(_list_written, one)
        if self.shape.many == "object":
            return _object_written if one is None else partial(_each_written, one)
        return one


def _shape(hint: Any) -> tuple[_Shape, Any]:
    """How a hint holds the one type that matters in it, and that type."""
    many, inner = "", hint
    while True:
        origin, args = get_origin(inner), get_args(inner)
        if origin is Annotated:
            inner = args[0]
        elif origin is UnionType and NoneType in args and len(args) == 2:
            inner = next(one for one in args if one is not NoneType)
        elif (origin in (Sequence, list) or (origin is tuple and args[1:] == (...,))) and not many:
            many, inner = "list", args[0]
        elif origin in (Mapping, dict) and not many:
            many, inner = "object", args[1]
        else:
            return _Shape(many), inner


def _enum_written(value: Any) -> str:
    """A name as files spell it, which may be an earlier one than that of today."""
    return str(getattr(value, "on_disk", value.value))


def _plain_number(value: Any) -> Any:
    """A number of Python's own; numpy's are floats too, and read by no strict reader."""
    return float(value) if isinstance(value, float) else value


def _list_written(write: Callable[[Any], JsonValue], value: Sequence[Any]) -> JsonValue:
    return [write(item) for item in value]


def _each_written(write: Callable[[Any], JsonValue], value: Mapping[str, Any]) -> JsonValue:
    return {name: write(item) for name, item in value.items()}


def _object_written(value: Mapping[str, Any]) -> JsonValue:
    return dict(value)


def _has_default(field: Any) -> bool:
    return field.default is not MISSING or field.default_factory is not MISSING


def _in_words(types: re.Match[str]) -> str:
    return " or ".join(dict.fromkeys(_WORDS.get(one, one) for one in types[1].split(" | ")))


_GONE = object()


def _path(where: str, name: object) -> str:
    short = name if isinstance(name, str) and name.isidentifier() and len(name) <= 60 else shown(name)
    return f"{where}.{short}" if where else str(short)


def shown(value: object) -> str:
    """A value as a short word for a message; never a whole payload."""
    match value:
        case None:
            return "nothing"
        case bool():
            return str(value).lower()
        case str():
            return ascii(value[:40])
        case float():
            return f"{value:g}"
        case int():
            return str(value) if value.bit_length() < 64 else "a very large number"
        case dict():
            return "an object"
        case list():
            return "a list"
    return type(value).__name__


def nearest(found: str, name: str, known: Collection[str]) -> str:
    """A finding with the nearest known name, or with all of them."""
    near = get_close_matches(name[:60], known, n=1)
    return f"{found}; did you mean '{near[0]}'?" if near else f"{found}; known: {', '.join(known)}"
