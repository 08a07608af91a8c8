"""What lies beside the weights of a learned experience model: its words, and what its word is worth."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dreamgym_kit.bounded_json import read_json
from dreamgym_kit.dream.learned.vocabulary import Vocabulary, vocabulary_from_json, vocabulary_to_json
from dreamgym_kit.dream.state.support import Calibration
from dreamgym_kit.errors import NotSerializable, UserError
from dreamgym_kit.serialization import JsonValue

LEARNED_FILE = "learned.json"
FORM = 1
_MAX_BYTES = 4_000_000


@dataclass(frozen=True, slots=True)
class Learned:
    """What a model learned to speak of, and how far it was right on worlds that it had not seen."""

    vocabulary: Vocabulary
    calibration: Calibration = field(default_factory=Calibration)
    facts: Mapping[str, JsonValue] = field(default_factory=dict)  # how it was made, for people


def learned_to_json(learned: Learned) -> dict[str, JsonValue]:
    """As `read_learned` reads it."""
    known = learned.calibration
    return {
        "form": FORM,
        **learned.facts,
        "calibration": {
            "tools": [[tool, basis, *counts] for (tool, basis), counts in sorted(known.tools.items())],
            "edges": list(known.edges),
            "shares": list(known.shares),
        },
        "vocabulary": vocabulary_to_json(learned.vocabulary),
    }


def read_learned(folder: Path) -> Learned:
    """Read what lies beside a model's weights.

    Raises:
        UserError: it is not there, or not what the kit wrote; says what to do.
    """
    file = folder / LEARNED_FILE
    try:
        data = read_json(file.read_text("utf-8"), max_bytes=_MAX_BYTES)
    except OSError as error:
        raise UserError(
            f"{file}: cannot be read ({error.strerror}); an experience model's directory has this file "
            "beside its weights"
        ) from None
    except (NotSerializable, UnicodeDecodeError) as error:
        raise UserError(f"{file}: is no JSON ({error}); take the directory as it was written") from None
    if not isinstance(data, dict) or data.get("form") != FORM:
        form = data.get("form") if isinstance(data, dict) else None
        raise UserError(f"{file}: form {form!r} is not {FORM}, which this version reads; teach it anew")
    try:
        vocabulary = vocabulary_from_json(data["vocabulary"])
        calibration = _calibration(data["calibration"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{file}: is not as the kit writes it ({type(error).__name__}: {error}); teach it anew"
        ) from None
    rest = {name: value for name, value in data.items() if name not in ("form", "vocabulary", "calibration")}
    return Learned(vocabulary, calibration, rest)


def _calibration(record: Mapping[str, JsonValue]) -> Calibration:
    return Calibration(
        {
            (str(tool), str(basis)): (float(right), float(tried))
            for tool, basis, right, tried in record["tools"]
        },
        tuple(map(float, record["edges"])),
        tuple(map(float, record["shares"])),
    )
