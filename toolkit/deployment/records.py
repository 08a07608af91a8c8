"""What a shelf writes down: a version, and each thing that was done with versions, as lines of JSON."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from enum import StrEnum

from dreamgym_kit.errors import NotJson
from dreamgym_kit.jsonread import read_json
from dreamgym_kit.plain import JsonValue
from dreamgym_kit.replay.fields import Fields, filled_text, name_of, number, text, texts, truth, whole

SCHEMA = 1


class Deed(StrEnum):
    """What was done."""

    PROMOTED = "promoted"  # the comparison said so
    FORCED = "forced"  # a person said so
    REFUSED = "refused"  # the comparison did not say so, and nobody else did
    ROLLED_BACK = "rolled_back"

    @property
    def changes(self) -> bool:
        """Whether another version is in use from then on."""
        return self is not Deed.REFUSED


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One line of the history."""

    at: float  # Unix time, seconds
    deed: Deed
    version: str  # in use from then on; of a refused candidate: ""
    before: str  # in use until then; "": nothing was
    weights: str  # digest of the candidate, or of the version
    evaluated: str = ""  # the run that tried it, by its id
    against: str = ""  # the run that it was held against
    look: int = 0  # at that baseline, from 1; 0: no comparison was made
    sentence: str = ""  # what the comparison came to
    reasons: tuple[str, ...] = ()  # against it; of a forced one: what was overruled
    why: str = ""  # of a forced one, or of a roll-back: what the person said


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One set of weights on the shelf, as it was put there."""

    name: str  # "v001"
    weights: str  # digest of the model directory
    source: str  # where the weights came from
    made_at: float  # Unix time, seconds
    adapter: bool = False  # whether the LoRA adapter lies beside the merged weights
    card: str = ""  # digest of the card as it was written; "": there was none


_EVENT = frozenset(one.name for one in fields(Event)) | {"schema"}
_VERSION = frozenset(one.name for one in fields(Version)) | {"schema"}


def event_to_json(event: Event) -> dict[str, JsonValue]:
    """Give an event as a JSON object."""
    return {"schema": SCHEMA, **asdict(event), "deed": event.deed.value, "reasons": list(event.reasons)}


def event_line(event: Event) -> bytes:
    """Give an event as a line."""
    return _line(event_to_json(event))


def version_line(version: Version) -> bytes:
    """Give a version as a file of one line."""
    return _line({"schema": SCHEMA, **asdict(version)})


def event_of(line: bytes) -> Event:
    """Read a line of the history.

    Raises:
        NotJson: it is none; names the field.
    """
    told = _opened(line, _EVENT)
    return Event(
        at=told.take("at", number),
        deed=told.take("deed", name_of(Deed)),
        version=told.take("version", text),
        before=told.take("before", text),
        weights=told.take("weights", text),
        evaluated=told.take("evaluated", text, ""),
        against=told.take("against", text, ""),
        look=told.take("look", whole, 0),
        sentence=told.take("sentence", text, ""),
        reasons=told.take("reasons", texts, ()),
        why=told.take("why", text, ""),
    )


def version_of(data: bytes) -> Version:
    """Read a version's file.

    Raises:
        NotJson: it is none; names the field.
    """
    told = _opened(data, _VERSION)
    return Version(
        name=told.take("name", filled_text),
        weights=told.take("weights", filled_text),
        source=told.take("source", text),
        made_at=told.take("made_at", number),
        adapter=told.take("adapter", truth, False),
        card=told.take("card", text, ""),
    )


def _opened(data: bytes, known: frozenset[str]) -> Fields:
    told = Fields(read_json(data), "", known)
    schema = told.take("schema", whole)
    if schema != SCHEMA:
        raise NotJson(f"schema {schema}; this version of dreamgym-kit reads {SCHEMA}")
    told.refuse_unknown()
    return told


def _line(record: Mapping[str, object]) -> bytes:
    return (json.dumps(record, ensure_ascii=True, allow_nan=False) + "\n").encode("ascii")
