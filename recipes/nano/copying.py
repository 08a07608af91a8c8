"""Random sequences that say the same three times: what a model that copies can foretell."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

_TIMES = 3
_SHORTEST, _LONGEST = 3, 14


@dataclass(frozen=True, slots=True)
class Repetition:
    """One sequence; `ids[known:]` can be foretold by copying, what is before it cannot."""

    ids: tuple[int, ...]
    known: int


def repetition(pool: Sequence[int], start: int, chance: random.Random) -> Repetition:
    """Draw a segment of tokens from `pool` and repeat it after `start`."""
    segment = [chance.choice(pool) for _ in range(chance.randint(_SHORTEST, _LONGEST))]
    # the first repeated token could be any; from the second on the one before says what follows
    return Repetition((start, *segment * _TIMES), len(segment) + 2)
