"""Takes secrets out of whatever is kept or shown of a run: recordings, journal, events, reports, messages.

Known are the values of environment variables that hold secrets by their name or form, also URL-encoded,
base64 or JSON-escaped; the published forms of keys and the rules of gitleaks (`secret_rules.json`); passwords
and tokens before an @ in a URL; what stands under a name that asks for a credential; patterns of settings.

A mark keeps identity: where the masker has a salt, equal secrets have equal marks, so that a masked argument
of a recording is still that argument in a dream, and another secret is another argument. Without a salt the
mark is `<masked>`, "some secret". A real tool is given what the agent really said, the agent what its tools
really said.
A tripwire like `redaction`, no proof: a short word in lower case is no secret even where a variable says so,
since masking it would take words out of texts.
"""

import base64
import hashlib
import hmac
import json
import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import quote, quote_plus

from dreamgym_kit.codec import Codec
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.settings import secrets
from dreamgym_kit.settings.secrets import (
    KEY_FORMS,
    LOOSE_KEY,
    MARKED,
    MASK,
    entropy,
    looks_secret,
    may_name_secret,
    named_secret,
    names_secret,
)
from dreamgym_kit.types import Answer, Nearest

Value = TypeVar("Value")

_LEAST = 6  # characters of a form that is looked for
_SHORTEST_KEY = 15  # characters of the shortest text that has a published form
_DEEP = 100
_PERCENT = re.compile("%[0-9A-F]{2}")
_BARE = frozenset({int, float, bool, type(None)})  # nothing to look at
_FORMS = {hint: form for hint, form in KEY_FORMS.items() if "?P<secret>" not in form}
_HINTS = re.compile("|".join(_FORMS))
_FORM = re.compile("|".join((*_FORMS.values(), LOOSE_KEY)))  # whose hint is that of the first form
_BEARER = re.compile(r"(?i:\b(bearer)(\s+))([A-Za-z0-9._~+/=-]{12,})")
_PASSWORD = re.compile(r"(://[^/\s:@]*:)([^/\s@]+)(?=@)")
_USER = re.compile(r"(://)([^/\s:@\"'<>]+)(?=@)")
_VARIABLE = re.compile(
    r"secret|token|passw(or)?d|passphrase|api_?key|credential|private_?key|access_?key|(^|_)auth($|_)",
    re.IGNORECASE,
)
# What every name of a credential holds, in lower case: only texts with one of them are looked at for names.
_STEMS = re.findall(
    r"\w+",
    """
    pass pwd cred secret token authorization jwt bearer cookie dsn pin otp cvv cvc code card webhook
    connection key pat sig sid session auth
    """,
)
# of what stands between a name and its value
_SIGNS = (
    "=",
    ":",
    "</",
    " -",
    " is",
    "->",
    "](",
    "pass",
    ' "',
)
_STEM = re.compile("|".join(_STEMS))
# From a stem on, the rest of the name and what stands between it and its value: "client_secret": "...",
# --db-password ..., ?sig=..., "password is"
_REST = re.compile(r"[\w.-]*+")  # of a name, from a stem in it on
_BETWEEN = re.compile(
    r"""(\\*+["'`]?\]?(?:\s{0,9}(?::{1,3}=|[=-]>|[!=?]?==?|:)|\s{1,3}is:?(?=\s))?\s{0,20})(?=[^\s:=>])"""
)
_NAME_BEFORE = re.compile(r"(?:-{0,2}[A-Za-z_$][\w.-]*+)$")
_LONGEST_NAME = 80
_QUOTED = re.compile(
    r"""\\++(["'])((?:(?!\\+\1)[^\n])+)|"((?:[^"\\\n]|\\.)+)|'((?:[^'\\\n]|\\.)+)|`([^`\n]+)""", re.DOTALL
)
_BARE_VALUE = re.compile(r"""[^\s"'`&;,<>(){}\[\]$%\\][^\s"'`&;,<>(){}\[\]\\]*+""")
_CODE = re.compile(r"""[A-Za-z_][\w.]*+(?:\[(["'])[\w.-]+\1\]|\((?:(["'])[\w.-]+\2)?\))(?!\w)""")
"""Says where a secret is, and is none: `os.environ["KEY"]`, `get_key()`."""
_BARE_WORD = re.compile(r"[\w.~+-]++")
# <add key="Password" value="..."/>, {"name": "DB_PASSWORD", "value": "..."}
_PAIR = re.compile(
    r"""(\b(?:name|key)\\*["']?\s?[:=]\s?\\*["']([\w.-]{1,80})\\*["'],?\s{1,9}\\*["']?value\\*["']?\s?[:=]\s?\\*["'])"""
    r"""([^"'\\\s][^"'\\\n]*)"""
)
_HEADER = re.compile(
    r"""((?:^|[^\w-])(?:proxy-)?(?:authorization|(?:set-)?cookie)["']?\s{0,3}:\s{0,3}["']?(?:(?:basic|token|digest|bearer|ssws)\s+)?)"""
    r"""([^\s"';<]+)""",
    re.IGNORECASE,
)
_ELEMENT = re.compile(r"(<([A-Za-z][\w.-]{0,60})>\s{0,9})([^<\s][^<]{0,200}?)(?=\s{0,9}</)")
_SHELL = re.compile(
    r"((?:\b(?:mysql\w*|mariadb\w*|sshpass)\b[^\n]{0,200}?\s-p|\s-u\s[^\n]{1,80}?\s-p\s))([^\s'\"<%$]{4,})"
)
_WORDS = frozenset(
    re.findall(
        r"\w+",
        """
    none null placeholder nil true false undefined str string text bytes int integer number object any
    optional required basic bearer digest token is not and or the a an to of for in was has must should
    """,
    )
)
_RULES = Path(__file__).with_name("secret_rules.json")
_LONG = (
    8192  # characters that a rule looks at in one piece; the pieces overlap, so that no rule takes a square
)
_OVERLAP = 1024
# Forms and rules need a long word; rules that name a service, one behind a sign of assignment.
_CANDIDATE = re.compile(r"(?<![\w+/=~.-])[\w+/=~.$-]{14,}+")
_ASSIGNED = re.compile(r"""[=:>|,][`'"\s=]{0,5}[\w"'({<$/+.@:-]{8}|\bcurl\b""")


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


