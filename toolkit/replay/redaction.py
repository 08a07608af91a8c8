"""Takes out what must not be stored, before anything is: patterns in any text, and fields by name.

The same value gets the same placeholder everywhere in one import (`<email-4f0c...>`), so that what was joined
by it stays joined; another file has other placeholders. Two rounds: `learn` hears every value, so that what
stands under a named field once is also found elsewhere; `value` replaces. A tripwire for what has a known
form, no proof: what is encoded (base64), in another spelling or in no pattern stays.
"""

import hashlib
import hmac
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from dreamgym_kit.bounded_json import read_json
from dreamgym_kit.errors import NotSerializable, UserError
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.settings.secrets import KEY_FORMS, LOOSE_KEY
from dreamgym_kit.types import Answer, Reply, Transition, history_digest

_INSIDE = 6  # JSON in text in JSON in text ...
_LEAST = 4  # characters of a field's value that is looked for in other texts too
_WORD = re.compile(r"\w+")


def _luhn(text: str) -> bool:
    digits = [int(mark) for mark in text if mark.isdigit()]
    doubled = [digit * 2 - 9 * (digit > 4) for digit in digits[-2::-2]]
    return (
        13 <= len(digits) <= 19
        and digits[0] in range(2, 7)
        and (sum(doubled) + sum(digits[-1::-2])) % 10 == 0
    )


@dataclass(frozen=True, slots=True)
class TextPattern:
    """What is looked for in texts. Where it has a group `secret`, only that is replaced."""

    name: str
    regex: re.Pattern[str]
    holds: Callable[[str], bool] | None = None  # a further condition


_KEYS = (
    *KEY_FORMS.values(),
    LOOSE_KEY,
    r"""(?i:(?:api[_-]?key|secret|passw(?:or)?d|token)["']?\s*[=:]\s*["']?)(?P<secret>[^\s"',;&{}\[\]<>]{6,})""",
)
# Begun where a name begins, and nothing of it is given back: else each letter of a long word would be tried.
_EMAIL = r"(?<![A-Za-z0-9._+-])[A-Za-z0-9._+-]++(?:@|%40)[A-Za-z0-9-]++(?:\.[A-Za-z0-9-]++)++"
PRESETS: Mapping[str, tuple[TextPattern, ...]] = {
    "email": (TextPattern("email", re.compile(_EMAIL)),),
    "key": tuple(TextPattern("key", re.compile(text)) for text in _KEYS),
    "card": (TextPattern("card", re.compile(r"(?<![\w.])\d(?:[ -]?\d){12,18}(?!\w)"), _luhn),),
}
_KEY_FIELDS = frozenset(
    {"api_key", "apikey", "secret", "client_secret", "password", "passwd", "authorization"}
) | {
    "access_token",
    "refresh_token",
    "private_key",
}


@dataclass(frozen=True, slots=True)
class RedactionRules:
    """What to take out."""

    patterns: tuple[TextPattern, ...] = ()
    fields: frozenset[str] = frozenset()  # lower case


def parse_rules(words: Sequence[str]) -> RedactionRules:
    """Read rules as a person writes them: `email`, `key`, `card`, `all`, `field:NAME`, `regex:PATTERN`.

    Raises:
        UserError: names the rule that is none of these.
    """
    patterns: list[TextPattern] = []
    fields: set[str] = set()
    for word in words:
        kind, colon, rest = word.partition(":")
        names = list(PRESETS) if word == "all" else [word] if word in PRESETS else []
        if names:
            patterns.extend(pattern for name in names for pattern in PRESETS[name])
            fields.update(_KEY_FIELDS if "key" in names else ())
        elif kind == "field" and rest.strip():
            fields.add(rest.strip().lower())
        elif kind == "regex" and colon:
            patterns.append(TextPattern("redacted", _compiled(rest)))
        else:
            presets = ", ".join((*PRESETS, "all"))
            raise UserError(f"redact: '{word}' is no rule; use {presets}, field:NAME or regex:PATTERN.")
    return RedactionRules(tuple(patterns), frozenset(fields))


