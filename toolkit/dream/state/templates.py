"""The form of a value, learned from examples: a version space of expressions for each leaf.

Each leaf counts every expression that gives its value, over the examples; what explains most of them, and
among those the simplest, is believed. Containers are explained as a whole first, then key by key.
"""

from collections import Counter
from collections.abc import Iterator, KeysView
from dataclasses import dataclass, field
from typing import NamedTuple

from dreamgym_kit.dream.state.expressions import Expression, evaluate, explanations
from dreamgym_kit.dream.state.names import Names
from dreamgym_kit.dream.state.values import MISSING
from dreamgym_kit.serialization import JsonValue

EXAMPLES = 60  # that a leaf looks at; more change nothing
_MAX_KEYS = 40
GRADES = ("sure", "named", "guessed")
_SURE = 0.8  # share of examples from which on a leaf is well explained
_WHOLE, _WHOLE_LIST = 0.93, 0.75  # share of examples from which on a container is not explained part by part
_DOUBT = 1.0  # examples that may yet say otherwise
_TRIED = 40  # of the expressions with most votes
_LONGEST_LIST = 4  # that is explained item by item


class Filled(NamedTuple):
    """A value made from a template.

    `share` is that of the examples that its weakest leaf explains, `guessed` whether some leaf is no more
    than the most frequent of several constants, because nothing known gives it.
    """

    value: JsonValue
    share: float
    guessed: bool = False

    @property
    def grade(self) -> str:
        """How well it is explained; what is tried on other worlds is counted for each grade by itself."""
        return "sure" if self.share >= _SURE else "guessed" if self.guessed else "named"


@dataclass(slots=True)
class Template:
    """One place of an answer, over its examples."""

    votes: Counter[Expression] = field(default_factory=Counter)
    seen: int = 0
    records: int = 0  # examples that were objects
    keys: Counter[str] = field(default_factory=Counter)
    children: dict[str, "Template"] = field(default_factory=dict)
    lengths: Counter[int] = field(default_factory=Counter)
    items: dict[tuple[int, int], "Template"] = field(default_factory=dict)  # by (length, place)
    known: list[KeysView[str]] = field(default_factory=list)  # by example, what could be named
    _best: tuple[Expression, int] | None = None
    _ranked: list[tuple[float, Expression]] | None = None

    def see(self, value: JsonValue, names: Names, old: object = MISSING) -> None:
        """Learn from one more example; `old` is what stood there before."""
        if self.seen >= EXAMPLES:
            return
        self.seen += 1
        self._best = self._ranked = None
        self.known.append(names.values.keys())
        self.votes.update(explanations(value, names, old))
        if len(self.votes) > 250 and self.seen % 10 == 0:
            self.votes = Counter(dict(self.votes.most_common(120)))
        if isinstance(value, dict) and 0 < len(value) <= 25:
            self.records += 1
            for key, item in value.items():
                self.keys[key] += 1
                if key in self.children or len(self.children) < _MAX_KEYS:
                    before = old[key] if isinstance(old, dict) and key in old else MISSING
                    self.children.setdefault(key, Template()).see(item, names, before)
        elif isinstance(value, list) and 0 < len(value) <= _LONGEST_LIST:
            self.lengths[len(value)] += 1
            for place, item in enumerate(value):
                self.items.setdefault((len(value), place), Template()).see(item, names)

    def fill(self, names: Names, old: object = MISSING) -> Filled | None:
        """The value for other names; None when a name that it needs is not known."""
        for share, expression in self.ranked():
            value = evaluate(expression, names, old)
            if value is MISSING:
                continue
            if share > (_WHOLE_LIST if self.lengths else _WHOLE) or not (self.records or self.lengths):
                return Filled(value, share, expression.kind == "const" and share < _SURE)
            break
        if self.records:
            return self._fill_record(names, old)
        if self.lengths:
            return self._fill_list(names)
        return None

    def best(self) -> tuple[Expression, int] | None:
        """The expression that is believed, and how many examples it explains."""
        if self._best is None and self.votes:
            most = max(self.votes.values())
            tied = [expression for expression, count in self.votes.items() if count == most]
            self._best = min(tied, key=lambda expression: (expression.cost, expression)), most
        return self._best

    def ranked(self) -> list[tuple[float, Expression]]:
        """Expressions with the share of examples that they explain, of those where their names were known.

        The best first. An expression that is seldom to be had is worth what it was worth when it was: where
        the last number is known, the next one is sure, and where it is not, nothing is.
        """
        if self._ranked is None:
            likely = [(one, count) for one, count in self.votes.most_common(_TRIED) if count > 1]
            likely = likely or self.votes.most_common(_TRIED)
            self._ranked = sorted(
                ((self._share(one, count), one) for one, count in likely),
                key=lambda ranked: (-round(ranked[0], 2), ranked[1].cost, ranked[1]),
            )
        return self._ranked

    def _share(self, expression: Expression, count: int) -> float:
        if self.seen < 2 and expression.kind == "const":
            return 0.35
        needed = expression.names()
        tried = sum(needed <= known for known in self.known) if needed else self.seen
        return (count + 0.3) / (max(tried, count) + _DOUBT)

    def leaves(self, path: str = "") -> Iterator[tuple[str, Expression, int, int]]:
        """What a person reads: path, expression, examples that it explains, examples."""
        best = self.best()
        if best is not None and (best[1] > 0.93 * self.seen or not (self.records or self.lengths)):
            yield path, best[0], best[1], self.seen
            return
        for key, child in self.children.items():
            yield from child.leaves(f"{path}.{key}" if path else key)
        for (length, place), child in self.items.items():
            if length == self.lengths.most_common(1)[0][0]:
                yield from child.leaves(f"{path}[{place}]")

    def _fill_record(self, names: Names, old: object) -> Filled | None:
        made: dict[str, JsonValue] = {}
        share, weakest, guessed = 1.0, 1.0, False
        for key, count in self.keys.items():
            if count < 0.5 * self.records:
                share *= 1 - count / self.records
                continue
            share *= count / self.records
            before = old[key] if isinstance(old, dict) and key in old else MISSING
            part = self.children[key].fill(names, before) if key in self.children else None
            if part is None:
                return None
            made[key] = part.value
            weakest, guessed = min(weakest, part.share), guessed or part.guessed
        return Filled(made, weakest * share * self.records / self.seen, guessed)

    def _fill_list(self, names: Names) -> Filled | None:
        length, count = self.lengths.most_common(1)[0]
        made, weakest, guessed = [], count / self.seen, False
        for place in range(length):
            part = self.items[length, place].fill(names)
            if part is None:
                return None
            made.append(part.value)
            weakest, guessed = min(weakest, part.share), guessed or part.guessed
        return Filled(made, weakest, guessed)
