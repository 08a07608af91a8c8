"""Takes secrets out of whatever is kept or shown of a run: recordings, journal, events, reports, messages.

Known are the values of environment variables that hold secrets by their name or form, also URL-encoded,
base64 or JSON-escaped; the published forms of keys; passwords and tokens before an @ in a URL; and what
stands under a field whose name asks for a credential. Everywhere alike and by one constant, so that a masked
argument of a recording is still that argument in a dream. A real tool is given what the agent really said,
the agent what its tools really said. A tripwire like `redaction`, no proof: a short word in lower case is no
secret even where a variable says so, since masking it would take words out of texts.
"""

import base64
import json
import os
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeVar, cast
from urllib.parse import quote, quote_plus

from dreamgym_kit.codec import Codec
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.settings import secrets
from dreamgym_kit.settings.secrets import KEY_FORMS, LOOSE_KEY, looks_secret
from dreamgym_kit.types import Answer, Nearest

MASK = "<masked>"
Value = TypeVar("Value")

_LEAST = 6  # characters of a form that is looked for
_SHORTEST_KEY = 15  # characters of the shortest text that has a published form
_DEEP = 100
_PERCENT = re.compile("%[0-9A-F]{2}")
_BARE = frozenset({int, float, bool, type(None)})  # nothing to look at
# What every known form holds: looking for these first spares nearly every text the patterns.
_HINTS = (
    *("sk-", "sk_", "pk-", "pk_", "rk-", "rk_", "AKIA", "ASIA", "ghp_", "gho_", "ghu_", "ghs_", "ghr_"),
    *("github_pat_", "glpat-", "hf_", "xox", "lsv", "AIza", "eyJ", "PRIVATE KEY"),
)
_FORM = re.compile("|".join(form for form in (*KEY_FORMS, LOOSE_KEY) if "secret" not in form))
_BEARER = re.compile(r"(?i:\b(bearer)(\s+))[A-Za-z0-9._~+/=-]{12,}")
_PASSWORD = re.compile(r"(://[^/\s:@]*:)([^/\s@]+)(?=@)")
_USER = re.compile(r"(://)[^/\s:@\"'<>]+(?=@)")
_VARIABLE = re.compile(
    r"secret|token|passw(or)?d|passphrase|api_?key|credential|private_?key|access_?key|(^|_)auth($|_)",
    re.IGNORECASE,
)
_NAMES = (
    r"(?:passw(?:or)?d|passphrase|secret|api[_-]?key|private[_-]?key|credentials?|authorization"
    r"|(?:access|refresh|auth|bearer)[_-]?token)s?"
)
_FIELD = re.compile(rf"(?:^|[_-]){_NAMES}$", re.IGNORECASE)
# the same in a text: "client_secret": "...", password='...', and both with escaped quotes
_SPELLED_FIELD = re.compile(
    rf"""((?:^|[^A-Za-z0-9]){_NAMES}\\*["']?\s*[:=]\s*\\*["'])([^"'\\]+)""", re.IGNORECASE
)


def forms_of(secret: str) -> list[str]:
    """The spellings under which a secret may stand in a text, longest first."""
    raw = secret.encode("utf-8", "replace")
    # base64 of a secret inside a longer text is shifted by what stands before it
    coded = [base64.b64encode(b"\0" * shift + raw)[2 * shift : -4].decode() for shift in range(3)]
    safe = [base64.urlsafe_b64encode(b"\0" * shift + raw)[2 * shift : -4].decode() for shift in range(3)]
    urls = {quote(secret, safe=""), quote(secret), quote_plus(secret)}
    urls |= {_PERCENT.sub(lambda match: match[0].lower(), url) for url in urls}
    once = json.dumps(secret)
    forms = {secret, *urls, once[1:-1], json.dumps(once)[3:-3]}
    return sorted((form for form in {*forms, *coded, *safe} if len(form) >= _LEAST), key=len, reverse=True)


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
        """The same text without them."""
        length = len(text)
        if self._known is not None and length >= self._shortest:
            text = self._known.sub(MASK, text)
        if length < _SHORTEST_KEY:
            return text
        if "://" in text and "@" in text:
            text = _USER.sub(rf"\g<1>{MASK}", _PASSWORD.sub(rf"\g<1>{MASK}", text))
        if "earer " in text or "EARER " in text:
            text = _BEARER.sub(rf"\g<1>\g<2>{MASK}", text)
        for hint in _HINTS:
            if hint in text:
                text = _FORM.sub(MASK, text)
                break
        if '"' in text or "'" in text:
            text = _SPELLED_FIELD.sub(rf"\g<1>{MASK}", text)
        return text

    def plain(self, value: JsonValue) -> JsonValue:
        """The same plain data without them; the very same object where there are none.

        Nearly all data holds none: its texts are looked at together, and only where something is found in
        them is it made anew, text by text.
        """
        texts: list[str] = []
        level, named = [value], False
        for _ in range(_DEEP + 1):
            inner: list[JsonValue] = []
            for item in level:
                if isinstance(item, str):
                    texts.append(item)
                elif isinstance(item, (list, tuple)):
                    inner += item
                elif type(item) not in _BARE and isinstance(item, (dict, Mapping)):
                    for name in item:
                        if isinstance(name, str):
                            texts.append(name)
                            named = named or _asks_for_a_secret(name)
                    inner += item.values()
            if not inner:
                break
            level = inner
        together = "\0".join(texts)  # no pattern takes that for a part of a name or a word
        if not named and self.text(together) == together:
            return value
        made = self._plain(value, _DEEP)
        return value if made == value else made

    def _plain(self, value: JsonValue, depth: int) -> JsonValue:
        if isinstance(value, str):
            return self.text(value)
        if type(value) in _BARE or depth == 0:
            return value
        if isinstance(value, (list, tuple)):
            return [self._plain(item, depth - 1) for item in value]
        if isinstance(value, (dict, Mapping)):
            return dict(self._field(name, item, depth - 1) for name, item in value.items())
        return value

    def _field(self, name: object, value: JsonValue, depth: int) -> tuple[object, JsonValue]:
        if not isinstance(name, str):
            return name, self._plain(value, depth)
        secret = value and isinstance(value, str) and _asks_for_a_secret(name)
        return self.text(name), MASK if secret else self._plain(value, depth)

    def __repr__(self) -> str:
        return f"Masker({MASK})"

    def __reduce__(self) -> str:
        raise TypeError("secrets are not pickled")