def _compiled(text: str) -> re.Pattern[str]:
    try:
        pattern = re.compile(text)
    except re.error as error:
        raise UserError(f"redact: regex '{text}' cannot be used ({error}); nothing was imported") from None
    if pattern.match(""):
        raise UserError(f"redact: regex '{text}' fits the empty text, so it would be everywhere")
    return pattern


class Redactor:
    """Applies rules to the values of one import.

    Args:
        rules: what to take out.
        key: what makes this import's placeholders its own; the same key, the same placeholders.
    """

    def __init__(self, rules: RedactionRules, *, key: bytes) -> None:
        self._rules = rules
        self._key = key
        self._names: dict[str, str] = {}  # a value that stood under a named field -> the field
        self._words: dict[str, set[int]] = {}  # first word of such values -> how long they are
        self._quoted = _quoted(rules.fields)
        self.counts: Counter[str] = Counter()  # replacements by name

    def learn(self, value: JsonValue, *, field: str | None = None, inside: int = _INSIDE) -> None:
        """Learn a value, so that the value of a named field is also found in other places."""
        if not self._rules.fields:
            return
        if isinstance(value, dict):
            for key, item in value.items():
                self.learn(
                    item, field=key.lower() if key.lower() in self._rules.fields else field, inside=inside
                )
        elif isinstance(value, list):
            for item in value:
                self.learn(item, field=field, inside=inside)
        elif field is not None and value is not None and not isinstance(value, bool):
            self._know(str(value), field)
        elif isinstance(value, str) and inside:
            if (inner := _json_in(value)) is not None:
                self.learn(inner, field=field, inside=inside - 1)
            for match in self._quoted.finditer(value) if self._quoted else ():
                self._know(match["secret"], match["field"].lower())

    def value(self, value: JsonValue, *, field: str | None = None, inside: int = _INSIDE) -> JsonValue:
        """The same value without what the rules take out."""
        if isinstance(value, dict):
            return {
                self.text(key, inside=0): self.value(
                    item, field=key.lower() if key.lower() in self._rules.fields else field, inside=inside
                )
                for key, item in value.items()
            }
        if isinstance(value, list):
            return [self.value(item, field=field, inside=inside) for item in value]
        if value is None or isinstance(value, bool):
            return value
        if field is not None:
            return self._placeholder(field, str(value)) if str(value) else value
        if isinstance(value, str):
            return self.text(value, inside=inside)
        text = self.text(str(value), inside=0)  # a card number may be an integer
        return value if text == str(value) else text

    def text(self, text: str, *, inside: int = _INSIDE) -> str:
        """Return the text with all matches of the rules replaced; JSON in it stays JSON."""
        if text in self._names and len(text) >= _LEAST:
            return self._placeholder(self._names[text], text)
        if inside and (inner := _json_in(text)) is not None:
            changed = self.value(inner, inside=inside - 1)
            if changed != inner:
                return json.dumps(changed, ensure_ascii=False)
        pieces, at = [], 0
        for start, end, name in self._places(text):
            pieces += [text[at:start], self._placeholder(name, text[start:end])]
            at = end
        return "".join([*pieces, text[at:]])

    def answer(self, answer: Answer) -> Answer:
        """The same answer without what the rules take out."""
        return replace(
            answer,
            content=self.value(answer.content),
            artifact=self.value(answer.artifact),
            error=None if answer.error is None else self.text(answer.error),
            update=None if answer.update is None else self.value(dict(answer.update)),
            why=self.text(answer.why),
            nearest=None,  # a copy of another recording
        )

    def learn_answer(self, answer: Answer) -> None:
        """Hear an answer."""
        for part in (answer.content, answer.artifact, answer.error, answer.update):
            self.learn(dict(part) if isinstance(part, Mapping) else part)

    def _know(self, text: str, field: str) -> None:
        if text in self._names or not text:
            return
        self._names[text] = field
        first = _WORD.search(text)
        if len(text) >= _LEAST and first is not None and first.start() == 0:
            self._words.setdefault(first[0], set()).add(len(text))

    def _places(self, text: str) -> list[tuple[int, int, str]]:
        """What to replace, from left to right; what overlaps is taken out as one."""
        places: list[tuple[int, int, str]] = []
        for start, end, name in sorted(self._matches(text), key=lambda match: (match[0], -match[1])):
            if not places or start >= places[-1][1]:
                places.append((start, end, name))
            elif end > places[-1][1]:  # reaches further: taken out as one
                places[-1] = (places[-1][0], end, places[-1][2])
        return places

    def _matches(self, text: str) -> Iterator[tuple[int, int, str]]:
        for pattern in self._rules.patterns:
            group: str | int = "secret" if "secret" in pattern.regex.groupindex else 0
            for match in pattern.regex.finditer(text):
                if match[group] and (pattern.holds is None or pattern.holds(match[0])):
                    yield (*match.span(group), pattern.name)
        for match in self._quoted.finditer(text) if self._quoted else ():
            yield (*match.span("secret"), match["field"].lower())
        for word in _WORD.finditer(text) if self._words else ():
            for length in self._words.get(word[0], ()):
                end = word.start() + length
                word_text = text[word.start() : end]
                if word_text in self._names and not (
                    text[end : end + 1].isalnum() and word_text[-1].isalnum()
                ):
                    yield word.start(), end, self._names[word_text]

    def _placeholder(self, name: str, text: str) -> str:
        name = self._names.get(text, name)
        self.counts[name] += 1
        mark = hmac.new(self._key, text.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()[:10]
        return f"<{name}-{mark}>"


def redact_episode(transitions: Sequence[Transition], redactor: Redactor) -> list[Transition]:
    """Redact the transitions of one episode that were recorded by the kit, in their order.

    Arguments that change give calls another key, so the state that a call met gets a new name too: `after`
    is the digest of some first calls that changed the world; it becomes the digest of the same, redacted.
    """
    ordered = sorted(transitions, key=lambda step: step.step)
    changed = {step.step: _redacted(step, redactor) for step in ordered}
    writes = [step for step in ordered if step.writes]
    old = [history_digest([write.call.key for write in writes[:count]]) for count in range(len(writes) + 1)]
    new = [
        history_digest([changed[step.step].call.key for step in writes[:count]])
        for count in range(len(writes) + 1)
    ]
    names = dict(zip(reversed(old), reversed(new), strict=True))
    return [
        replace(changed[transition.step], after=names.get(transition.after, transition.after))
        for transition in transitions
    ]


def _redacted(transition: Transition, redactor: Redactor) -> Transition:
    call = transition.call
    return replace(
        transition,
        call=replace(
            call,
            args=redactor.value(dict(call.args)),
            call_id=None if call.call_id is None else redactor.text(call.call_id),
            replies=tuple(
                Reply(redactor.value(reply.asked), redactor.value(reply.reply)) for reply in call.replies
            ),
        ),
        answer=redactor.answer(transition.answer),
        episode=redactor.text(transition.episode),
        task=redactor.text(transition.task),
    )


def _json_in(text: str) -> JsonValue:
    """The list or object that a text spells as JSON, or None."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        value = read_json(text)
    except NotSerializable:
        return None
    return value if isinstance(value, (dict, list)) else None


def _quoted(fields: frozenset[str]) -> re.Pattern[str] | None:
    """Finds a named field in text that is no JSON: Python's spelling, or JSON that was cut off."""
    if not fields:
        return None
    names = "|".join(re.escape(name) for name in sorted(fields))
    return re.compile(rf"""(?i:(["'])(?P<field>{names})\1)\s*:\s*(["'])(?P<secret>(?:\\.|(?!\3)[^\\])+)""")
