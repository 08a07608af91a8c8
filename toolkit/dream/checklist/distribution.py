"""Whether imagined worlds ask for what recorded ones asked for: what checklists come to, kind by kind.

A judge may be right about worlds that are not possible: where the thing that a request is about is missing,
nothing has to be done, and an agent learns to do nothing. So what imagined worlds expect is held against
what recorded successes did, before anything is learned there.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from dreamgym_kit.dream.checklist.patterns import Write

Shape = tuple[str, ...]
"""The tools of a list of writes, sorted; () where nothing has to be done."""

_LEAST = 5  # worlds on either side, below which nothing can be compared


@dataclass(slots=True)
class Shapes:
    """What one kind of request came to, in recorded and in imagined worlds."""

    recorded: Counter[Shape] = field(default_factory=Counter)
    imagined: Counter[Shape] = field(default_factory=Counter)

    @property
    def apart(self) -> float:
        """0..1: total variation distance of the two distributions."""
        both = {*self.recorded, *self.imagined}
        here, there = self.recorded.total(), self.imagined.total()
        if not here or not there:
            return 1.0
        return sum(abs(self.recorded[one] / here - self.imagined[one] / there) for one in both) / 2

    def below(self, most_apart: float) -> str:
        """Why nothing is to be learned in these worlds; "" where it may be."""
        if self.recorded.total() < _LEAST or self.imagined.total() < _LEAST:
            return f"{self.recorded.total()} recorded and {self.imagined.total()} imagined worlds are too few"
        if self.apart > most_apart:
            return f"imagined worlds ask for other things than recorded ones ({self.apart:.2f} apart)"
        return ""


def compare_shapes(
    recorded: Iterable[tuple[str, frozenset[Write]]], imagined: Iterable[tuple[str, frozenset[Write]]]
) -> dict[str, Shapes]:
    """By kind of request, what its worlds came to; from (kind, writes)."""
    found: dict[str, Shapes] = defaultdict(Shapes)
    for kind, writes in recorded:
        found[kind].recorded[shape_of(writes)] += 1
    for kind, writes in imagined:
        found[kind].imagined[shape_of(writes)] += 1
    return dict(found)


def shape_of(writes: Iterable[Write]) -> Shape:
    """The tools of some writes."""
    return tuple(sorted(write.tool for write in writes))


def kinds_apart(shapes: Mapping[str, Shapes], most_apart: float) -> dict[str, str]:
    """The kinds whose imagined worlds are not to be learned in, with the reason."""
    found = {kind: one.below(most_apart) for kind, one in shapes.items()}
    return {kind: why for kind, why in found.items() if why}
