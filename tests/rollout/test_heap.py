"""What was there before a run is left alone by the collector, and by nothing else."""

import gc

from dreamgym_kit.adapters.langgraph.analysis.gc_objects import instances_of
from dreamgym_kit.rollout.event_loop import frozen_heap


class Thing:
    def __init__(self) -> None:
        self.itself = self  # a cycle: only the collector can free it


def test_garbage_of_before_the_run_is_freed_after_it() -> None:
    gc.collect()
    thing = Thing()
    with frozen_heap():
        del thing
        gc.collect()
        assert gc.get_freeze_count() > 0
    gc.collect()
    assert instances_of(Thing) == []


def test_the_collector_is_as_it_was_after_the_run() -> None:
    before = gc.get_threshold()
    with frozen_heap():
        assert gc.get_threshold()[0] >= 10_000
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)


def test_a_look_at_living_objects_sees_those_of_before_the_run() -> None:
    thing = Thing()
    with frozen_heap():
        assert instances_of(Thing) == [thing]
