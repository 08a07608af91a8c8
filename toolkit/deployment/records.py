"""What a shelf writes down: a version, and each thing that was done with versions, as lines of JSON."""

import json
from dataclasses import dataclass
from enum import StrEnum

from dreamgym_kit.codec import Codec, FilledText
from dreamgym_kit.plain import JsonValue

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

    name: FilledText  # "v001"
    weights: FilledText  # digest of the model directory
    source: str  # where the weights came from
    made_at: float  # Unix time, seconds
    adapter: bool = False  # whether the LoRA adapter lies beside the merged weights
    card: str = ""  # digest of the card as it was written; "": there was none


EVENTS = Codec(Event, schema=SCHEMA)
VERSIONS = Codec(Version, schema=SCHEMA)


def line_of(record: JsonValue) -> bytes:
    """Spell a record as a line."""
    return (json.dumps(record, ensure_ascii=True, allow_nan=False) + "\n").encode("ascii")
