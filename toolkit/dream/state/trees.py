"""Which form an answer takes: one decision tree per tool, over facts around the call.

A fact that is not known is a branch of its own. Grown on two thirds of the worlds, pruned on the third,
counted on all: a test that only remembers a world does not survive.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

Feature = tuple[str, ...]
Facts = Mapping[Feature, Hashable]

_DEPTH = 6
_MAX_VALUES = 60
_AGAIN = 0.25  # that a call went so before may be the way it was recorded, so it must tell much more
_MIN_WORLDS = 5  # to hold a third of them out
CONTESTED = 0.2  # share of a leaf that went another way, above which its majority is a guess
_THIN = 6  # cases below which a branch is weighed against what the branches beside it say
_ASKED = 4.0  # cases that those count for
_NOTHING: Counter[str] = Counter()


class TreeCase(NamedTuple):
    """One recorded call: facts around it, the form of its answer, its world."""

    facts: Facts
    form: str
    world: str


@dataclass(slots=True)
class Node:
    """A test with three branches, or a leaf (no feature)."""

    counts: Counter[str]
    feature: Feature | None = None
    value: Hashable = None
    branches: tuple["Node | None", "Node | None", "Node | None"] = (None, None, None)  # equal, other, unknown

    def branch(self, facts: Facts) -> int:
        """Which way these facts go."""
        assert self.feature is not None
        if self.feature not in facts:
            return 2
        return 0 if facts[self.feature] == self.value else 1


class Test(NamedTuple):
    """A test that a prediction went through: what it asks, which way it went, and the cases either way."""

    feature: Feature
    value: Hashable
    way: int  # 0 equal, 1 other, 2 unknown
    here: Counter[str]  # forms of the cases that went this way
    there: Counter[str]  # of those where the fact was known and otherwise


class Prediction(NamedTuple):
    """The likeliest form, how pure its leaf is, and the tests that led there."""

    form: str
    purity: float
    path: tuple[Test, ...]
    leaf: Counter[str]

    @property
    def cases(self) -> int:
        """How many recorded calls of the leaf took the form."""
        return self.leaf[self.form]

    @property
    def contested(self) -> bool:
        """Whether calls that no known fact tells apart went another way as well, and not just once."""
        others = self.leaf.total() - self.cases
        return others >= 2 and others > CONTESTED * self.leaf.total()


def grow(cases: Sequence[TreeCase]) -> Node:
    """Make the tree of one tool."""
    worlds = sorted({case.world for case in cases})
    held_out = set(worlds[::3]) if len(worlds) >= _MIN_WORLDS else set()
    root = _grown([case for case in cases if case.world not in held_out], _DEPTH)
    held = [case for case in cases if case.world in held_out]
    if held:
        root = _pruned(root, held)
    return _recounted(root, cases)


def predict(root: Node, facts: Facts) -> Prediction:
    """Follow the facts to a leaf."""
    node, path, doubt = root, [], 1.0
    thin: tuple[Node, int] | None = None  # the first branch of few cases: all below it has fewer
    while node.feature is not None:
        way = node.branch(facts)
        follower = node.branches[way]
        other = node.branches[1 - way] if way < 2 else None
        path.append(
            Test(
                node.feature,
                node.value,
                way,
                follower.counts if follower is not None else _NOTHING,
                other.counts if other is not None else _NOTHING,
            )
        )
        if follower is None:  # no recording went this way
            doubt = 0.8
            break
        if thin is None and follower.counts.total() < _THIN:
            thin = node, way
        node = follower
    form, count = node.counts.most_common(1)[0]
    total = node.counts.total()
    kinds = len(node.counts)
    if thin is not None:
        agreed = _agreed(*thin, form, facts)
        doubt *= (total + _ASKED * agreed) / (total + _ASKED)
    return Prediction(form, doubt * (count + 0.2) / (total + 1 + 0.2 * kinds), tuple(path), node.counts)


def _agreed(node: Node, way: int, form: str, facts: Facts) -> float:
    """Share of the cases beside a thin branch that took this form under these facts, as far as those say.

    Where the fact is not known, each branch beside it may be the one. Where it is known, only a test speaks
    that is made there alone; and none speaks of a form that calls there never took.
    """
    beside = [branch for place, branch in enumerate(node.branches) if place != way and branch is not None]
    if way < 2:
        beside = [one for one in beside if one.feature is not None and one.counts[form]]
    if not any(one.counts[form] for one in beside):
        return 1.0
    said = [(one.counts.total(), predict(one, facts).leaf) for one in beside]
    agreed = sum(weight * leaf[form] / leaf.total() for weight, leaf in said)
    return agreed / sum(weight for weight, _ in said)


def _grown(cases: Sequence[TreeCase], depth: int) -> Node:
    counts = Counter(case.form for case in cases)
    best = _best_test(cases, counts) if depth and len(counts) > 1 and len(cases) >= 4 else None
    if best is None:
        return Node(counts)
    node = Node(counts, *best)
    parts = _split(node, cases)
    node.branches = (
        _grown(parts[0], depth - 1),
        _grown(parts[1], depth - 1) if parts[1] else None,
        _grown(parts[2], depth - 1) if parts[2] else None,
    )
    return node


def _best_test(cases: Sequence[TreeCase], counts: Counter[str]) -> tuple[Feature, Hashable] | None:
    by_value: dict[Feature, dict[Hashable, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for facts, form, _ in cases:
        for feature, value in facts.items():
            by_value[feature][value][form] += 1
    whole = _entropy(counts)
    best: tuple[float, Feature, Hashable] | None = None
    for feature, values in by_value.items():
        if len(values) > _MAX_VALUES:
            continue
        known: Counter[str] = Counter()
        for forms in values.values():
            known.update(forms)
        unknown = counts - known
        without = _entropy(unknown)
        if len(values) == 1 and not unknown:
            continue
        for value, forms in sorted(values.items(), key=lambda item: (-item[1].total(), str(item[0])))[:6]:
            if forms.total() < 2:
                continue
            gain = whole - without - _entropy(forms) - _entropy(known - forms)
            worth = gain - _penalty(feature) - (_AGAIN * whole if feature[0] == "before" else 0.0)
            if gain > 0.5 and gain > 0.03 * whole and (best is None or worth > best[0] + 1e-9):
                best = (worth, feature, value)
    return None if best is None else best[1:]


def _penalty(feature: Feature) -> float:
    """Simple tests win ties; an argument's own value is the least to be trusted."""
    own = 0.15 if feature[0] == "is" and feature[1].startswith("args.") else 0.0
    return own + 0.1 * (feature[0] == ">") + 0.002 * sum(map(len, feature))