@dataclass(frozen=True, slots=True)
class _Rule:
    """One rule of the scanner."""

    keywords: tuple[str, ...]
    pattern: str
    group: int
    bits: float
    allowed: Sequence[Mapping[str, Any]]

    def secrets(self, text: str) -> list[tuple[int, int]]:
        """Where its secrets are in a text."""
        places = []
        for match in _compiled(self.pattern).finditer(text):
            group = self.group or next((n for n, part in enumerate(match.groups(), 1) if part), 0)
            secret = match[group]
            if secret and entropy(secret) > self.bits and not self._allows(match, secret, text):
                places.append(match.span(group))
        return places

    def _allows(self, match: re.Match[str], secret: str, text: str) -> bool:
        for each in self.allowed:
            target = secret
            if each["target"] == "match":
                target = match[0]
            elif each["target"] == "line":
                end = text.find("\n", match.end())
                target = text[text.rfind("\n", 0, match.start()) + 1 : end if end >= 0 else None]
            lower = secret.lower()
            tests = [any(_compiled(pattern).search(target) for pattern in each["patterns"])]
            tests.append(any(word in lower for word in each["stopwords"]))
            if all(tests) if each["all"] else any(tests):
                return True
        return False


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.ASCII)


def rules_digest() -> str:
    """Names today's rules: another one, and buffers may hold what was no secret before."""
    own = [*KEY_FORMS.values(), *secrets.OWN[-1].patterns, *sorted(secrets.OWN[-1].fields)]
    return hashlib.sha256(_RULES.read_bytes() + json.dumps(own).encode()).hexdigest()[:16]


@lru_cache(maxsize=1)
def _rules() -> tuple[dict[str, list[_Rule]], dict[str, list[_Rule]]]:
    """By keyword: the rules that go by the secret's own form, and those that go by a name before it."""
    by_form: dict[str, list[_Rule]] = {}
    by_name: dict[str, list[_Rule]] = {}
    for each in json.loads(_RULES.read_bytes())["rules"]:
        rule = _Rule(
            tuple(each["keywords"]), each["pattern"], each["group"], each["entropy"], each.get("allowed", ())
        )
        for word in rule.keywords:
            named = "(?:=|>|:{1,3}=|" in rule.pattern or (word.isalpha() and len(word) >= 5) or word == "curl"
            (by_name if named else by_form).setdefault(word, []).append(rule)
    return by_form, by_name


