"""Validate a value by an untrusted JSON schema with bounded work; a costlier check is refused.

A schema comes from a server. Its patterns, references and alternatives can be crafted so that a check takes
years, and Python's regex matcher obeys neither a deadline nor a signal. So each keyword is charged to one
budget for the whole check before it runs: the same schema and value always end alike, on any machine. A
pattern costs its worst case by form: nested ambiguous repeats and backreferences are unbounded.
"""

import importlib
import re
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from functools import lru_cache
from math import inf
from typing import Any

from jsonschema.exceptions import ValidationError
from jsonschema.validators import Draft202012Validator, extend, validator_for
from referencing import Registry

MAX_WORK = 4e7
"""Budget of one check, in regex steps: some tenths of a second."""
_KEYWORD = 600  # minimum steps of one keyword
_MAX_PARTS = 20_000  # maximum parts of a schema
_DEEPEST = 200  # maximum nesting of a value

_left: ContextVar[list[float]] = ContextVar("dreamgym_kit_schema_work")
_sizes: ContextVar[Mapping[int, int]] = ContextVar("dreamgym_kit_schema_sizes")


class TooMuchWork(Exception):
    """The check was refused: its work is unbounded or over the budget."""


def first_problem(schema: Mapping[str, Any], value: Any) -> ValidationError | None:
    """Return the first problem of a value, or None.

    Raises:
        TooMuchWork: the value was not checked.
        Exception: the schema is not valid.
    """
    sizes: dict[int, int] = {}
    _measure(value, sizes, _DEEPEST)
    tokens = _left.set([MAX_WORK]), _sizes.set(sizes)
    try:
        problem: ValidationError | None = next(_validator(schema).iter_errors(value), None)
        return problem
    finally:
        _left.reset(tokens[0])
        _sizes.reset(tokens[1])


def _validator(schema: Mapping[str, Any]) -> Any:
    """Return the schema's validator, cached per schema object; it fetches no other schemas."""
    cached = _VALIDATORS.get(id(schema))
    if cached is None or cached[0] is not schema:
        _check_own(schema)
        kind = validator_for(schema, default=Draft202012Validator)
        if len(_VALIDATORS) >= _MAX_VALIDATORS:
            _VALIDATORS.clear()
        cached = _VALIDATORS[id(schema)] = (schema, _paid(kind)(schema, registry=Registry()))
    return cached[1]


_VALIDATORS: dict[int, tuple[Mapping[str, Any], Any]] = {}
"""By id of the schema, stored with the validator so that the id is not reused."""
_MAX_VALIDATORS = 1024  # tools rebuilt for each episode have new schemas


def _check_own(schema: Mapping[str, Any]) -> None:
    """Refuse parts with their own dialect or schema: their validators would not be charged."""
    todo: list[Any] = [schema]
    looked = 0
    while todo:
        part = todo.pop()
        looked += 1
        if looked > _MAX_PARTS:
            raise TooMuchWork("a schema of too many parts")
        if isinstance(part, Mapping):
            named = [part.get(name) for name in ("$ref", "$dynamicRef", "$recursiveRef")]
            away = any(isinstance(name, str) and not name.startswith("#") for name in named)
            if away or ("$schema" in part and part is not schema):
                raise TooMuchWork("a schema in several dialects or files")
            todo.extend(part.values())
        elif isinstance(part, (list, tuple)):
            todo.extend(part)


@lru_cache(maxsize=16)
def _paid(kind: Any) -> Any:
    """Return a validator class whose keywords are charged."""
    return extend(  # type: ignore[no-untyped-call]
        kind, {keyword: _paying(keyword, check) for keyword, check in kind.VALIDATORS.items()}
    )


