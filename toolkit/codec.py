"""Records as JSON objects, and back: the dataclass is the schema, its type hints are the checks.

A field's `metadata` says what the hints cannot: `ALWAYS` (must be in the file although it has a default),
`IF_SET` (written only when it is not empty), `NEVER` (not in the file) and `on_disk("name")` (its name in
the file; its own is read as well). Fields with a default may be missing, so a field that is added later is
read from older files. Unknown fields are refused, so that a misspelled one is not dropped silently. Messages
name the field by its path as the file spells it ("world.seed: expected a whole number, got 'seven'").
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from difflib import get_close_matches
from enum import Enum
from functools import partial
from types import NoneType, UnionType
from typing import Annotated, Any, Generic, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from dreamgym_kit.errors import NotSerializable
from dreamgym_kit.serialization import JsonValue

Record = TypeVar("Record")
_Place = tuple[str | int, ...]
ALWAYS = {"disk": "always"}
IF_SET = {"disk": "if set"}
NEVER = {"disk": "never"}


def on_disk(name: str) -> dict[str, str]:
    """Metadata of a field that has another name in files, which older ones or other programs know."""
    return {"name": name}


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
        nested_codecs: dict[type, Codec[Any]] = {codec.kind: codec for codec in nested}
        hints = get_type_hints(kind, include_extras=True)
        self._fields = [
            _Field(
                name=field.name,
                on_disk=field.metadata.get("name", field.name),
                required=field.metadata.get("disk") == "always"
                or (field.default is MISSING and field.default_factory is MISSING),
                if_set=field.metadata.get("disk") == "if set",
                shape=_Shape(hints[field.name], nested_codecs),
            )
            for field in fields(kind)  # type: ignore[arg-type]
            if field.init and field.metadata.get("disk") != "never"
        ]
        first = [*(["schema"] if schema is not None else []), *([computed] if computed else [])]
        self.names = tuple(dict.fromkeys([*first, *(field.on_disk for field in self._fields)]))
        self._set = frozenset([*first, *(field.name for field in self._fields)])
        self._renamed = {field.on_disk: field.name for field in self._fields if field.on_disk != field.name}
        self._renamed |= renamed or {}
        required = {field.name for field in self._fields if field.required}
        self._required = required | ({computed} if computed and always_computed else set())
        self._inner = [field for field in self._fields if field.shape.holds_records or field.shape.is_list]
        self.computes: bool = computed is not None or any(field.shape.computes for field in self._inner)

    def write(self, record: Record) -> dict[str, JsonValue]:
        """Give the record as a JSON object that `read` takes; values of any type are taken as they are.

        Raises:
            NotSerializable: a field is not what the class says.
        """
        made = self._written(record)
        self._convert(self._checked(made, ()), (), made)
        return made

    def read(self, value: object, where: str = "", *, label: str = "this", compare: bool = True) -> Record:
        """Read what `write` wrote, or a person did.

        Args:
            value: as the JSON reader gives it.
            where: path of the object, for messages; "" for the outermost.
            label: what the outermost object is, for the message that it is not an object.
            compare: compare what is computed with what the file says.

        Raises:
            NotSerializable: names the missing, wrong or unknown field, a newer schema, or a computed field
                that the content does not have.
        """
        if type(value) is not dict:
            raise NotSerializable(f"{where or label}: expected an object, got {shown(value)}")
        at = (where,) if where else ()
        record = self._checked(value, at)
        made = self._convert(record, at, value)
        if compare and self.computes:
            self._compare(record, made, at)
        return made

    def problems(self, value: Mapping[str, object], where: str = "") -> list[str]:
        """Return all problems of an object's fields, as sentences that name the field's path."""
        at = (where,) if where else ()
        problems = [*self._unknown(value, at)]
        for field in self._fields:
            if (name := field.spelled(value)) is not None:
                problems += filter(None, [field.shape.fault(value[name], (*at, name))])
            elif field.required:
                problems.append(f"{_path(*at, field.on_disk)}: missing")
        return problems

    def _written(self, record: Record) -> dict[str, JsonValue]:
        made: dict[str, JsonValue] = {}
        if self._schema is not None:
            made["schema"] = getattr(record, "schema", self._schema)
        if self._computed is not None:
            made[self._computed] = getattr(record, self._computed)
        for field in self._fields:
            value = getattr(record, field.name)
            if value or not field.if_set:
                write = field.shape.write
                made[field.on_disk] = value if write is None or value is None else write(value)
        return made

    def _convert(self, record: dict[str, Any], at: "_Place", written: dict[str, Any]) -> Record:
        """Make the record of an object with today's names; `written` is the object as the file has it."""
        try:
            return msgspec.convert(record, self.kind)
        except (msgspec.ValidationError, UnicodeError):
            # msgspec's message quotes values, which may look like a path: ours is made from the fields
            raise NotSerializable(self._fault(written, at) or f"{_path(*at)}: cannot be read") from None

    def _fault(self, value: Mapping[str, Any], at: "_Place") -> str:
        """The first wrong field; empty where each alone is right."""
        spelled = ((field.shape, field.spelled(value)) for field in self._fields)
        faults = (shape.fault(value[name], (*at, name)) for shape, name in spelled if name is not None)
        return next(filter(None, faults), "")

    def _checked(self, value: dict[str, Any], at: "_Place") -> dict[str, Any]:
        """The object with today's names, after a look at schema, names and what must be there."""
        written = value
        if not self._renamed.keys().isdisjoint(value):
            value = dict(value)
            for name in [name for name in self._renamed if name in value]:
                value[self._renamed[name]] = value.pop(name)
        if self._schema is not None:
            self._check_schema(value, at)
        if not value.keys() <= self._set:
            raise NotSerializable(next(self._unknown(value, at)))
        if not self._required <= value.keys():
            missing = next(
                name
                for name in self.names
                if (now := self._renamed.get(name, name)) in self._required and now not in value
            )
            raise NotSerializable(f"{_path(*at, missing)}: missing")
        for field in self._inner:
            name = field.name
            if name in value:
                before = value[name]
                spelled = name if value is written else field.spelled(written) or name
                inside = field.shape.check(before, (*at, spelled))
                if inside is not before:
                    value = dict(value) if value is written else value
                    value[name] = inside
        return value

    def _check_schema(self, value: Mapping[str, Any], at: "_Place") -> None:
        """Check the version first, so that a newer file is refused for its version and not for its fields."""
        schema, newest = value.get("schema", _GONE), self._schema or 0
        if type(schema) is int and 1 <= schema <= newest:
            return
        path = _path(*at, "schema")
        if schema is _GONE:
            raise NotSerializable(f"{path}: missing")
        if type(schema) is not int:
            raise NotSerializable(f"{path}: expected a whole number, got {shown(schema)}")
        if schema > newest:
            newest_here = f"{newest}, the newest here; update dreamgym-kit"
            raise NotSerializable(f"{path}: {shown(schema)} is newer than {newest_here}")
        raise NotSerializable(f"{path}: there is no schema {shown(schema)}; known: 1 to {newest}")

    def _unknown(self, value: Mapping[str, object], at: "_Place") -> Iterator[str]:
        for name in value:
            if name not in self._set and name not in self._renamed:
                yield f"{_path(*at, name)}: {nearest('no such field', str(name), self.names)}"

    def _compare(self, value: Mapping[str, Any], made: Any, at: "_Place") -> None:
        """Compare what is computed, inside first."""
        for field in self._inner:
            name = field.spelled(value)
            if name is not None and field.shape.computes:
                field.shape.compare(value[name], getattr(made, field.name), (*at, name))
        name = self._computed
        if name is not None and name in value and value[name] != getattr(made, name):
            edited = "" if name in self._required else f"; if it was edited on purpose, remove its {name}"
            raise NotSerializable(
                f"{_path(*at, name)}: {shown(value[name])} is not the {name} of this content "
                f"({getattr(made, name)}){edited}"
            )


