"""Interpret texts and values: actions in sentences, and values that an agent was given.

English verbs, by stem in groups of similar meaning, for short texts of known kind (requests, rules, last
messages); unknown text is ignored, so detectors report only clear wording. Values that identify something
count: IDs, addresses, amounts, names. Free text, dates, small counts, enum words and idempotency keys may be
chosen freely, so they are never reported as made up.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from itertools import combinations, islice

from dreamgym_kit.serialization import JsonValue

_SUFFIXES = ("ations", "ation", "ating", "ated", "ates", "ate", "ions", "ion", "ings", "ing", "ed", "es")
_GROUPS = (
    "delete remove erase purge drop wipe destroy",
    "cancel revoke abort",
    "refund reimburse repay",
    "update change set modify edit move",
    "create open file raise submit add make",
    "send mail email notify message",
    "ship reship resend",
    "escalate forward",
    "pay transfer wire charge",
    "close terminate deactivate suspend disable",
    "book reserve schedule order buy",
)
_LOOSE = frozenset(
    re.findall(r"\w+", "update change set modify edit move create open file raise submit add make send")
)
_IRREGULAR = {"sent": "send", "paid": "pay", "made": "make", "resent": "resend", "bought": "buy"}
_SENTENCE = re.compile(r"(?<=[.!?;])\s+|\n+")
_WORD = re.compile(r"[a-z]+(?:'[a-z]+)?")
_NEGATED = re.compile(
    r"\b(not|never|no|nothing|none|unable|cannot|can't|couldn't|didn't|wasn't|hasn't|haven't|isn't|won't"
    r"|don't|failed|fails|without|instead)\b"
)
_OPEN = re.compile(
    r"\b(will|would|can|could|may|might|shall|should|must|if|once|when|until|before|unless|need|needs"
    r"|already|let|want|wants|like|please)\b|\?"
)
_STOP = frozenset(
    re.findall(
        r"\w+",
        """
    the and for you your our are was were has have had not with this that from they them she her his its
    then than there here only all any but out one two who why how what when where will would can could
    been being into onto over under does did done name
    """,
    )
)


@dataclass(frozen=True, slots=True)
class ToolAction:
    """A tool's action in words."""

    verbs: frozenset[str]  # stems of similar meaning
    nouns: frozenset[str]  # stems of its objects
    loose: bool  # the verb alone is ambiguous ("send"): it needs a noun

    def named_in(self, text: str) -> bool:
        """Return whether a text mentions this action."""
        spoken = stems(text)
        return bool(self.nouns & spoken) if self.loose else bool(self.verbs & spoken)

    def spoken_of(self, sentence: str) -> bool:
        """Return whether a sentence mentions the action, with its object if the verb is ambiguous."""
        spoken = stems(sentence)
        return bool(self.verbs & spoken) and (not self.loose or bool(self.nouns & spoken))

    def claimed_in(self, sentence: str) -> bool:
        """Return whether a sentence clearly states that it was done."""
        plain = not negated(sentence) and not unsettled(sentence)
        return plain and self.spoken_of(sentence) and bool(self.verbs & done_in(sentence))


