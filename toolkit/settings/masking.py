"""Takes secrets out of whatever is kept or shown: recordings, journals, events, reports, messages.

Known are the values of environment variables that hold secrets by their name or form, also URL-encoded,
base64 or JSON-escaped; any text that has the form of a published kind of key; who stands before an @ in a
URL; and what stands under a field whose name asks for a credential. Equal secrets get equal marks, so a
recorded call and the dreamt one that repeats it stay the same call. A short word in lower case is no secret
even where a variable says so: masking it would take words out of texts.
"""

import base64
import json
import os
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from urllib.parse import quote, quote_plus

from dreamgym_kit.plain import JsonValue
from dreamgym_kit.settings.secrets import KEY_FORMS, looks_secret

MASK = "***"

_LEAST = 6  # characters of a form that is looked for
_VARIABLE = re.compile(
    r"secret|token|passw(or)?d|passphrase|api_?key|credential|private_?key|access_?key|(^|_)auth($|_)",
    re.IGNORECASE,
)
_NAMES = (
    r"(?:passw(?:or)?d|passphrase|secret|api[_-]?key|private[_-]?key|credentials?|authorization"
    r"|(?:access|refresh|auth|bearer)[_-]?token)"
)
_FIELD = re.compile(rf"(?:^|[_-]){_NAMES}$", re.IGNORECASE)
# the same in a text: "client_secret": "...", password='...', and both with escaped quotes
_SPELLED_FIELD = re.compile(
    rf"""((?:^|[^A-Za-z0-9]){_NAMES}\\*["']?\s*[:=]\s*\\*["'])([^"'\\]+)""", re.IGNORECASE
)
_USER_INFO = re.compile(r"(://)([^/\s@\"'<>]+)@")
_PASSWORD = re.compile(r"://[^/\s:@]*:([^/\s@]+)@")
_DEEP = 100
_SHORTEST_KEY = 15  # characters of the shortest text that has a published form


def forms_of(secret: str) -> list[str]:
    """The spellings under which a secret may stand in a text, longest first."""
    raw = secret.encode("utf-8", "replace")
    # base64 of a secret inside a longer text is shifted by what stands before it
    coded = [base64.b64encode(b"\0" * shift + raw)[2 * shift : -4].decode() for shift in range(3)]
    safe = [base64.urlsafe_b64encode(b"\0" * shift + raw)[2 * shift : -4].decode() for shift in range(3)]
    forms = {secret, quote(secret, safe=""), quote(secret), quote_plus(secret), json.dumps(secret)[1:-1]}
    return sorted((one for one in {*forms, *coded, *safe} if len(one) >= _LEAST), key=len, reverse=True)


class Masker:
    """Masks known secrets and what has the form of one. Shows none of them in its own repr.

    Args:
        secrets: known ones.
    """

    __slots__ = ("_known", "_shortest")

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        forms = {form for secret in secrets for form in forms_of(secret)}
        ordered = sorted(forms, key=lambda form: (-len(form), form))
        self._shortest = min(map(len, ordered), default=0)
        self._known = re.compile("|".join(map(re.escape, ordered))) if ordered else None

    def text(self, text: str) -> str:
        """A text without them."""
        length = len(text)
        if self._known is not None and length >= self._shortest:
            text = self._known.sub(MASK, text)
        if length >= _SHORTEST_KEY:
            text = KEY_FORMS.sub(MASK, text)
            if '"' in text or "'" in text:
                text = _SPELLED_FIELD.sub(rf"\1{MASK}", text)
        return _USER_INFO.sub(rf"\1{MASK}@", text) if "://" in text and "@" in text else text

    def plain(self, value: JsonValue) -> JsonValue:
        """Plain data without them; the very same object where there are none."""
        return self._plain(value, _DEEP)

    def _plain(self, value: JsonValue, depth: int) -> JsonValue:
        if isinstance(value, str):
            return self.text(value)
        if depth == 0 or not value or not isinstance(value, (dict, list, tuple, Mapping)):
            return value
        if isinstance(value, (list, tuple)):
            items = [self._plain(item, depth - 1) for item in value]
            same = all(new is old for new, old in zip(items, value, strict=True))
            return value if same else type(value)(items)
        masked = {
            self.text(name) if isinstance(name, str) else name: self._field(name, item, depth)
            for name, item in value.items()
        }
        same = len(masked) == len(value) and all(
            new is old and masked.get(name) is old
            for (name, old), new in zip(value.items(), masked.values(), strict=True)
        )
        return value if same else masked

    def _field(self, name: object, value: JsonValue, depth: int) -> JsonValue:
        if isinstance(value, str) and value and isinstance(name, str) and _asks_for_a_secret(name):
            return MASK
        return self._plain(value, depth - 1)

    def __repr__(self) -> str:
        return f"Masker({MASK})"

    def __reduce__(self) -> str:
        raise TypeError("secrets are not pickled")


def process_masker(*variables: str | None) -> Masker:
    """The masker of this process's environment as it is now; `variables` hold secrets whatever their name."""
    named = tuple(name for name in variables if name)
    return _masker_of(frozenset(os.environ.items()), named)


def secrets_in(environ: Mapping[str, str], variables: Iterable[str] = ()) -> list[str]:
    """The secrets that environment variables hold."""
    named, found = set(variables), []
    for name, value in environ.items():
        text = value.strip()
        if name in named or (_VARIABLE.search(name) and _is_telling(text)) or looks_secret(text):
            found.append(text)
        found += [password[1] for password in _PASSWORD.finditer(text) if _is_telling(password[1])]
    return [text for text in found if len(text) >= _LEAST]


@lru_cache(maxsize=4096)
def _asks_for_a_secret(name: str) -> bool:
    return _FIELD.search(name) is not None


@lru_cache(maxsize=8)
def _masker_of(environ: frozenset[tuple[str, str]], variables: tuple[str, ...]) -> Masker:
    return Masker(secrets_in(dict(environ), variables))


def _is_telling(text: str) -> bool:
    """Whether a text is long or odd enough that masking it takes no words out of other texts."""
    if len(text) < 8 or " " in text.strip() or text.startswith(("/", "~", "./")):
        return False
    return len(text) >= 16 or not (text.isalpha() and (text.islower() or text.isupper() or text.istitle()))
