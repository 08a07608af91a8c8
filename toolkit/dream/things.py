"""Find the things that an answer describes, by kind and ID, and their fields.

An object's ID is its field `id`, else the ID field with the noun of its tool (`licence_id` in
assign_licence), else its first ID field. Inner rows that only refer to a thing (the `payment_method_id` in a
payment_history), and rows of a list that repeat an ID, do not describe it. An object without an ID describes
the thing that the call's only argument names. Kinds come from names alone: `id` in get_order and `order_id`
in list_payments have the same kind.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from dreamgym_kit.bounded_json import read_json
from dreamgym_kit.dream.json_values import is_key, is_scalar
from dreamgym_kit.errors import NotSerializable
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.types import Answer, Call

Thing = tuple[str, str]
"""A kind ("order") and an ID as text."""
Scalar = str | int | float | bool | None

READS = frozenset(
    {"all", "any", "fetch", "find", "get", "list", "lookup", "look", "my", "query", "read"}
    | {"retrieve", "search", "show", "the", "up", "view", "check", "status", "details"}
    | {"detail", "info"}
)
REMOVES = frozenset(
    {"delete", "remove", "revoke", "destroy", "drop", "erase", "purge", "discard"}
    | {"detach", "unassign", "clear"}
)
MAKES = frozenset(
    {"add", "assign", "book", "create", "file", "generate", "insert", "invite", "issue"}
    | {"make", "new", "open", "place", "post", "register", "request", "reserve", "schedule"}
    | {"submit"}
)
_STOPS = ("by", "for", "of", "from", "in", "with", "to", "on")
_WRAPPERS = frozenset(
    ["data", "result", "results", "response", "payload", "items", "rows", "records", "entries", "values"]
)
_ID_NAME = re.compile(
    r"(?:^|_)(?:id|no|number|key|ref|reference|code|uuid|sku)_?$|[a-z](?:Id|ID|No|Ref|Key|Code)$"
)
_PLAIN_ID = re.compile(r"(?:id|no|number|key|ref|reference|code|uuid|sku)", re.IGNORECASE)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
DENIES = re.compile(r"(?i)not found|no such|does(?:n't| not) exist|unknown|not exist|no \w+ (?:with|named)")
_CLOCKS = frozenset({"now", "timestamp", "uptime", "current_time", "server_time", "local_time", "as_of"})
_VIEWS = frozenset(
    {"currency", "date", "day", "format", "lang", "language", "locale", "month", "time", "timezone", "tz"}
    | {"unit", "units", "version", "week", "year"}
)
_DAY = re.compile(r"\d{4}-\d\d(?:-\d\d)?(?:[T ].*)?")
_FIGURE = r"(-?\d+(?:\.\d+)?)"
_AMOUNT = re.compile(rf"(?:[A-Z]{{3}}|[^\w\s.-])?\s?{_FIGURE}\s?(?:[A-Z]{{3}}|[^\w\s.-])?")
_LABELS = frozenset({"description", "display", "label", "message", "name", "text", "title"})
_MORE = frozenset({"next", "more", "truncated"})
_MAX_DENIAL = 200  # characters
_MAX_ROWS = 400
_DEPTH = 8


class EntityRecord(NamedTuple):
    """The fields of one thing in an answer."""

    thing: Thing
    fields: Mapping[str, Scalar]  # nested objects without an ID as "address.city"
    in_list: bool  # a row of the list that the answer is
    by_argument: bool  # it has no ID field: the call's arguments name it


def records(content: JsonValue, call: Call) -> Iterator[EntityRecord]:
    """Yield the things that an answer describes, outermost first; at most 400."""
    content = opened(content)
    rows = {id(row) for row in rows_of(content) or ()}
    wrapped = isinstance(content, dict) and not any(map(is_id_name, content))
    entities: list[EntityRecord] = []
    for value, key in islice(_objects(content, "", _DEPTH), _MAX_ROWS):
        in_list = id(value) in rows
        nested = bool(key) and not in_list and not (wrapped and key in _WRAPPERS)
        thing = _own(value, key if nested else "", call, in_list=in_list)
        if thing is not None:
            entities.append(EntityRecord(thing, dict(_scalars(value)), in_list, by_argument=False))
        elif value is content:
            entities.append(EntityRecord(_named(call), dict(_scalars(value)), in_list, by_argument=True))
    counts = Counter(record.thing for record in entities if record.in_list)
    return (record for record in entities if not record.in_list or counts[record.thing] == 1)


def opened(content: JsonValue) -> JsonValue:
    """Parse a text, or a single text block, that is JSON; return other contents unchanged."""
    if isinstance(content, list) and len(content) == 1 and isinstance(content[0], dict):
        block = content[0]
        if block.get("type") == "text" and set(block) <= {"type", "text", "id", "annotations"}:
            content = block.get("text")
    if isinstance(content, str) and content[:1] in ("{", "["):
        try:
            return read_json(content)
        except NotSerializable:
            return content
    return content


def failure_of(answer: Answer) -> str | None:
    """Return a failure's message: the error, or a plain answer in a usual form of failure; else None."""
    if answer.error is not None:
        return answer.error
    content = opened(answer.content)
    if isinstance(content, dict):
        wrong = content.get("error") or content.get("success") is False or content.get("ok") is False
        return str(content) if wrong else None
    if isinstance(content, str) and len(content) <= _MAX_DENIAL:
        return content if content[:5].lower() == "error" or DENIES.search(content) else None
    return None


