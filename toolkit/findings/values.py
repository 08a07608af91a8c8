"""Which values an agent has been given, and whether it made one up.

Looks at values that stand for something in the world: ids, addresses, amounts, names. Free text, dates,
small counts, words of a fixed choice and keys for repeatable requests are nobody's to give, so they are
never called made up.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from itertools import combinations, islice

from dreamgym_kit.serialization import JsonValue

_TOKEN = re.compile(r"[^\s\"'`()\[\]{}<>,;!?=|*]+")
_EDGES = ".:#/-_+@"
_PART = re.compile(r"[^\W_]+")
_NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)?")
_AMOUNT = re.compile(r"[-+]?[$\u20ac\u00a3]?\s?(\d{1,3}(?:,\d{3})+|\d+)(\.\d+)?")
_DATE = re.compile(
    r"\d{4}-\d\d-\d\d.*|\d\d?[./]\d\d?[./]\d{2,4}|\d\d?:\d\d.*|\d\d?\s?[ap]\.?m\.?|P\d*[YMWDTH].*"
)
_OF_SOMEBODY = re.compile(r"(^|_)(name|city|town|street|address|country|email|mail|phone|recipient|to|iban)$")
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
_MAX_TEXT = 200_000  # characters of one text that are read
_MAX_LEAVES = 50_000  # values of one answer that are read
_MAX_NUMBERS = 60  # of which sums and differences are tried


@dataclass(slots=True)
class Known:
    """Everything that somebody told so far."""

    tokens: set[str] = field(default_factory=set)
    numbers: set[Decimal] = field(default_factory=set)

    def hear(self, value: JsonValue) -> None:
        """Take in a text, or all values of an answer."""
        for leaf in islice(leaves(value, keys=True), _MAX_LEAVES):
            tokens, figures = _read(str(leaf)[:_MAX_TEXT])
            self.tokens |= tokens
            self.numbers |= figures

    def take(self, other: "Known") -> None:
        """Take over what is known elsewhere."""
        self.tokens |= other.tokens
        self.numbers |= other.numbers

    def gave(self, value: str) -> bool:
        """Whether an id, address or name is one that was told, or is put together from such."""
        plain = value.casefold().strip(_EDGES + " ")
        if plain in self.tokens:
            return True
        parts = [part for part in _PART.findall(plain) if part.isdigit() or len(part) > 1]
        return bool(parts) and all(part in self.tokens for part in parts)

    def gave_number(self, value: Decimal) -> bool:
        """Whether a number was told, in this unit or in hundredths, or follows from two that were."""
        return any(unit in self.numbers for unit in _units(value)) or self._computed(value)

    def gave_phone(self, value: str) -> bool:
        """Whether a number of a telephone was told, with whatever between its digits and before it."""
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
    """The tokens and numbers of a text; prompts, descriptions and answers come again and again."""
    tokens: set[str] = set()
    for token in _TOKEN.findall(text.casefold()):
        tokens.add(token.strip(_EDGES))
        tokens.update(_PART.findall(token))
    tokens.update("".join(re.findall(r"\d", run)) for run in _PHONE.findall(text))
    spelled = {Decimal(_SPELLED[word]) for word in _SPELLED.keys() & tokens}
    spelled |= {Decimal(number) * 1000 for number in _THOUSANDS.findall(text.casefold())}
    return frozenset(tokens), frozenset(spelled.union(numbers(text)))


def leaves(value: JsonValue, *, keys: bool = False) -> Iterator[str | int | float]:
    """Every text and number in a value; also the names of fields, if asked."""
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
    """The numbers in a text."""
    for match in _NUMBER.findall(text):
        number = _decimal(match)
        if number is not None:
            yield number


def ids(value: JsonValue) -> set[str]:
    """The ids in a call's arguments or an answer: single words that hold a digit, and no amounts or dates."""
    names = set()
    for leaf in leaves(value):
        text = str(leaf).strip()
        if _id_like(text):
            names.add(text.casefold())
    return names


def ids_in_text(text: str) -> set[str]:
    """The ids that a sentence names."""
    words = (word.strip(_EDGES) for word in _TOKEN.findall(text))
    return {word.casefold() for word in words if _id_like(word) and not word[0].isdigit()}


def made_up(args: Mapping[str, JsonValue], known: Known) -> Iterator[tuple[str, str]]:
    """Name the arguments, with their values, that nobody gave."""
    for name, value in args.items():
        for leaf in leaves(value):
            if not _given(name.casefold(), leaf, known):
                yield name, str(leaf)


def _given(name: str, value: str | int | float, known: Known) -> bool:
    text = str(value).strip()
    if not text or _DATE.fullmatch(text) or _OWN.search(name):
        return True
    if _TIME.search(name) and _DENSE.fullmatch(text):
        return True
    if "phone" in name and known.gave_phone(text):
        return True
    if _AMOUNT.fullmatch(text):
        return _number_given(name, text, known)
    person = _OF_SOMEBODY.search(name) is not None
    if any(character.isspace() for character in text):
        return not person or all(known.gave(word) for word in _telling(text))
    if _FREE.search(name) or "://" in text:
        return True
    if any(character.isdigit() for character in text) or "@" in text:
        return known.gave(text)
    return not (person and text[:1].isupper()) or known.gave(text)


def _number_given(name: str, text: str, known: Known) -> bool:
    number = _decimal(text.lstrip("$\u20ac\u00a3 "))
    if number is None:
        return True
    count = number == int(number) and abs(number) <= _SMALL and "." not in text
    if count and not name.endswith("id"):
        return True
    return known.gave_number(number) or known.gave(text)


def _telling(text: str) -> Iterable[str]:
    """The words of an address or a name that somebody has to have said: capitals and digits."""
    return [word for word in text.split() if word[:1].isupper() or any(letter.isdigit() for letter in word)]


def _id_like(text: str) -> bool:
    single = len(text) > 1 and not any(character.isspace() for character in text)
    digit = any(character.isdigit() for character in text)
    return single and digit and not _DATE.fullmatch(text) and not ("." in text and _AMOUNT.fullmatch(text))


def _units(value: Decimal) -> tuple[Decimal, ...]:
    return value, -value, value * 100, value / 100


def _decimal(text: str) -> Decimal | None:
    try:
        return Decimal(text.replace(",", ""))
    except InvalidOperation:
        return None
