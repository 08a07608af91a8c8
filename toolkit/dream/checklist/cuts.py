"""Where numbers are cut into ranges: at the thresholds that tell matching candidates from others best."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence

_DEEP = 2  # a cut, and one on either side of it
_LEAST = 4  # cases on a side
_LEAST_GAIN = 0.1  # of what there is to tell
_LEAST_BITS = 6.0  # below it a cut may be chance

Key = tuple[str, str]
Case = tuple[float, str, bool]  # number, wording, whether the candidate matched


def mine_cuts(cases: Iterable[tuple[Key, str, Case]], *, copies: int = 1) -> dict[Key, tuple[float, ...]]:
    """Cuts by field, from (field, pattern of the candidate, case).

    A number tells within a kind of request: what other wordings make of a candidate is no noise to it.
    `copies` is how often each example is among the cases: a copy proves nothing more.
    """
    groups: dict[Key, dict[str, list[Case]]] = defaultdict(lambda: defaultdict(list))
    for key, pattern, case in cases:
        groups[key][pattern].append(case)
    found = {}
    for key, by_pattern in groups.items():
        cuts = {cut for some in by_pattern.values() for cut in _cuts(sorted(some), _DEEP, copies)}
        if cuts:
            found[key] = tuple(sorted(cuts))
    return found


def _cuts(cases: Sequence[Case], depth: int, copies: int) -> list[float]:
    whole = _bits(cases)
    if depth == 0 or whole == 0:
        return []
    best: tuple[float, int] | None = None
    for at in range(_LEAST * copies, len(cases) - _LEAST * copies + 1):
        if cases[at - 1][0] == cases[at][0]:
            continue
        gain = whole - _bits(cases[:at]) - _bits(cases[at:])
        if best is None or gain > best[0] + 1e-9:
            best = (gain, at)
    if best is None or best[0] < max(_LEAST_BITS * copies, _LEAST_GAIN * whole):
        return []
    below, above = cases[: best[1]], cases[best[1] :]
    return [*_cuts(below, depth - 1, copies), above[0][0], *_cuts(above, depth - 1, copies)]


def _bits(cases: Sequence[Case]) -> float:
    """Bits to tell the matching cases apart, wording by wording."""
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for _, wording, matched in cases:
        counts[wording][matched] += 1
    return -sum(
        count * math.log2(count / (no + yes)) for no, yes in counts.values() for count in (no, yes) if count
    )