def denies(text: str, thing: Thing) -> bool:
    """Whether a failure says that there is no such thing."""
    kind = re.escape(thing[0])
    return bool(DENIES.search(text) or (kind and re.search(rf"(?i)\bno {kind}\b", text)))


def rows_of(content: JsonValue) -> list[JsonValue] | None:
    """Return the list that an answer is or wraps ("orders", "total"); None for any other answer."""
    content = opened(content)
    if isinstance(content, dict) and not any(map(is_id_name, content)):
        inner = [value for value in content.values() if isinstance(value, (dict, list))]
        content = inner[0] if len(inner) == 1 else None
    return content if isinstance(content, list) else None


def is_partial(content: JsonValue) -> bool:
    """Whether a list has further rows: a larger total, or a next page."""
    rows, content = rows_of(content) or (), opened(content)
    fields = content.items() if isinstance(content, dict) else ()
    return any(
        (value and not _MORE.isdisjoint(words(name)))
        or ("total" in words(name) and type(value) is int and value > len(rows))
        for name, value in fields
    )


def plain_items(content: JsonValue) -> set[Thing]:
    """Return the items of a list of plain values, without a kind; empty for a list of records."""
    rows = rows_of(content) or ()
    return {("", str(row)) for row in rows} if all(map(is_scalar, rows)) else set()


def is_view_argument(name: str, value: JsonValue) -> bool:
    """Whether an argument says how or when to look, such as a language or a date, not at what."""
    dated = isinstance(value, str) and _DAY.fullmatch(value) is not None
    return dated or (not is_id_name(name) and not _VIEWS.isdisjoint(words(name)))


def is_clock_name(name: str) -> bool:
    """Whether a field or tool of this name gives another value each time that it is asked."""
    parts = words(name)
    return not _CLOCKS.isdisjoint([*parts[-1:], "_".join(parts[-2:])])