@lru_cache(maxsize=1024)
def action_of(tool: str) -> ToolAction | None:
    """Return the action in a tool's name; None without a known verb."""
    words = [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", tool)]
    for place, word in enumerate(words):
        for group in _GROUPS:
            alike = group.split()
            if word in alike:
                verbs = {stem(verb) for verb in alike}
                nouns = {stem(noun) for noun in words[place + 1 :]}
                return ToolAction(frozenset(verbs), frozenset(nouns), word in _LOOSE)
    return None


def stem(word: str) -> str:
    """Return the stem that forms of a word share: "cancel", "cancelled", "cancellation"."""
    plain = _IRREGULAR.get(word, word).partition("'")[0]
    plain = re.sub(r"(.)\1", r"\1", plain)
    for suffix in _SUFFIXES:
        if plain.endswith(suffix) and len(plain) - len(suffix) >= 3:
            plain = plain[: -len(suffix)]
            break
    plain = plain[:-1] if plain.endswith("s") and len(plain) > 3 else plain
    return (plain[:-1] if plain.endswith("e") and len(plain) > 3 else plain)[:7]


@lru_cache(maxsize=1024)
def stems(text: str) -> frozenset[str]:
    """Return the stems of a text's words, without stop words."""
    words = _WORD.findall(text.lower())
    return frozenset(stem(word) for word in words if len(word) > 2 and word not in _STOP)


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences and lines of a text."""
    yield from (part.strip() for part in _SENTENCE.split(text) if part.strip())


def done_in(sentence: str) -> set[str]:
    """Return the stems of completed actions in a sentence: "is cancelled and refunded" -> cancel, refund."""
    words = _WORD.findall(sentence.lower())
    return {stem(word) for word in words if word in _IRREGULAR or word.endswith("ed")}


def negated(sentence: str) -> bool:
    """Return whether a sentence is negated."""
    return _NEGATED.search(sentence.lower()) is not None


def unsettled(sentence: str) -> bool:
    """Return whether a sentence is about something possible, future or earlier."""
    return _OPEN.search(sentence.lower()) is not None


_TOKEN = re.compile(r"[^\s\"'`()\[\]{}<>,;!?=|*]+")
_EDGES = ".:#/-_+@"
_RUN = re.compile(r"[^\W\d_]+|\d+")
_PART = re.compile(r"[^\W_]+")
_NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)?")
_AMOUNT = re.compile(r"[-+]?[$\u20ac\u00a3]?\s?(\d{1,3}(?:,\d{3})+|\d+)(\.\d+)?")
_DATE = re.compile(
    r"\d{4}-\d\d-\d\d.*|\d\d?[./]\d\d?[./]\d{2,4}|\d\d?:\d\d.*|\d\d?\s?[ap]\.?m\.?|P\d*[YMWDTH].*"
)
_ID = re.compile(r"(^|_)ids?$|[a-z]Ids?$")
_CENTS = re.compile(r"\.\d\d$")
_MIXED = re.compile(r"\d.*[A-Za-z]|[A-Za-z].*\d")
_MIN_ID = 5  # digits
_PLACES = {"zip", "zip_code", "zipcode", "postcode", "postal_code"}  # follow from an address
_FREE = re.compile(r"body|text|message|subject|note|comment|reason|description|summary|content|title|prompt")
_OWN = re.compile(r"idempot|nonce|correlation|trace|request_id|dedup")
_TIME = re.compile(r"(^|_)(date|day|time|at|when|until|from|since|start|end|due|deadline|timestamp)(_|$)")
_DENSE = re.compile(
    r"(19|20)\d\d(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])|1\d{9}(\d{3})?"
)  # 20261122, seconds since
_PHONE = re.compile(r"\d[\d\s()./-]{5,}\d")
_MIN_PHONE = 7  # digits
_THOUSANDS = re.compile(r"\b(\d+(?:\.\d+)?)k\b")
_SPELLED = {
    "dozen": 12, "eleven": 11, "twelve": 12, "thirteen": 13, "fourteen": 14, "fifteen": 15, "sixteen": 16,
    "seventeen": 17, "eighteen": 18, "nineteen": 19, "twenty": 20, "thirty": 30, "forty": 40, "fifty": 50,
    "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90, "hundred": 100, "thousand": 1000, "half": 50,
}  # fmt: skip
_SMALL = 10
_MAX_TEXT = 200_000  # maximum characters read of one text
_MAX_LEAVES = 50_000  # maximum values read of one answer
_MAX_NUMBERS = 60  # maximum numbers whose sums and differences are tried


@dataclass(slots=True)
class KnownValues:
    """All values that appeared so far."""

    tokens: set[str] = field(default_factory=set)
    numbers: set[Decimal] = field(default_factory=set)

    def add(self, value: JsonValue) -> None:
        """Add a text, or all values of an answer."""
        for leaf in islice(leaves(value, keys=True), _MAX_LEAVES):
            tokens, figures = _read(str(leaf)[:_MAX_TEXT])
            self.tokens |= tokens
            self.numbers |= figures

    def take(self, other: "KnownValues") -> None:
        """Add all values of another object."""
        self.tokens |= other.tokens
        self.numbers |= other.numbers

    def gave(self, value: str) -> bool:
        """Return whether an ID, address or name appeared, or is composed of values that did."""
        plain = value.casefold().strip(_EDGES + " ")
        if plain in self.tokens:
            return True
        parts = [part for part in _PART.findall(plain) if part.isdigit() or len(part) > 1]
        if parts and all(part in self.tokens for part in parts):
            return True
        runs = _RUN.findall(plain)  # "US" and "9148817941", or "P" and a long number
        long = any(len(run) >= _MIN_ID for run in runs)
        return all((long or len(run) > 1) and run in self.tokens for run in runs)

    def gave_number(self, value: Decimal) -> bool:
        """Return whether a number appeared, in this unit or in hundredths, or follows from two that did."""
        return bool(self.numbers & {value, -value, value * 100, value / 100}) or self._computed(value)

    def gave_phone(self, value: str) -> bool:
        """Return whether a telephone number appeared, with any separators and prefix."""
        digits = "".join(re.findall(r"\d", value))
        phones = (token.lstrip("0") for token in self.tokens if token.isdigit())
        return any(len(phone) >= _MIN_PHONE and digits.endswith(phone) for phone in phones)

    def _computed(self, value: Decimal) -> bool:
        amounts = [number for number in self.numbers if -int(number.as_tuple().exponent) == 2]
        if len(amounts) > _MAX_NUMBERS:
            return False
        sums = (amount for pair in combinations(amounts, 2) for amount in (sum(pair), abs(pair[0] - pair[1])))
        halves = (number / 2 for number in amounts)
        shares = (
            number * share / 100
            for number in amounts
            for share in self.numbers
            if share == int(share) and 0 < share < 100 and share % 5 == 0
        )
        counts = [number for number in self.numbers if number == int(number) and 1 < number <= _SMALL]
        times = (number * count for number in amounts for count in counts)
        follow = (*sums, *halves, *shares, *times, sum(amounts))
        return any(abs(amount - value) < Decimal("0.006") for amount in follow)


@lru_cache(maxsize=4096)
def _read(text: str) -> tuple[frozenset[str], frozenset[Decimal]]:
    """Return the tokens and numbers of a text; cached, because texts repeat."""
    tokens: set[str] = set()
    for token in _TOKEN.findall(text.casefold()):
        tokens.add(token.strip(_EDGES))
        tokens.update(_PART.findall(token))
    tokens.update("".join(re.findall(r"\d", run)) for run in _PHONE.findall(text))
    spelled = {Decimal(_SPELLED[word]) for word in _SPELLED.keys() & tokens}
    spelled |= {Decimal(number) * 1000 for number in _THOUSANDS.findall(text.casefold())}
    return frozenset(tokens), frozenset(spelled.union(numbers(text)))


def leaves(value: JsonValue, *, keys: bool = False) -> Iterator[str | int | float]:
    """Yield every text and number in a value; with `keys` also field names."""
    if isinstance(value, (str, int, float)):  # most values: the abstract classes below cost ten times as much
        if not isinstance(value, bool):
            yield value
    elif isinstance(value, (dict, Mapping)):
        for name, inner in value.items():
            if keys:
                yield name
            yield from leaves(inner, keys=keys)
    elif isinstance(value, (list, tuple, Sequence)):
        for inner in value:
            yield from leaves(inner, keys=keys)


def numbers(text: str) -> Iterator[Decimal]:
    """Yield the numbers in a text."""
    for match in _NUMBER.findall(text):
        number = _decimal(match)
        if number is not None:
            yield number


def ids(value: JsonValue) -> set[str]:
    """Return the IDs in arguments or an answer: single words with a digit, except amounts and dates."""
    names = set()
    for leaf in leaves(value):
        text = str(leaf).strip()
        if _id_like(text):
            names.add(text.casefold())
    return names


def ids_in_text(text: str) -> set[str]:
    """Return the IDs in a sentence."""
    words = (word.strip(_EDGES) for word in _TOKEN.findall(text))
    return {word.casefold() for word in words if _id_like(word) and not word[0].isdigit()}


def made_up(args: Mapping[str, JsonValue], seen: KnownValues) -> Iterator[tuple[str, str]]:
    """Yield the arguments, with their values, that never appeared."""
    for name, value in args.items():
        for leaf in leaves(value):
            if not _given(name.casefold(), leaf, seen):
                yield name, str(leaf)


def _given(name: str, value: str | int | float, seen: KnownValues) -> bool:
    text = str(value).strip()
    if not text or any(character.isspace() for character in text) or "://" in text:
        return True
    if _DATE.fullmatch(text) or _OWN.search(name) or (_TIME.search(name) and _DENSE.fullmatch(text)):
        return True
    if _FREE.search(name) or ("phone" in name and seen.gave_phone(text)):
        return True
    if _AMOUNT.fullmatch(text):
        return _number_given(name, value, seen)
    if "@" in text or (_MIXED.search(text) and name not in _PLACES):
        return seen.gave(text)
    return True


def _number_given(name: str, value: str | int | float, seen: KnownValues) -> bool:
    """Return whether an amount with cents or a numeric ID appeared; other numbers may be computed."""
    text = str(value).lstrip("$\u20ac\u00a3 ")
    number = _decimal(text)
    cents = isinstance(value, str) and _CENTS.search(text)
    named = _ID.search(name) or (isinstance(value, str) and len(text) >= _MIN_ID and text.isdigit())
    if number is None or not (cents or named) or name in _PLACES:
        return True
    return seen.gave_number(number) or seen.gave(text)


def _id_like(text: str) -> bool:
    single = len(text) > 1 and not any(character.isspace() for character in text)
    digit = any(character.isdigit() for character in text)
    return single and digit and not _DATE.fullmatch(text) and not ("." in text and _AMOUNT.fullmatch(text))


def _decimal(text: str) -> Decimal | None:
    try:
        return Decimal(text.replace(",", ""))
    except InvalidOperation:
        return None
