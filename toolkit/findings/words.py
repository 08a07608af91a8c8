"""What a sentence says about what a tool does: English verbs, by stem and in groups of like meaning.

Made for short texts of known kind (requests, rules, last words). What is not understood is left alone: a
detector that rests on words speaks only where they are plain.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

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
class Deed:
    """What a tool does, in words."""

    verbs: frozenset[str]  # stems of like meaning
    nouns: frozenset[str]  # stems of what it is done to
    loose: bool  # the verb alone says too little ("send"): a noun has to stand by it

    def named_in(self, text: str) -> bool:
        """Whether a text speaks of this deed."""
        spoken = stems(text)
        return bool(self.nouns & spoken) if self.loose else bool(self.verbs & spoken)

    def spoken_of(self, sentence: str) -> bool:
        """Whether a sentence names the deed with what it is done to, where the verb alone says too little."""
        spoken = stems(sentence)
        return bool(self.verbs & spoken) and (not self.loose or bool(self.nouns & spoken))

    def claimed_in(self, sentence: str) -> bool:
        """Whether a sentence says plainly that it was done."""
        plain = not negated(sentence) and not unsettled(sentence)
        return plain and self.spoken_of(sentence) and bool(self.verbs & done_in(sentence))


@lru_cache(maxsize=1024)
def deed_of(tool: str) -> Deed | None:
    """What a tool does by its name; None where no verb in it is known."""
    words = [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", tool)]
    for place, word in enumerate(words):
        for group in _GROUPS:
            alike = group.split()
            if word in alike:
                verbs = {stem(verb) for verb in alike}
                nouns = {stem(noun) for noun in words[place + 1 :]}
                return Deed(frozenset(verbs), frozenset(nouns), word in _LOOSE)
    return None


def stem(word: str) -> str:
    """The beginning that forms of a word share: "cancel", "cancelled", "cancellation"."""
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
    """The stems of a text's words, without those that say nothing."""
    words = _WORD.findall(text.lower())
    return frozenset(stem(word) for word in words if len(word) > 2 and word not in _STOP)


def sentences(text: str) -> Iterator[str]:
    """The sentences of a text, lines too."""
    yield from (part.strip() for part in _SENTENCE.split(text) if part.strip())


def done_in(sentence: str) -> set[str]:
    """The stems of what a sentence says was done: "is cancelled and refunded" -> cancel, refund."""
    words = _WORD.findall(sentence.lower())
    return {stem(word) for word in words if word in _IRREGULAR or word.endswith("ed")}


def negated(sentence: str) -> bool:
    """Whether a sentence says that something is not so."""
    return _NEGATED.search(sentence.lower()) is not None


def unsettled(sentence: str) -> bool:
    """Whether a sentence speaks of what may be, will be or was before."""
    return _OPEN.search(sentence.lower()) is not None