def identifiers(value: Any) -> Iterator[str]:
    """Yield all texts and whole numbers in arguments, as text: each may name a thing."""
    if isinstance(value, Mapping):
        for item in value.values():
            yield from identifiers(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from identifiers(item)
    elif is_key(value):
        yield str(value)


def id_arguments(call: Call) -> list[tuple[Thing, str]]:
    """Return the things that a call names by an ID, each with its argument's name."""
    return [
        ((kind_of(name, call.tool), str(value)), name)
        for name, value in call.args.items()
        if is_id_name(name) and is_key(value)
    ]


def is_id_name(name: str) -> bool:
    """Whether a field or argument of this name holds an ID."""
    return _ID_NAME.search(name) is not None


def kind_of(name: str, tool: str) -> str:
    """Return the kind in a name: "order" for order_id, orderId, and a plain id of get_order."""
    if _PLAIN_ID.fullmatch(name):
        return noun(tool)
    parts = words(name)
    return singular("_".join(parts[:-1] if is_id_name(name) and len(parts) > 1 else parts))


def kinds_of(tool: str) -> set[str]:
    """Return the kinds that a tool's name may mean: its words after the first, alone and joined."""
    parts = [singular(word) for word in words(tool)]
    parts = parts[1:] if len(parts) > 1 else parts
    return {"_".join(parts[start:end]) for start in range(len(parts)) for end in range(start + 1, start + 4)}


def noun(tool: str) -> str:
    """Return the kind of thing in a tool's name: "order" for get_order and list_orders_by_customer."""
    parts = words(tool)
    for stop in _STOPS:
        parts = parts[: parts.index(stop)] if stop in parts[1:] else parts
    rest = [word for word in parts if word not in READS | REMOVES | MAKES] or parts
    return singular(rest[-1]) if rest else ""


def names_more(tool: str, kinds: set[str], args: Mapping[str, JsonValue]) -> bool:
    """Whether a list's name restricts its rows further than its arguments do ("unread", "recent")."""
    argument_words = {word for name in args for word in words(name)}
    implied_words = {*kinds, *(part for kind in kinds for part in kind.split("_")), *argument_words}
    rest = set(words(tool)) - READS - {*_STOPS} - argument_words
    return any(singular(word) not in implied_words for word in rest)


def words(name: str) -> list[str]:
    """Split a name in snake_case or camelCase into lowercase words."""
    return [word.lower() for word in _WORD.findall(name)]


def singular(word: str) -> str:
    """Remove the plural ending of a noun."""
    word = word.lower()
    if word.endswith("ies") and len(word) > 4:
        return f"{word[:-3]}y"
    if word.endswith(("sses", "shes", "ches", "xes")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith(("ss", "us", "is")) else word


def same(left: Any, right: Any) -> bool:
    """Whether two values mean the same: "10 EUR" is 10, "#o1" is "O1", whatever blanks and capitals."""
    if left == right:
        return True
    if isinstance(left, bool) or isinstance(right, bool) or left is None or right is None:
        return False
    try:
        if isinstance(left, str) and isinstance(right, str):  # two amounts: their currencies count
            return float(left) == float(right)
        return _number(left) == _number(right)
    except (TypeError, ValueError, OverflowError):
        texts = (" ".join(str(value).lower().split()).removeprefix("#") for value in (left, right))
        return len(set(texts)) == 1


def _number(value: Any) -> float:
    """Return a number, or the number of an amount with its currency. Raises as `float` does."""
    amount = _AMOUNT.fullmatch(value.strip()) if isinstance(value, str) else None
    return float(value if amount is None else amount[1])


def _own(value: Mapping[str, Any], key: str, call: Call, *, in_list: bool) -> Thing | None:
    names = [name for name, item in value.items() if is_id_name(name) and is_key(item)]
    names = [name for name in names if name != "code" or isinstance(value[name], str)]  # not HTTP's 200
    if not names or (key and _is_coded(value)):
        return None
    plain = next((name for name in names if _PLAIN_ID.fullmatch(name)), None)
    if plain is not None:
        return (singular(key) if key else noun(call.tool)), str(value[plain])
    nouns = {singular(key)} if key else kinds_of(call.tool)
    chosen = [name for name in names if kind_of(name, "") in nouns]
    if key:  # an object within another one is of a thing, or refers to it
        return (kind_of(chosen[0], ""), str(value[chosen[0]])) if chosen else None
    in_call = [name for name in names if name in call.args and str(call.args[name]) == str(value[name])]
    others = [name for name in names if name not in in_call]
    order = [*chosen, *others] if in_list else [*chosen, *in_call, *others]
    if not order:  # a row that only says of what it is one
        return None
    return kind_of(order[0], ""), str(value[order[0]])


def _named(call: Call) -> Thing:
    """Return the thing that an object without an ID describes."""
    if len(call.args) == 1:
        name, value = next(iter(call.args.items()))
        if is_key(value):
            return kind_of(name, call.tool), str(value)
    return "", call.key


def _objects(value: Any, key: str, depth: int) -> Iterator[tuple[dict[str, Any], str]]:
    if depth == 0:
        return
    if isinstance(value, dict):
        yield value, key
        for name, item in value.items():
            yield from _objects(item, name, depth - 1)
    elif isinstance(value, list):
        for item in value[:_MAX_ROWS]:
            yield from _objects(item, key, depth - 1)


def _scalars(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Scalar]]:
    for name, item in value.items():
        if is_scalar(item):
            yield f"{prefix}{name}", item
        elif isinstance(item, dict) and (_is_coded(item) or not any(map(is_id_name, item))):
            yield from _scalars(item, f"{prefix}{name}.")


def _is_coded(value: Mapping[str, Any]) -> bool:
    """Whether an object is a coded value, such as a status with code and text: not a thing of its own."""
    return "code" in value and len(value) > 1 and all(name == "code" or name in _LABELS for name in value)
