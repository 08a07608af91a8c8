"""How sure a success rate is."""

from math import sqrt

Z_95 = 1.959963984540054


def wilson(successes: int, trials: int, *, z: float = Z_95) -> tuple[float, float]:
    """Give the 95 % interval of a success rate.

    Wilson's score interval (E. B. Wilson, JASA 22, 1927, p. 209): stays inside 0..1 and holds for few
    trials and for rates of 0 and 1, where the usual +/- does not. It takes trials as independent;
    episodes of one task are not quite, so with few tasks the truth is wider.

    Raises:
        ValueError: no trials, or more successes than trials.
    """
    if not 0 <= successes <= trials or trials == 0:
        raise ValueError(f"no rate of {successes} in {trials}")
    rate = successes / trials
    shrink = 1 + z * z / trials
    middle = rate + z * z / (2 * trials)
    spread = z * sqrt(rate * (1 - rate) / trials + z * z / (4 * trials * trials))
    return max(0.0, (middle - spread) / shrink), min(1.0, (middle + spread) / shrink)