def _by_rules(text: str, words: str) -> list[tuple[int, int]]:
    """Where secrets by the scanner's rules are in a text, in order, none within another.

    `words`: its long words, in lower case.
    """
    by_form, by_name = _rules()
    rules = {id(rule): rule for word in by_form if word in words for rule in by_form[word]}
    if _ASSIGNED.search(text):
        lower = text.lower()
        rules |= {id(rule): rule for word in by_name if word in lower for rule in by_name[word]}
    if not rules:
        return []
    places: set[tuple[int, int]] = set()
    for start in range(0, max(1, len(text) - _OVERLAP), _LONG - _OVERLAP):
        piece = text if len(text) <= _LONG else text[start : start + _LONG]
        lower = piece.lower()
        for rule in rules.values():
            if any(map(lower.__contains__, rule.keywords)):
                places.update((start + begin, start + end) for begin, end in rule.secrets(piece))
    chosen: list[tuple[int, int]] = []
    for begin, end in sorted(places, key=lambda place: (place[0], -place[1])):
        if not chosen or begin >= chosen[-1][1]:
            chosen.append((begin, end))
    return chosen


def _lower(text: str) -> str:
    """In lower case, each character in its place."""
    lower = text.lower()
    if len(lower) == len(text):
        return lower
    return "".join(letter.lower() if letter.isascii() else letter for letter in text)


