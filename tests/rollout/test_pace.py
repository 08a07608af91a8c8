"""Lanes are spread where they wait for an endpoint, and left alone where the processor is the limit."""

from types import SimpleNamespace

import pytest
from each_row import each_row

from dreamgym_kit.rollout import event_loop
from dreamgym_kit.rollout.event_loop import APART_S, BUSY, SlotStagger


@each_row(("busy", "apart_s"), [(0.0, APART_S), (BUSY - 0.01, APART_S), (BUSY + 0.01, 0.0), (1.0, 0.0)])
def test_lanes_that_waited_go_on_one_after_the_other_and_busy_ones_at_once(
    monkeypatch: pytest.MonkeyPatch, busy: float, apart_s: float
) -> None:
    passed = [0.0]
    clock = SimpleNamespace(perf_counter=lambda: passed[-1], process_time=lambda: busy * passed[-1])
    monkeypatch.setattr(event_loop, "time", clock)
    pace = SlotStagger()
    passed.append(0.2)
    assert [pace.pause_s(place) for place in (0, 1, 10)] == [0.0, apart_s, 10 * apart_s]