class _Shape:
    """What a type hint holds: a record, an enum or a plain value, or a list or an object of such.

    Attributes:
        write: how a value is written; None: as it is.
        holds_records: whether records stand in it, which have rules of their own.
    """

    def __init__(self, hint: Any, codecs: "Mapping[type, Codec[Any]]") -> None:
        inner = _bare(hint)
        origin, args = get_origin(inner), get_args(inner)
        self.hint = hint
        self.codec: Codec[Any] | None = None
        self.enum: type[Enum] | None = None
        self.item: _Shape | None = None
        self.write: Callable[[Any], JsonValue] | None = None
        self.is_list = origin in (Sequence, list) or (origin is tuple and args[1:] == (...,))
        if self.is_list:
            self.item = _Shape(args[0], codecs)
            self.write = partial(_list_written, self.item.write) if self.item.write else list
        elif origin in (Mapping, dict):
            self.item = _Shape(args[1], codecs)
            self.write = partial(_object_written, self.item.write) if self.item.write else dict
        elif is_dataclass(inner):
            self.codec = codecs.get(inner) or Codec(inner, nested=codecs.values())  # type: ignore[arg-type]
            self.write = self.codec._written
        elif isinstance(inner, type) and issubclass(inner, Enum):
            self.enum, self.write = inner, _enum_written
        elif inner in (float, Number):
            self.write = _plain_number
        self.holds_records: bool = self.codec is not None or (
            self.item is not None and self.item.holds_records
        )

    @property
    def computes(self) -> bool:
        """Whether a record in it computes something that files hold."""
        inside = self.codec or self.item
        return inside is not None and inside.computes

    def check(self, value: Any, at: "_Place") -> Any:
        """Hold the records inside to their own rules; gives the value with today's names."""
        if self.codec is not None:
            return self.codec._checked(value, at) if type(value) is dict else value
        if self.is_list and isinstance(value, (set, frozenset)):  # msgspec takes one for a list
            raise NotSerializable(f"{_path(*at)}: expected a list, got {shown(value)}")
        if self.item is None or not self.item.holds_records:
            return value
        now = [self.item.check(item, (*at, place)) for place, item in self._items(value)]
        if all(before is item for (_, before), item in zip(self._items(value), now, strict=True)):
            return value
        return now if self.is_list else dict(zip(value, now, strict=True))

    def compare(self, value: Any, made: Any, at: "_Place") -> None:
        """Compare what the records inside compute."""
        if self.codec is not None and value is not None:
            self.codec._compare(value, made, at)
        elif self.item is not None:
            for (place, item), (_, record) in zip(self._items(value), self._items(made), strict=True):
                self.item.compare(item, record, (*at, place))

    def fault(self, value: Any, at: "_Place") -> str:
        """What is wrong with a value, and at which place in it; empty where nothing is."""
        try:
            msgspec.convert(self.check(value, at), self.hint)
        except NotSerializable as error:
            return str(error)
        except (msgspec.ValidationError, UnicodeError) as error:
            inside = ""
            if self.codec is not None and type(value) is dict:
                inside = self.codec._fault(value, at)
            elif self.item is not None:
                faults = (self.item.fault(item, (*at, place)) for place, item in self._items(value))
                inside = next(filter(None, faults), "")
            return inside or self._in_words(error, value, at)
        return ""

    def _items(self, value: Any) -> "Iterable[tuple[str | int, Any]]":
        if self.is_list:
            return enumerate(value) if isinstance(value, (list, tuple)) else ()
        return value.items() if isinstance(value, Mapping) else ()

    def _in_words(self, error: Exception, value: Any, at: "_Place") -> str:
        """What msgspec says of one plain value, in our words; it quotes none but where an enum is meant."""
        if self.enum is not None and isinstance(value, str):
            return f"{_path(*at)}: {nearest(shown(value), value, [str(name.value) for name in self.enum])}"
        text = str(error)
        if "matching regex" in text:
            return f"{_path(*at)}: is empty"
        if isinstance(error, UnicodeError):
            text = "Expected another kind of value"
        wanted = _TYPES.sub(_words, text.partition(", got ")[0])
        return f"{_path(*at)}: {wanted[:1].lower()}{wanted[1:]}, got {shown(value)}"


