"""The interval of a success rate."""

import pytest
from each_row import each_row
from hypothesis import given
from hypothesis import strategies as st

from dreamgym_kit.trust.outcomes import wilson


@each_row(
    ("successes", "trials", "low", "high"),
    [(0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (5, 10, 0.2366, 0.7634), (63, 88, 0.6142, 0.7996)],
)
def test_known_values(successes: int, trials: int, low: float, high: float) -> None:
    assert wilson(successes, trials) == pytest.approx((low, high), abs=1e-4)


@given(st.integers(1, 500).flatmap(lambda trials: st.tuples(st.integers(0, trials), st.just(trials))))
def test_the_interval_holds_the_rate_and_mirrors(counted: tuple[int, int]) -> None:
    successes, trials = counted
    low, high = wilson(successes, trials)
    assert 0 <= low <= successes / trials + 1e-12
    assert successes / trials - 1e-12 <= high <= 1
    assert wilson(trials - successes, trials) == pytest.approx((1 - high, 1 - low))


@each_row(("successes", "trials"), [(0, 0), (3, 2), (-1, 4)])
def test_no_rate_without_trials(successes: int, trials: int) -> None:
    with pytest.raises(ValueError, match="no rate of"):
        wilson(successes, trials)
