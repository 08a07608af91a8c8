"""What a request says without its open-class values: a wording with slots, and what stood in them.

Names, ids, items and cities leave the text: judged by its words alone a request is one of a few kinds, and
with few tasks this is the difference between learning a kind and memorising tasks. A value that no
recording knows is found by its place: where a text is a known wording but for what stands in its slots.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from dreamgym_kit.dream.checklist.things import Things
from dreamgym_kit.dream.state.values import as_number, is_key

CLOSED = 8  # most values of a field whose values are words of their own kind, not names of things
_LONGEST = 5  # words of a value
_WORD = re.compile(r"\w+(?:[-.@/]\w+)*|[^\w\s]")

Mentions = Mapping[str, tuple[str, ...]]
"""By kind of value ("order", "name", "city"): what the text names."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A request, read."""

    wording: str  # words, and "<kind>" where a value stood
    words: frozenset[str]
    mentions: Mentions

    @property
    def values(self) -> frozenset[str]:
        """All values that the text names, of whatever kind."""
        return frozenset(value for values in self.mentions.values() for value in values)


@dataclass(frozen=True, slots=True)
class Wordings:
    """How requests are worded: open-class values by their kind, and the wordings that were seen."""

    values: Mapping[str, str]  # by text, the kind
    seen: tuple[str, ...] = ()
    known: Mapping[int, tuple[tuple[str, ...], ...]] = field(default_factory=dict)  # by number of words

    def read(self, text: str) -> Reading:
        """Take a request apart."""
        words = _WORD.findall(text)
        found = self._by_values(words)
        wording = " ".join(one for one, _ in found)
        if wording not in self.seen:
            found = self._by_place(words) or found
        mentions: dict[str, list[str]] = defaultdict(list)
        for slot, value in found:
            if value is not None:
                mentions[slot[1:-1]].append(value)
        plain = frozenset(one.casefold() for one, value in found if value is None and one[0].isalnum())
        return Reading(
            " ".join(one for one, _ in found), plain, {kind: tuple(said) for kind, said in mentions.items()}
        )

    def _by_values(self, words: list[str]) -> list[tuple[str, str | None]]:
        found: list[tuple[str, str | None]] = []
        at = 0
        while at < len(words):
            for size in range(min(_LONGEST, len(words) - at), 0, -1):
                value = " ".join(words[at : at + size])
                if value in self.values:
                    found.append((f"<{self.values[value]}>", value))
                    at += size
                    break
            else:
                found.append((words[at], None))
                at += 1
        return found

    def _by_place(self, words: list[str]) -> list[tuple[str, str | None]] | None:
        fitting = [
            wording
            for wording in self.known.get(len(words), ())
            if all(slot == word or _is_slot(slot) for slot, word in zip(wording, words, strict=True))
        ]
        if not fitting:
            return None
        best = min(fitting, key=lambda wording: sum(map(_is_slot, wording)))
        return [(slot, word if _is_slot(slot) else None) for slot, word in zip(best, words, strict=True)]


def _is_slot(word: str) -> bool:
    return len(word) > 2 and word[0] == "<" and word[-1] == ">"


def mine_wordings(texts: Iterable[str], worlds: Iterable[Things]) -> Wordings:
    """Learn from recorded requests and worlds which values are names of things, and how requests go."""
    values = open_values(worlds)
    plain = Wordings(values)
    counted = Counter(plain.read(text).wording for text in texts)
    return with_seen(values, [wording for wording, _ in counted.most_common()])


def with_seen(values: Mapping[str, str], seen: Iterable[str]) -> Wordings:
    """Wordings over these values that know these forms."""
    forms = tuple(seen)
    known: dict[int, list[tuple[str, ...]]] = defaultdict(list)
    for wording in forms:
        words = tuple(wording.split(" "))
        if any(map(_is_slot, words)):
            known[len(words)].append(words)
    return Wordings(values, forms, {size: tuple(one) for size, one in known.items()})


def open_values(worlds: Iterable[Things]) -> dict[str, str]:
    """Ids by their kind, and the texts of fields that have many: by the field's name."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    by_field: dict[str, set[str]] = defaultdict(set)
    for things in worlds:
        for one, kind in things.kinds.items():
            found[one][kind] += 1_000_000  # an id is an id, whatever else it may be
            for name, value in things.fields.get(one, {}).items():
                if isinstance(value, str) and is_key(value) and as_number(value) is None:
                    by_field[name].add(value)
    for name, values in by_field.items():
        if len(values) > CLOSED:
            for value in values:
                found[value][name] += 1
    return {value: max(sorted(kinds), key=kinds.__getitem__) for value, kinds in found.items()}