@dataclass(frozen=True, slots=True)
class _Field:
    """One field of a record class."""

    name: str
    on_disk: str  # its name in files
    required: bool
    if_set: bool  # written only when it is not empty
    shape: _Shape

    def spelled(self, value: Mapping[str, object]) -> str | None:
        """The name that an object has for this field; None where it has none."""
        if self.on_disk in value:
            return self.on_disk
        return self.name if self.name in value else None


def _bare(hint: Any) -> Any:
    """A type without its annotations, and without None beside it."""
    args = get_args(hint)
    if get_origin(hint) is Annotated:
        return _bare(args[0])
    if get_origin(hint) is UnionType and NoneType in args and len(args) == 2:
        return _bare(next(arg for arg in args if arg is not NoneType))
    return hint


def _enum_written(value: Any) -> str:
    """A name as files spell it, which may be an earlier one than that of today."""
    spelled = getattr(value, "on_disk", None)
    return str(value if spelled is None else spelled)


def _plain_number(value: Any) -> Any:
    """A number of Python's own; numpy's are floats too, and read by no strict reader."""
    return float(value) if isinstance(value, float) else value


def _list_written(write: Callable[[Any], JsonValue], value: Sequence[Any]) -> JsonValue:
    return [write(item) for item in value]


def _object_written(write: Callable[[Any], JsonValue], value: Mapping[str, Any]) -> JsonValue:
    return {name: write(item) for name, item in value.items()}


_GONE = object()


def _words(types: re.Match[str]) -> str:
    names = [name for name in types[1].split(" | ") if name != "null"]
    names = ["float"] if names == ["int", "float"] else names
    return " or ".join(_WORDS.get(name, name) for name in names)


def _path(*at: object) -> str:
    """A place as messages name it: "transitions[3].call.tool"."""
    made = ""
    for name in at:
        if isinstance(name, int):
            made += f"[{name}]"
            continue
        plain = isinstance(name, str) and len(name) <= 60 and all(map(str.isidentifier, name.split(".")))
        short = name if plain else shown(name)
        made += f".{short}" if made else str(short)
    return made


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


def nearest(problem: str, name: str, names: Collection[str]) -> str:
    """Append the nearest known name to a problem; all names if none is near."""
    near = get_close_matches(name[:60], names, n=1)
    return (
        f"{problem}; did you mean '{near[0]}'?" if near else f"{problem}; known: {', '.join(names) or 'none'}"
    )