def process_masker(*variables: str | None) -> Masker:
    """The masker of this process: of its environment, and of every key that it was told of or has read.

    It goes with the process: what a graph's import adds to the environment is masked from then on.

    Args:
        variables: hold secrets whatever their name.
    """
    _PROCESS.variables.update(filter(None, variables))
    return _PROCESS


def secrets_in(environ: Mapping[str, str], variables: Iterable[str] = ()) -> list[str]:
    """The secrets that environment variables hold."""
    named, secrets = set(variables), []
    for name, value in environ.items():
        text = value.strip()
        if name in named or (_VARIABLE.search(name) and _is_telling(text)) or looks_secret(text):
            secrets.append(text)
        secrets += [password[2] for password in _PASSWORD.finditer(text) if _is_telling(password[2])]
    return [text for text in secrets if len(text) >= _LEAST]


def masked(value: Value) -> Value:
    """The same text or JSON value without the secrets of this process; the value itself where it holds none.

    A text under a name that asks for a secret is one.
    """
    return cast("Value", _PROCESS.text(value) if isinstance(value, str) else _PROCESS.plain(value))


def masked_answer(answer: Answer, masker: Masker | None = None) -> Answer:
    """The same answer without secrets; the very same where it holds none."""
    by = masker or _PROCESS
    changed: dict[str, Any] = {}
    for name in _PARTS:
        part = getattr(answer, name)
        if part and (made := by.plain(part)) is not part:
            changed[name] = tuple(made) if name == "changes" else made
    if answer.nearest is not None:  # it may hold what nobody knew to be a secret when it was recorded
        changed["nearest"] = _NEAREST.read(by.plain(_NEAREST.write(answer.nearest)), "nearest")
    return replace(answer, **changed) if changed else answer


_PARTS = ("content", "artifact", "error", "update", "why", "changes")
_NEAREST = Codec(Nearest)


@lru_cache(maxsize=4096)
def _asks_for_a_secret(name: str) -> bool:
    return _FIELD.search(name) is not None


class _ProcessMasker(Masker):
    """What is known may become more: looked at once a second, and when variables or keys come."""

    __slots__ = ("_masker", "_secrets", "_sizes", "_until", "variables")

    def __init__(self) -> None:
        self.variables: set[str] = set()
        self._masker, self._secrets = Masker(), frozenset[str]()
        self._sizes, self._until = (-1, -1, -1), 0.0

    def text(self, text: str) -> str:
        return self._current().text(text)

    def plain(self, value: JsonValue) -> JsonValue:
        return self._current().plain(value)

    def _current(self) -> Masker:
        now = time.monotonic()
        sizes = (len(os.environ), len(self.variables), len(secrets.HELD) + len(secrets.NAMED))
        if sizes != self._sizes or now > self._until:
            environ = dict(os.environ)  # another thread may change it meanwhile
            known = frozenset([*secrets_in(environ, self.variables | secrets.NAMED), *secrets.HELD])
            if known != self._secrets:
                self._secrets, self._masker = known, Masker(known)
            self._sizes, self._until = sizes, now + 1.0
        return self._masker


_PROCESS = _ProcessMasker()


def _is_telling(text: str) -> bool:
    """Whether a text is long or odd enough that masking it takes no words out of other texts."""
    if len(text) < 8 or " " in text.strip() or text.startswith(("/", "~", "./")):
        return False
    return len(text) >= 16 or not (text.isalpha() and (text.islower() or text.isupper() or text.istitle()))
