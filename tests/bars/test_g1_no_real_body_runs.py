"""Bar G1: no real tool body runs in a dream, in any shape: 0 traces in 10,000 calls."""

import pytest
from bench.leaks import leaks

from dreamgym_kit.routing.router import CallRouter, Route


@pytest.mark.slow
def test_one_pass_over_a_third_of_the_rows_leaves_no_trace() -> None:
    found = leaks(0, 1, every=3)
    print(f"G1 leaks {len(found.leaked)} calls {found.calls} shapes {found.shapes}")
    assert (found.leaked, found.wrong) == ((), ())
    assert found.calls > 200


@pytest.mark.slow
def test_a_policy_that_lets_calls_through_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def falls_through() -> None:
        monkeypatch.setattr(CallRouter, "route_of", lambda self, spec: Route.REAL)

    assert len(leaks(0, 0, every=60, sabotage=falls_through).leaked) > 5


@pytest.mark.slow
@pytest.mark.nightly
def test_ten_thousand_calls_leave_no_trace() -> None:
    found = leaks(1, 10_000)
    print(f"G1 leaks {len(found.leaked)} calls {found.calls} shapes {found.shapes}")
    assert (found.leaked, found.wrong) == ((), ())
    assert found.calls >= 10_000
