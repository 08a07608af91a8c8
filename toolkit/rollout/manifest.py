"""What a run is: the facts that its directory opens with, and which of them a resume must share.

`matters` holds what the episodes depend on (graph, digest of the tasks, n, seed, thresholds): a resume
with others would mix two runs. `about` holds the rest (versions, machine, concurrency, budgets).
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from dreamgym_kit.canonical import canonical
from dreamgym_kit.codec import Codec
from dreamgym_kit.errors import NotJson
from dreamgym_kit.plain import JsonValue

RUN_SCHEMA = 1
MAX_DIFFERENCES = 10
_ABSENT = "not set"


@dataclass(frozen=True, slots=True)
class Manifest:
    """The first file of a run directory."""

    run: str  # short id of the run, "7f3a"
    created_at: float  # Unix time, seconds
    matters: Mapping[str, JsonValue]  # a resume must have the same
    about: Mapping[str, JsonValue] = field(default_factory=dict)
    schema: int = RUN_SCHEMA


MANIFESTS = Codec(Manifest, schema=RUN_SCHEMA)


def differences(
    there: Mapping[str, JsonValue],
    here: Mapping[str, JsonValue],
    *,
    sides: tuple[str, str] = ("there", "here"),
) -> list[str]:
    """Name each field in which two settings differ, by its path: "seed: 7 there, 8 here"."""
    old, new = dict(_leaves(there, ())), dict(_leaves(here, ()))
    found = []
    for path in sorted(old.keys() | new.keys()):
        before, now = old.get(path, _ABSENT), new.get(path, _ABSENT)
        if before != now:
            found.append(f"{'.'.join(path)}: {_short(before)} {sides[0]}, {_short(now)} {sides[1]}")
    if len(found) > MAX_DIFFERENCES:
        return [*found[:MAX_DIFFERENCES], f"and {len(found) - MAX_DIFFERENCES} more"]
    return found


def _leaves(value: JsonValue, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every leaf as (path, canonical spelling); an empty object is a leaf."""
    if isinstance(value, Mapping) and (value or not path):
        for key, item in value.items():
            yield from _leaves(item, (*path, key))
    else:
        yield path, canonical(value)


def _short(spelling: str) -> str:
    if len(spelling) <= 60:
        return spelling
    return f"{spelling[:40]}... ({len(spelling)} characters)"


def spell(record: Mapping[str, JsonValue]) -> bytes:
    """Spell a file of one JSON object for people and programs alike.

    Raises:
        NotJson: a value in it has no JSON form.
    """
    try:
        return (json.dumps(record, indent=2, allow_nan=False) + "\n").encode("ascii")
    except (TypeError, ValueError, RecursionError) as error:
        raise NotJson(f"cannot be written as JSON: {error}") from None
