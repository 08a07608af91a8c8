"""A transition as one JSON object, and back: the form of the buffer, of exports and of run journals.

Fields with a default may be missing, and so may `id`, which is computed from the content and compared when
it is there. Whatever is written here can be read here: the writer reads its own record.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from dreamgym_kit.bounded_json import check_bounds, read_json
from dreamgym_kit.codec import Codec
from dreamgym_kit.errors import NotSerializable, StoreError
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.types import SCHEMA_VERSION, Source, Transition

TRANSITIONS = Codec(Transition, schema=SCHEMA_VERSION, computed="id")
_spell = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def transition_to_record(transition: Transition) -> dict[str, JsonValue]:
    """Give a transition as a JSON object with every field and its content-addressed `id`.

    Raises:
        NotSerializable: a value in it has no JSON form, a field is not what the vocabulary says, or the
            answer was imagined.
    """
    if transition.answer.source is Source.IMAGINED:
        raise NotSerializable("it is an imagined answer, and no recording")
    return TRANSITIONS.write(transition)


def transition_from_record(record: object, *, checked: bool = False) -> Transition:
    """Read what `transition_to_record` wrote, or a person did.

    Args:
        record: a JSON object.
        checked: the text of the record was compared with a checksum, so that its id need not be made again.

    Raises:
        NotSerializable: names the missing, wrong or unknown field; a newer schema; an `id` that the content
            does not have.
    """
    return TRANSITIONS.read(record, label="a transition", compare=not checked)


def dump_transition(transition: Transition) -> str:
    """Spell a transition as one line of ASCII JSON without its line end; `load_transition` reads it.

    Keeps what the canonical form would not: the order of keys and 1.0 beside 1, which the agent saw.

    Raises:
        NotSerializable: see `transition_to_record`.
    """
    return dump_record(transition_to_record(transition))


def dump_record(record: Mapping[str, JsonValue]) -> str:
    """Spell a record as one line; see `dump_transition`."""
    try:
        line = _spell(record)
    except (ValueError, TypeError, RecursionError) as error:
        raise NotSerializable(f"cannot be written as JSON: {error}") from None
    check_bounds(line)
    return line


def load_transition(text: str | bytes) -> Transition:
    """Read one line of JSON; see `transition_from_record`, and `read_json` for its bounds."""
    return transition_from_record(read_json(text))


@contextmanager
def storable(place: object) -> Iterator[None]:
    """Refuse, for the buffer at a place, a put of what has no JSON form."""
    try:
        yield
    except NotSerializable as error:
        raise StoreError(f"{place}: a transition cannot be stored, so none was: {error}") from error
