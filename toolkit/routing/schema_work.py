"""Checks a value by a stranger's JSON schema, within so much work; what would take more is not checked.

A schema comes from a server. Its patterns, references and alternatives can be made so that a check takes
years, and Python's matcher hears neither a deadline nor a signal. So each keyword is paid for before it is
asked, from one account for the whole check: the same schema and value always end in the same way, on any
machine. A pattern costs what its form allows at most: what stands in a repeat and can itself match in several
ways has no bound, nor have backward references.
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
"""Of one check, in steps of a regular expression: some tenths of a second."""
_KEYWORD = 600  # steps that one keyword takes at least
_MAX_PARTS = 20_000  # of a schema
_DEEPEST = 200  # values in values

_left: ContextVar[list[float]] = ContextVar("dreamgym_kit_schema_work")
_sizes: ContextVar[Mapping[int, int]] = ContextVar("dreamgym_kit_schema_sizes")


class TooMuchWork(Exception):
    """The check was not made: nothing bounds it, or more than it may take."""


def first_problem(schema: Mapping[str, Any], value: Any) -> ValidationError | None:
    """What is wrong with a value first; None where nothing is.

    Raises:
        TooMuchWork: it was not checked.
        Exception: the schema is not one.
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
    """The schema's validator, made once per schema object; it fetches no schema from anywhere."""
    known = _VALIDATORS.get(id(schema))
    if known is None or known[0] is not schema:
        _check_own(schema)
        kind = validator_for(schema, default=Draft202012Validator)
        if len(_VALIDATORS) >= _MAX_VALIDATORS:
            _VALIDATORS.clear()
        known = _VALIDATORS[id(schema)] = (schema, _paid(kind)(schema, registry=Registry()))
    return known[1]


_VALIDATORS: dict[int, tuple[Mapping[str, Any], Any]] = {}
"""By id of the schema, which is kept beside its validator so that the id stays its own."""
_MAX_VALIDATORS = 1024  # tools that are made anew for each episode bring a schema each


def _check_own(schema: Mapping[str, Any]) -> None:
    """A part that names a dialect, or another schema, would be checked by one that pays for nothing."""
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
    """A validator class whose keywords are paid for."""
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
    """What a keyword takes: what it does by itself, and the sentence that says what is wrong."""
    size = _size(instance)
    listed = len(value) if isinstance(value, (list, dict)) else 0
    price = float(_KEYWORD + 25 * size + 10 * listed)
    if keyword.startswith("unevaluated"):  # goes through the schema by itself
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
    """About how many characters a value has when it is shown."""
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


_LONGEST = 2000  # characters of an expression that is looked at
_MAX_TURNS = 64  # of a repeat whose inside can match in several ways
_ONE = frozenset({"LITERAL", "NOT_LITERAL", "ANY", "IN", "AT", "CATEGORY", "RANGE", "FAILURE", "SUCCESS"})
_REPEATS = frozenset({"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"})


def work_of_search(pattern: str, length: int) -> float:
    """The most steps that `re.search` makes for a text of that length; infinity where nothing bounds them.

    The ways to match are counted from the expression's form, before it is asked: a bound, not a measure.

    Raises:
        re.error: it is not a regular expression, as Python has them.
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
        parser = importlib.import_module("re._parser")  # of Python's own, and not promised to stay
        return parser.parse(pattern)
    except (ImportError, AttributeError, RecursionError, OverflowError):
        return None


def _is_anchored(parsed: Any) -> bool:
    if not len(parsed) or parsed.state.flags & re.MULTILINE:
        return False
    kind, argument = parsed[0]
    return str(kind) == "AT" and str(argument) in ("AT_BEGINNING", "AT_BEGINNING_STRING")


def _sequence(parts: Any, length: int) -> tuple[float, float]:
    """In how many ways parts can match one after the other, and how many steps it takes to try them all."""
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
