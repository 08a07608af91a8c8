"""Lanes are spread where they wait for an endpoint, and left alone where the processor is the limit."""

import time

from dreamgym_kit.rollout.pace import APART_S, Pace


def test_lanes_that_waited_go_on_one_after_the_other() -> None:
    pace = Pace()
    time.sleep(0.2)
    assert [pace.pause_s(place) for place in (0, 1, 10)] == [0.0, APART_S, 10 * APART_S]


def test_lanes_that_kept_the_processor_busy_go_on_at_once() -> None:
    pace = Pace()
    began = time.process_time()
    while time.process_time() - began < 0.2:
        pass
    pace._began = (time.perf_counter() - 0.2, began)  # whatever else this machine was doing meanwhile
    assert [pace.pause_s(place) for place in (0, 1, 10)] == [0.0, 0.0, 0.0]
