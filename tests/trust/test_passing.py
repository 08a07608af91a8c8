"""pass@k and pass^k: unbiased, as defined, and in order."""

from itertools import combinations

import numpy as np
import pytest
from each_row import each_row
from hypothesis import given
from hypothesis import strategies as st

from dreamgym_kit.trust.outcomes import pass_all, pass_at

tried = st.integers(1, 9).flatmap(lambda n: st.tuples(st.integers(1, n), st.just(n), st.integers(0, n)))


@given(tried)
def test_both_are_the_mean_over_all_ways_to_choose_k_tries(found: tuple[int, int, int]) -> None:
    k, tries, successes = found
    ways = list(combinations([True] * successes + [False] * (tries - successes), k))
    assert pass_at(*found) == pytest.approx(np.mean([any(way) for way in ways]))
    assert pass_all(*found) == pytest.approx(np.mean([all(way) for way in ways]))


@given(tried)
def test_one_try_is_the_share_and_more_tries_move_both_apart(found: tuple[int, int, int]) -> None:
    k, tries, successes = found
    share = successes / tries
    assert pass_at(1, tries, successes) == pytest.approx(share)
    assert pass_all(1, tries, successes) == pytest.approx(share)
    assert pass_all(k, tries, successes) <= share + 1e-12
    assert pass_at(k, tries, successes) >= share - 1e-12


@each_row(("k", "figure", "true"), [(3, pass_at, 1 - 0.6**3), (3, pass_all, 0.4**3)])
def test_they_are_unbiased_where_the_plug_in_is_not(k: int, figure, true: float) -> None:
    draw = np.random.default_rng(0)
    found = np.mean([figure(k, 5, int(draw.binomial(5, 0.4))) for _ in range(20_000)])
    assert found == pytest.approx(true, abs=0.01)


@each_row("figure", [pass_at, pass_all])
@each_row(("k", "tries", "successes"), [(0, 3, 1), (4, 3, 1), (1, 3, 4), (1, 3, -1)])
def test_no_chance_of_more_tries_than_there_were(figure, k: int, tries: int, successes: int) -> None:
    with pytest.raises(ValueError, match="tries"):
        figure(k, tries, successes)