def _paying(keyword: str, check: Callable[..., Any]) -> Callable[..., Iterator[Any]]:
    def paid(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
        left = _left.get()
        left[0] -= _price(keyword, value, instance, schema)
        if not left[0] >= 0:
            raise TooMuchWork(keyword)
        yield from check(validator, value, instance, schema) or ()

    return paid


def _price(keyword: str, value: Any, instance: Any, schema: Any) -> float:
    """Return the cost of a keyword: its own work and that of its error message."""
    size = _size(instance)
    listed = len(value) if isinstance(value, (list, dict)) else 0
    price = float(_KEYWORD + 25 * size + 10 * listed)
    if keyword.startswith("unevaluated"):  # traverses the schema itself
        return float("inf")
    if keyword == "$ref" or keyword == "$dynamicRef":
        return price + 30 * _KEYWORD
    if keyword == "pattern" and isinstance(instance, str):
        return price + work_of_search(value, len(instance))
    if keyword in _BY_NAME and isinstance(instance, dict):
        patterns = schema.get("patternProperties") or ()
        names = [name for name in instance if isinstance(name, str)]
        return price + sum(work_of_search(pattern, len(name)) for pattern in patterns for name in names)
    if keyword == "uniqueItems" and isinstance(instance, list):
        simple = all(isinstance(item, (str, int, float)) for item in instance)
        return price + (20 * size if simple else 10.0 * size * len(instance))
    if keyword in ("enum", "const"):
        return price + 10.0 * size * max(1, listed)
    return price


_BY_NAME = frozenset({"patternProperties", "additionalProperties"})


def _size(value: Any) -> int:
    """Return a value's approximate length in characters."""
    if isinstance(value, str):
        return len(value)
    return _sizes.get().get(id(value), 20) if isinstance(value, (list, dict)) else 20


def _measure(value: Any, sizes: dict[int, int], depth: int) -> int:
    if not depth:
        raise TooMuchWork("values in values")
    if isinstance(value, dict):
        size = 2 + sum(_measure(item, sizes, depth - 1) + len(str(name)) for name, item in value.items())
    elif isinstance(value, (list, tuple)):
        size = 2 + sum(_measure(item, sizes, depth - 1) for item in value)
    else:
        return len(value) + 8 if isinstance(value, str) else 20
    sizes[id(value)] = size
    return size


_LONGEST = 2000  # maximum length of an analyzed expression
_MAX_TURNS = 64  # maximum count of an ambiguous repeat
_ONE = frozenset({"LITERAL", "NOT_LITERAL", "ANY", "IN", "AT", "CATEGORY", "RANGE", "FAILURE", "SUCCESS"})
_REPEATS = frozenset({"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"})


def work_of_search(pattern: str, length: int) -> float:
    """Return the maximum steps of `re.search` on a text of a length; infinity if unbounded.

    It counts the ways to match from the expression's form: an upper bound, not a measurement.

    Raises:
        re.error: not a Python regular expression.
    """
    parsed = _parsed(pattern)
    if parsed is None:
        return inf
    try:
        ways, work = _sequence(parsed, length)
    except (OverflowError, RecursionError):
        return inf
    return ways + work + length if _is_anchored(parsed) else (ways + work) * (length + 1)


@lru_cache(maxsize=1024)
def _parsed(pattern: str) -> Any:
    if len(pattern) > _LONGEST:
        return None
    try:
        parser = importlib.import_module("re._parser")  # a private module of Python
        return parser.parse(pattern)
    except (ImportError, AttributeError, RecursionError, OverflowError):
        return None


def _is_anchored(parsed: Any) -> bool:
    if not len(parsed) or parsed.state.flags & re.MULTILINE:
        return False
    kind, argument = parsed[0]
    return str(kind) == "AT" and str(argument) in ("AT_BEGINNING", "AT_BEGINNING_STRING")


def _sequence(parts: Any, length: int) -> tuple[float, float]:
    """Return the ways in which a sequence can match, and the steps to try all of them."""
    ways, work = 1.0, 1.0
    for kind, argument in parts:
        more, steps = _part(str(kind), argument, length)
        work += ways * steps
        ways *= more
        if work == inf:
            return inf, inf
    return ways, work


def _part(kind: str, argument: Any, length: int) -> tuple[float, float]:
    if kind in _ONE:
        return 1.0, 1.0
    if kind in _REPEATS:
        least, most, inside = argument
        return _repeated(int(least), min(int(most), length), *_sequence(inside, length))
    if kind == "BRANCH":
        branches = [_sequence(branch, length) for branch in argument[1]]
        return sum(ways for ways, _ in branches), sum(work for _, work in branches)
    if kind == "SUBPATTERN":
        return _sequence(argument[-1], length)
    if kind in ("ASSERT", "ASSERT_NOT"):
        return _sequence(argument[1], length)
    if kind == "ATOMIC_GROUP":
        return _sequence(argument, length)
    return inf, inf


def _repeated(least: int, most: int, ways: float, work: float) -> tuple[float, float]:
    turns = max(0, most - least) + 1
    if ways == 1.0:
        return float(turns), (most + 1) * work + turns
    if most > _MAX_TURNS:
        return inf, inf
    return turns * ways**most, turns * ways**most * (most + 1) * work