class Masker:
    """Masks known secrets and what has the form of one. Shows none of them in its own repr.

    Args:
        secrets: known ones.
        salt: what marks are made with, of the buffer that they are kept in; None: all marks are `<masked>`.
        patterns: more forms of secrets; a group, where there is one, is the secret.
        fields: more names of secrets, as they are written.
    """

    __slots__ = ("_fields", "_patterns", "_salt", "_secret_pattern", "_secrets", "_shortest", "_stem")

    def __init__(
        self,
        secrets: Iterable[str] = (),
        salt: bytes | None = None,
        patterns: Iterable[str] = (),
        fields: Iterable[str] = (),
    ) -> None:
        self._secrets = {form: secret for secret in secrets for form in forms_of(secret)}
        ordered = sorted(self._secrets, key=lambda form: (-len(form), form))
        self._shortest = min(map(len, ordered), default=0)
        self._secret_pattern = re.compile("|".join(map(re.escape, ordered))) if ordered else None
        self._salt, self._fields = salt, frozenset(fields)
        self._stem = (
            re.compile("|".join((*map(re.escape, sorted(self._fields)), *_STEMS))) if fields else _STEM
        )
        self._patterns = tuple(map(re.compile, patterns))

    def current(self) -> "Masker":
        """The masker of what is known now; the same object until more is known."""
        return self

    def mark(self, secret: str) -> str:
        """What stands for a secret."""
        if self._salt is None:
            return MASK
        return f"<masked:{hmac.digest(self._salt, secret.encode('utf-8', 'replace'), 'sha256').hex()[:12]}>"

    def text(self, text: str) -> str:
        """The same text without them."""
        length = len(text)
        if self._secret_pattern is not None and length >= self._shortest:
            text = self._secret_pattern.sub(lambda match: self.mark(self._secrets[match[0]]), text)
        for pattern in self._patterns:
            text = pattern.sub(self._of_pattern, text)
        if length < 8:
            return text
        if " -p" in text:
            text = _SHELL.sub(self._second, text)
        for sign in _SIGNS:
            if sign in text:
                lower = text.lower()
                if self._fields or any(map(lower.__contains__, _STEMS)):
                    text = self._named(text, lower)
                break
        return text if length < _SHORTEST_KEY else self._long(text)

    def _long(self, text: str) -> str:
        """A text without what has the form of a key."""
        if "://" in text and "@" in text:
            text = _USER.sub(self._second, _PASSWORD.sub(self._second, text))
        if "earer " in text or "EARER " in text:
            text = _BEARER.sub(lambda match: f"{match[1]}{match[2]}{self.mark(match[3])}", text)
        words = " ".join(_CANDIDATE.findall(text))
        if not words and "PRIVATE KEY" not in text and "curl" not in text:
            return text
        if _HINTS.search(words) is not None or "PRIVATE KEY" in text:
            text = _FORM.sub(lambda match: self.mark(match[0]), text)
        for begin, end in reversed(_by_rules(text, words.lower())):
            if "<masked" not in text[begin:end]:
                text = f"{text[:begin]}{self.mark(text[begin:end])}{text[end:]}"
        return text

    def _named(self, text: str, lower: str) -> str:
        """A text without what stands in it under the name of a credential."""
        if "authorization" in lower or "cookie" in lower:
            text = _HEADER.sub(self._header, text)
        if "</" in text:
            text = _ELEMENT.sub(self._element, text)
        if "value" in lower:
            text = _PAIR.sub(self._element, text)
        made, done, looked = [], 0, 0
        for stem in self._stem.finditer(_lower(text)):
            if stem.start() < looked:
                continue
            looked = _REST.match(text, stem.end()).end()  # type: ignore[union-attr]  # it matches anything
            if (match := _BETWEEN.match(text, looked)) is None:
                continue
            before = _NAME_BEFORE.search(text, max(done, stem.start() - _LONGEST_NAME), looked)
            name = before[0] if before is not None else ""
            if (
                not (may_name_secret(name) or name in self._fields)
                or (value := self._value(text, name, match)) is None
            ):
                continue
            made += [text[done : value[0]], self.mark(text[value[0] : value[1]])]
            done = looked = value[1]
        return "".join(made) + text[done:] if made else text

    def _value(self, text: str, name: str, match: re.Match[str]) -> tuple[int, int] | None:
        """Return the span of the secret behind a name; None if there is none."""
        between = match[1]
        sign = between.strip(" \t\r\n\"'`\\]")
        quoted = _QUOTED.match(text, match.end()) if sign or between[-1:].isspace() else None
        strong = names_secret(name) or name in self._fields
        bare = (
            None if quoted is not None else (_BARE_VALUE if strong else _BARE_WORD).match(text, match.end())
        )
        if quoted is None and (bare is None or not self._may_be_bare(name, between, sign, bare[0])):
            return None
        if bare is not None and _CODE.match(text, match.end()):
            return None
        value_match = quoted or bare
        group = value_match.lastindex or 0 if value_match is not None else 0
        secret = value_match[group] if value_match is not None else ""
        if secret.startswith("<masked") or secret.lower() in _WORDS or not self._asks(name, secret):
            return None
        return value_match.span(group) if value_match is not None else None

    @staticmethod
    def _may_be_bare(name: str, between: str, sign: str, value: str) -> bool:
        if value == name.lstrip("-$"):
            return False
        if "=" in sign or sign == "->" or (sign == ":" and not between[-1].isspace()):
            return True
        if sign in (":", "is") or name.startswith("-"):
            return _is_mixed(value)
        return between.isspace() and name.lower() == "password" and _is_mixed(value)

    def _second(self, match: re.Match[str]) -> str:
        return match[0] if match[2].startswith("<masked") else f"{match[1]}{self.mark(match[2])}"

    def _header(self, match: re.Match[str]) -> str:
        is_secret = match[1].rstrip()[-1] not in ":\"'" or "=" in match[2] or _is_mixed(match[2])
        return self._second(match) if is_secret and match[2].lower() not in _WORDS else match[0]

    def _element(self, match: re.Match[str]) -> str:
        asks = self._asks(match[2], match[3]) and not match[3].startswith("<masked")
        return f"{match[1]}{self.mark(match[3])}" if asks else match[0]

    def _asks(self, name: str, secret: str) -> bool:
        return named_secret(name, secret) or name in self._fields

    def _of_pattern(self, match: re.Match[str]) -> str:
        group = next((number for number, part in enumerate(match.groups(), 1) if part), 0)
        begin, end = (place - match.start() for place in match.span(group))
        whole = match[0]
        return whole if "<masked" in whole else f"{whole[:begin]}{self.mark(match[group])}{whole[end:]}"

    def plain(self, value: JsonValue) -> JsonValue:
        """The same plain data without them; the very same object where there are none.

        Nearly all data holds none, so it is made anew only where something is found in its texts: first in
        all at once, each on lines of its own, as the rules end a secret there. A user's pattern may not, and
        looks at each by itself.
        """
        texts: list[str] = []
        level, named, fields = [value], False, self._fields
        for _ in range(_DEEP + 1):
            inner: list[JsonValue] = []
            for item in level:
                if isinstance(item, str):
                    texts.append(item)
                elif isinstance(item, (list, tuple)):
                    inner += item
                elif type(item) not in _BARE and isinstance(item, (dict, Mapping)):
                    names = [*map(str, item)]
                    texts += names
                    if "value" in item:
                        names.append(str(item.get("name", item.get("key"))))
                    named = named or any(map(may_name_secret, names)) or not fields.isdisjoint(names)
                    inner += item.values()
            if not inner:
                break
            level = inner
        at_once = "\n\0\n".join(texts)
        none = not named and not self._patterns and self.text(at_once) == at_once
        if none or (not named and all(self.text(text) == text for text in texts)):
            return value
        made = self._plain(value, _DEEP)
        return value if made == value else made

    def _plain(self, value: JsonValue, depth: int, *, secret: bool = False) -> JsonValue:
        if isinstance(value, str):
            return self._whole(value) if secret and value else self.text(value)
        if type(value) in _BARE or depth == 0:
            return value
        if isinstance(value, (list, tuple)):
            return [self._plain(item, depth - 1, secret=secret) for item in value]
        if isinstance(value, (dict, Mapping)):
            made = dict(self._field(name, item, depth - 1, secret=secret) for name, item in value.items())
            of = value.get("name", value.get("key"))  # {"name": "DB_PASSWORD", "value": "..."}
            given = made.get("value")
            if isinstance(of, str) and isinstance(given, str) and given and self._asks(of, given):
                made["value"] = self._whole(given)
            return made
        return value

    def _field(self, name: object, value: JsonValue, depth: int, *, secret: bool) -> tuple[object, JsonValue]:
        if not isinstance(name, str):
            return name, self._plain(value, depth, secret=secret)
        if isinstance(value, str):
            secret = secret or self._asks(name, value)
        elif not secret and type(value) not in _BARE:
            lists = isinstance(value, (list, tuple))
            named = names_secret(name) or name in self._fields
            secret = named and (lists or _CONTAINER.search(name) is not None)
            if named and not lists:
                value = {part: self._wrapped(name, part, item) for part, item in value.items()}
        return self.text(name), self._plain(value, depth, secret=secret)

    def _wrapped(self, name: str, part: object, value: JsonValue) -> JsonValue:
        """A part of an object under the name of a secret: the secret itself, or a fact about it."""
        given = isinstance(value, str) and str(part).lower() in _WRAPPING and self._asks(name, value)
        return self._whole(value) if given else value

    def _whole(self, value: str) -> str:
        """Return the mark of a secret text; a header's scheme stays before it."""
        masked = self.text(value)
        return masked if MARKED.fullmatch(masked) else self.mark(value)

    def __repr__(self) -> str:
        return f"Masker({MASK})"

    def __reduce__(self) -> str:
        raise TypeError("secrets are not pickled")