def _entropy(counts: Counter[str]) -> float:
    """Bits to tell the forms apart, over all cases."""
    total = counts.total()
    return -sum(count * math.log2(count / total) for count in counts.values()) if total else 0.0


def _split(node: Node, cases: Sequence[TreeCase]) -> tuple[list[TreeCase], list[TreeCase], list[TreeCase]]:
    parts: tuple[list[TreeCase], list[TreeCase], list[TreeCase]] = ([], [], [])
    for case in cases:
        parts[node.branch(case.facts)].append(case)
    return parts


def _pruned(node: Node, held: Sequence[TreeCase]) -> Node:
    """Cut what does not help on worlds that the tree was not grown from."""
    if node.feature is None:
        return node
    first, second, third = (
        _pruned(branch, part) if branch is not None else None
        for branch, part in zip(node.branches, _split(node, held), strict=True)
    )
    kept = Node(node.counts, node.feature, node.value, (first, second, third))
    flat = Node(node.counts)
    if _right(kept, held) > _right(flat, held):
        return kept
    return kept if _surprise(kept, held) < _surprise(flat, held) else flat


def _right(root: Node, held: Sequence[TreeCase]) -> int:
    return sum(case.form == predict(root, case.facts).form for case in held)


def _surprise(root: Node, held: Sequence[TreeCase]) -> float:
    """Bits that the forms of these cases are worth to somebody who believes the tree's leaves.

    So a test counts that tells sure calls from doubtful ones, though the likeliest form stays the same.
    """
    total = 0.0
    for case in held:
        leaf = predict(root, case.facts).leaf
        total -= math.log2((leaf[case.form] + 0.2) / (leaf.total() + 1 + 0.2 * len(leaf)))
    return total


def _recounted(node: Node, cases: Sequence[TreeCase]) -> Node:
    counts = Counter(case.form for case in cases) or node.counts
    if node.feature is None:
        return Node(counts)
    first, second, third = (
        _recounted(branch, part)
        if branch is not None
        else Node(Counter(one.form for one in part))
        if part
        else None
        for branch, part in zip(node.branches, _split(node, cases), strict=True)
    )
    return Node(counts, node.feature, node.value, (first, second, third))
