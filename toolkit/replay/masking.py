"""Takes keys and passwords out of what is written down of a run: recordings, journal, events, errors.

Masked are the published forms of keys, passwords in URLs, what stands under a name that asks for a secret,
and the values of environment variables with such a name. Everywhere alike and by one constant, so that a
masked argument of a recording is still that argument in a dream. The agent itself is given what its tools
really said. A tripwire like `redaction`, no proof: what is encoded or in no known form stays.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dreamgym_kit.plain import JsonValue
from dreamgym_kit.replay.redaction import KEY_FORMS
from dreamgym_kit.settings.secrets import names_secret
from dreamgym_kit.vocabulary import Answer

MASK = "<masked>"
_SHORTEST = 8  # characters; no key of a known form is shorter
_SHORTEST_VALUE = 12  # of a variable's value: a shorter one may be a word that stands everywhere
# What every known form holds: looking for these first spares nearly every text the patterns.
_HINTS = (
    *("sk-", "sk_", "pk-", "pk_", "rk-", "rk_", "AKIA", "ASIA", "ghp_", "gho_", "ghu_", "ghs_", "ghr_"),
    *("github_pat_", "glpat-", "hf_", "xox", "AIza", "eyJ", "PRIVATE KEY"),
)
_IN_URL = re.compile(r"(://[^/\s:@]*:)[^/\s@]+(?=@)")
_BEARER = re.compile(r"(?i:\b(bearer)(\s+))[A-Za-z0-9._~+/=-]{12,}")
_FORM = re.compile("|".join(form for form in KEY_FORMS if "secret" not in form))
_NAME = re.compile(r"(^|[_-])(api[_-]?key|apikey|secret|password|passwd|credentials?|authorization)s?$", re.I)


class _Environment:
    """Values of variables whose names ask for a secret; looked up again whenever there are more of them."""

    def __init__(self) -> None:
        self._size = -1
        self._values: tuple[str, ...] = ()

    def values(self) -> tuple[str, ...]:
        if len(os.environ) != self._size:
            self._size = len(os.environ)
            found = {value for name, value in os.environ.items() if names_secret(name)}
            self._values = tuple(sorted((one for one in found if len(one) >= _SHORTEST_VALUE), key=len)[::-1])
        return self._values


_ENVIRONMENT = _Environment()


def masked_text(text: str) -> str:
    """The same text without keys and passwords."""
    if len(text) < _SHORTEST:
        return text
    for value in _ENVIRONMENT.values():
        if value in text:
            text = text.replace(value, MASK)
    if "://" in text:
        text = _IN_URL.sub(rf"\g<1>{MASK}", text)
    if "earer " in text or "EARER " in text:
        text = _BEARER.sub(rf"\g<1>\g<2>{MASK}", text)
    if any(hint in text for hint in _HINTS):
        text = _FORM.sub(MASK, text)
    return text


def masked(value: JsonValue) -> JsonValue:
    """The same JSON value without keys and passwords; the value itself where it holds none."""
    if isinstance(value, str):
        return masked_text(value)
    if isinstance(value, dict):
        return masked_arguments(value)
    if isinstance(value, (list, tuple)):
        return [masked(item) for item in value]
    return value


def masked_arguments(arguments: Mapping[str, JsonValue]) -> dict[str, Any]:
    """The same fields without keys and passwords; a text under a name that asks for one is one."""
    return {
        name: MASK if isinstance(value, str) and value and _NAME.search(name) else masked(value)
        for name, value in arguments.items()
    }


def masked_answer(answer: Answer) -> Answer:
    """The same answer without keys and passwords."""
    return replace(
        answer,
        content=masked(answer.content),
        artifact=masked(answer.artifact),
        error=None if answer.error is None else masked_text(answer.error),
        update=None if answer.update is None else masked_arguments(answer.update),
    )