def process_masker(*variables: str | None, salt: bytes | None = None) -> Masker:
    """The masker of this process: of its environment, and of every key that it was told of or has read.

    It goes with the process: what a graph's import adds to the environment is masked from then on.

    Args:
        variables: hold secrets whatever their name.
        salt: of the buffer that the marks are kept in; None: marks keep no identity.
    """
    _SECRETS_OF_PROCESS.variables.update(filter(None, variables))
    return _PROCESS if salt is None else _of_salt(salt)


def secrets_in(environ: Mapping[str, str], variables: Iterable[str] = ()) -> list[str]:
    """The secrets that environment variables hold."""
    secret = set(secret_variables(environ, variables))
    values = [value.strip() for name, value in environ.items() if name in secret]
    values += [
        password[2]
        for value in environ.values()
        for password in _PASSWORD.finditer(value)
        if _is_telling(password[2])
    ]
    return [text for text in values if len(text) >= _LEAST]


def secret_variables(environ: Mapping[str, str], variables: Iterable[str] = ()) -> list[str]:
    """Return the environment variables whose values are secrets: by name, by form, or in `variables`."""
    named, secret_names = set(variables), []
    for name, value in environ.items():
        text = value.strip()
        by_name = _VARIABLE.search(name) or named_secret(name, text)
        if name in named or (by_name and _is_telling(text)) or looks_secret(text):
            secret_names.append(name)
    return secret_names


