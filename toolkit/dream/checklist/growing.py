"""Trees that say what a case is likely to be, grown from few examples.

A test asks whether a fact is among some values, whether a list has any of them, or whether a number is below
a bound; so one test tells "not sent yet" from the rest, however many values say it. A test has to save more
bits than it takes to name it, which needs no examples held out: there may be a dozen of a kind. Sets of
cases are the bits of integers.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

Name = tuple[str, ...]
Known = frozenset[Hashable] | float
"""The values of a fact (a plain one has one), or a number."""
Seen = Mapping[Name, Known]
"""Facts by name."""

_DEPTH = 12
_LEAST = 2  # examples on either side of a test
_FIRST = 4.0  # bits that a test of the first fact has to save beyond those that name it: others are to come
_AGAIN = 1.0  # bits to name a fact that was asked for before
_UNKNOWN = 3.0  # bits for a branch of its own for those of whom the fact is not known
_BEGUN = 6  # values that a set is begun with


class Case(NamedTuple):
    """Some facts, and what they came to."""

    facts: Seen
    label: Hashable


class Test(NamedTuple):
    """What is asked of a fact: whether it has one of some values, or is below a bound."""

    name: Name
    values: frozenset[Hashable] = frozenset()
    below: float | None = None

    def ask(self, facts: Seen) -> bool | None:
        """The answer; None where the fact is not known."""
        known = facts.get(self.name)
        if known is None:
            return None
        if isinstance(known, frozenset):
            return self.below is None and not known.isdisjoint(self.values)
        return self.below is not None and known < self.below


@dataclass(frozen=True, slots=True)
class Branch:
    """A leaf (no test), or a test with what follows; `counts` are its examples by label."""

    counts: Mapping[Hashable, float]
    test: Test | None = None
    yes: "Branch | None" = None
    no: "Branch | None" = None
    unknown: "Branch | None" = None

    @property
    def examples(self) -> float:
        """How many came through here."""
        return sum(self.counts.values())


def leaves(tree: Branch, facts: Seen, weight: float = 1.0) -> Iterator[tuple[float, Branch]]:
    """Where facts lead, with how likely; what depends on one that is not known goes as examples went."""
    if tree.test is None or tree.yes is None or tree.no is None:
        yield weight, tree
        return
    said = tree.test.ask(facts)
    if said is not None:
        yield from leaves(tree.yes if said else tree.no, facts, weight)
    elif tree.unknown is not None:
        yield from leaves(tree.unknown, facts, weight)
    else:
        yes, no = tree.yes.examples, tree.no.examples
        yield from leaves(tree.yes, facts, weight * yes / (yes + no))
        yield from leaves(tree.no, facts, weight * no / (yes + no))


def likely(tree: Branch, facts: Seen, fits: Callable[[Hashable], float]) -> float:
    """0..1: that the label is one that fits; `fits` says 0..1 how well."""
    found = 0.0
    for weight, leaf in leaves(tree, facts):
        fitting = sum(count * fits(label) for label, count in leaf.counts.items())
        found += weight * (fitting + 0.5) / (leaf.examples + 1)
    return found


def grow(cases: Sequence[Case], *, copies: int = 1, first: Name | None = None) -> Branch:
    """Make a tree.

    Args:
        cases: to tell apart.
        copies: how often each example is among them: a copy proves nothing more.
        first: the fact that is asked for as long as it tells, before all others.
    """
    return _grown(_Table(cases, copies, first), (1 << len(cases)) - 1, _DEPTH)


class _Table:
    """Cases by what can be asked of them: for each fact and value, the cases that have it."""

    def __init__(self, cases: Sequence[Case], copies: int, first: Name | None) -> None:
        self.copies, self.first = copies, first
        self.labels: dict[Hashable, int] = defaultdict(int)
        self.known: dict[Name, int] = defaultdict(int)
        self.having: dict[Name, dict[Hashable, int]] = defaultdict(lambda: defaultdict(int))
        numbers: dict[Name, dict[float, int]] = defaultdict(lambda: defaultdict(int))
        for place, case in enumerate(cases):
            bit = 1 << place
            self.labels[case.label] |= bit
            for name, known in case.facts.items():
                self.known[name] |= bit
                if isinstance(known, frozenset):
                    for value in known:
                        self.having[name][value] |= bit
                else:
                    numbers[name][known] |= bit
        self.below = {name: _cumulated(some) for name, some in numbers.items()}
        self.names = sorted(self.known)

    def examples(self, cases: int) -> float:
        return cases.bit_count() / self.copies

    def counts(self, cases: int) -> dict[Hashable, float]:
        return {label: self.examples(cases & those) for label, those in self.labels.items() if cases & those}

    def bits(self, cases: int) -> float:
        """To tell the labels of these."""
        total, left, found = cases.bit_count(), cases, 0.0
        for those in self.labels.values():
            count = (left & those).bit_count()
            if count:
                found -= count * math.log2(count / total)
                left &= ~those
                if not left:
                    break
        return found / self.copies


def _cumulated(by_number: Mapping[float, int]) -> list[tuple[float, int]]:
    """Each number with the cases that are below it."""
    found, so_far = [], 0
    for number in sorted(by_number):
        found.append((number, so_far))
        so_far |= by_number[number]
    return found[1:]


def _grown(table: _Table, cases: int, depth: int, asked: frozenset[Name] = frozenset()) -> Branch:
    counts = table.counts(cases)
    found = _best(table, cases, asked) if depth and len(counts) > 1 else None
    if found is None:
        return Branch(counts)
    test, yes = found
    known = cases & table.known[test.name]
    unknown, asked = cases & ~known, asked | {test.name}
    return Branch(
        counts,
        test,
        _grown(table, yes, depth - 1, asked),
        _grown(table, known & ~yes, depth - 1, asked),
        _grown(table, unknown, depth - 1, asked) if table.examples(unknown) >= _LEAST else None,
    )


def _best(table: _Table, cases: int, asked: frozenset[Name]) -> tuple[Test, int] | None:
    """The test that saves most, and the cases that pass it; None where none saves enough."""
    if table.first is not None:
        found = _best_of(table, cases, {table.first: _FIRST})
        if found is not None:
            return found
    there = [name for name in table.names if cases & table.known[name] and name != table.first]
    named = math.log2(max(2, len(there)))
    return _best_of(table, cases, {name: _AGAIN if name in asked else named for name in there})


def _best_of(table: _Table, cases: int, costs: Mapping[Name, float]) -> tuple[Test, int] | None:
    whole = table.bits(cases)
    best: tuple[float, Test, int] | None = None
    for name, cost in costs.items():
        known = cases & table.known[name]
        unknown = cases & ~known
        tried = _bound(table, name, known) if name in table.below else _values(table, name, known)
        if tried is None:
            continue
        test, yes, named = tried
        rest = table.bits(yes) + table.bits(known & ~yes) + table.bits(unknown)
        saved = whole - rest - named - cost - (_UNKNOWN if unknown else 0.0)
        if saved > 0 and (best is None or saved > best[0] + 1e-9):
            best = (saved, test, yes)
    return None if best is None else best[1:]


def _bound(table: _Table, name: Name, known: int) -> tuple[Test, int, float] | None:
    found: tuple[float, Test, int] | None = None
    bounds = [(number, known & below) for number, below in table.below[name]]
    for number, yes in bounds:
        if min(table.examples(yes), table.examples(known & ~yes)) < _LEAST:
            continue
        rest = table.bits(yes) + table.bits(known & ~yes)
        if found is None or rest < found[0] - 1e-9:
            found = (rest, Test(name, below=number), yes)
    return None if found is None else (*found[1:], math.log2(max(1, len(bounds))))


def _values(table: _Table, name: Name, known: int) -> tuple[Test, int, float] | None:
    """Values are taken together one by one, from each of the best to begin with."""
    having = {value: known & cases for value, cases in table.having[name].items() if known & cases}
    each = math.log2(max(2, len(having)))
    begun = sorted(
        (table.bits(cases) + table.bits(known & ~cases), str(value), value)
        for value, cases in having.items()
        if cases != known
    )
    found: tuple[float, Test, int, float] | None = None
    for rest, _, value in begun[:_BEGUN]:
        chosen, yes, rest = _joined(table, having, known, value, rest, each)
        if min(table.examples(yes), table.examples(known & ~yes)) < _LEAST:
            continue
        worth = rest + each * len(chosen)
        if found is None or worth < found[0] - 1e-9:
            found = (worth, Test(name, frozenset(chosen)), yes, each * len(chosen))
    return None if found is None else found[1:]


def _joined(
    table: _Table, having: Mapping[Hashable, int], known: int, value: Hashable, rest: float, each: float
) -> tuple[list[Hashable], int, float]:
    """A value and all that go with it, as long as each saves more than it takes to name it."""
    chosen, yes = [value], having[value]
    while True:
        tried = [
            (table.bits(yes | cases) + table.bits(known & ~(yes | cases)), str(other), other)
            for other, cases in having.items()
            if cases & ~yes and known & ~(yes | cases)
        ]
        if not tried:
            break
        found, _, other = min(tried, key=lambda one: one[:2])
        if found > rest - each:
            break
        chosen.append(other)
        yes, rest = yes | having[other], found
    return chosen, yes, rest
