"""One spelling for equal JSON values: the key of ledger, buffer and memo.

Decides: object keys are strings (others are refused: `{1: x}` and `{"1": x}` must not meet), numbers
that are equal are spelled alike (1.0 is 1, -0.0 is 0), text is ASCII with escapes (lone surrogates
survive every file and database), NaN and infinity are refused. Arbitrary Python values are first
made plain by `serialization.to_json`.
"""

import hashlib
import json
import uuid

from dreamgym_kit.errors import NotSerializable

_NAMESPACE = uuid.UUID("6d0b5a3e-2f0c-5c1e-9f27-8a4f8f3c9d11")


_spell = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode
_TEXT = frozenset({str})
_AS_IT_IS = frozenset({str, int, bool, type(None)})  # these very types, not what derives from them


def canonical(value: object) -> str:
    """Spell a JSON value the same way whatever its key order.

    `json.loads(canonical(x)) == x` for every accepted x.

    Raises:
        NotSerializable: NaN, infinity, a key that is no string, a foreign type, nesting too deep, or an
            integer of more than 4,300 digits.
    """
    try:
        return _spell(_one_spelling(value))
    except RecursionError:
        raise NotSerializable("nested too deep for a canonical form") from None
    except NotSerializable:
        raise
    except ValueError as error:
        raise NotSerializable(f"no canonical form: {error}") from error


def digest(value: object) -> str:
    """Hex SHA-256 of the canonical spelling; 64 characters."""
    return hashlib.sha256(canonical(value).encode("ascii")).hexdigest()


def content_id(value: object) -> str:
    """Name a value by its content (uuid5): equal values get equal ids, on every machine."""
    return str(uuid.uuid5(_NAMESPACE, canonical(value)))


def _one_spelling(value: object) -> object:
    if type(value) in _AS_IT_IS:
        return value
    if isinstance(value, dict):  # containers first: nearly all that comes here
        if not _TEXT.issuperset(map(type, value)):
            for key in value:
                if not isinstance(key, str):
                    raise NotSerializable(f"object key {key!r} is not a string")
        return {key: item if type(item) in _AS_IT_IS else _one_spelling(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [item if type(item) in _AS_IT_IS else _one_spelling(item) for item in value]
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    raise NotSerializable(f"{type(value).__name__} is not a JSON value")