def masked(value: Value) -> Value:
    """The same text or JSON value without the secrets of this process; the value itself where it holds none.

    A text under a name that asks for a secret is one.
    """
    return cast("Value", _PROCESS.text(value) if isinstance(value, str) else _PROCESS.plain(value))


def masked_answer(answer: Answer, masker: Masker | None = None) -> Answer:
    """The same answer without secrets; the very same where it holds none."""
    by = (masker or _PROCESS).current()
    changed: dict[str, Any] = {}
    for name in _PARTS:
        part = getattr(answer, name)
        if part and (made := by.plain(part)) is not part:
            changed[name] = tuple(made) if name == "changes" else made
    if answer.nearest is not None:  # it may hold what nobody knew to be a secret when it was recorded
        written = _NEAREST.write(answer.nearest)
        if (made := by.plain(written)) is not written:
            changed["nearest"] = _NEAREST.read(made, "nearest")
    return replace(answer, **changed) if changed else answer


_PARTS = ("content", "artifact", "error", "update", "why", "changes")
_NEAREST = Codec(Nearest)


_WRAPPING = frozenset(
    {"value", "values", "raw", "text", "#text", "plain", "plaintext", "cleartext", "data", "content",
     "current", "new", "old", "default", "$value", "_value"}
)  # fmt: skip
"""Keys of an object that stands for a single value."""
_CONTAINER = re.compile(r"(creds|credentials|secrets|passwords)$", re.IGNORECASE)
"""A name below which every text is a secret, and not only one that is told of in some form."""


def _is_mixed(text: str) -> bool:
    """Whether a bare word behind a colon is no word of a sentence."""
    return len(text) >= 8 and any(map(str.isdigit, text)) and any(map(str.isalpha, text))


class _ProcessSecrets:
    """The secrets of this process: looked at once a second, and when variables or keys come."""

    def __init__(self) -> None:
        self.variables: set[str] = set()
        self.until = 0.0
        self.values = frozenset[str]()
        self.sizes = (-1, -1, -1)

    def secrets(self) -> frozenset[str]:
        """Look for the secrets again; return the same object if nothing changed."""
        self.sizes = (len(os.environ), len(self.variables), len(secrets.HELD) + len(secrets.NAMED))
        environ = dict(os.environ)  # another thread may change it meanwhile
        current = frozenset([*secrets_in(environ, self.variables | secrets.NAMED), *secrets.HELD])
        if current != self.values:
            self.values = current
        self.until = time.monotonic() + 1.0
        return self.values


class _ProcessMasker(Masker):
    """What is known may become more."""

    __slots__ = ("_made", "_masker", "_own")

    def __init__(self, salt: bytes | None) -> None:
        super().__init__(salt=salt)
        self._made: object = None
        self._own: object = None
        self._masker = Masker(salt=salt)

    def text(self, text: str) -> str:
        return self.current().text(text)

    def plain(self, value: JsonValue) -> JsonValue:
        return self.current().plain(value)

    def current(self) -> Masker:
        """See `Masker.current`."""
        process, own = _SECRETS_OF_PROCESS, secrets.OWN[-1]
        sizes = (len(os.environ), len(process.variables), len(secrets.HELD) + len(secrets.NAMED))
        values = process.values
        if time.monotonic() > process.until or process.sizes != sizes:
            values = process.secrets()
        if values is not self._made or own is not self._own:
            self._masker = Masker(values, self._salt, own.patterns, own.fields)
            self._made, self._own = values, own
        return self._masker


_SECRETS_OF_PROCESS = _ProcessSecrets()
_PROCESS = _ProcessMasker(None)


@lru_cache(maxsize=64)
def _of_salt(salt: bytes) -> _ProcessMasker:
    return _ProcessMasker(salt)


def _is_telling(text: str) -> bool:
    """Whether a text is long or odd enough that masking it takes no words out of other texts."""
    if len(text) < 8 or " " in text.strip() or text.startswith(("/", "~", "./")):
        return False
    return len(text) >= 16 or not (text.isalpha() and (text.islower() or text.isupper() or text.istitle()))
