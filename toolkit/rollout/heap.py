"""Suits the garbage collector to a run: fewer rounds, and none over what was there before.

A process with an agent in it holds some hundred thousand objects that live as long as it does; a run makes
and drops so many more that the collector would look at all of them again and again: a tenth of an
episode's time. Nothing is lost by it: what becomes garbage among them is collected after the run.
Whoever looks for living objects meanwhile has to call `gc.unfreeze` first, or does not see these.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

NEW_OBJECTS = 10_000  # between two rounds; Python's own 700 are a tenth of one model call


@contextmanager
def settled_heap() -> Iterator[None]:
    """Leave all objects of now alone for the block, and look at the new ones less often.

    A collector that was switched off stays off.
    """
    before = gc.get_threshold()
    if before[0]:
        gc.set_threshold(max(before[0], NEW_OBJECTS), *before[1:])
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)
