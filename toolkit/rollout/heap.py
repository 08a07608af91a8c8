"""Keeps what was there before a run out of the garbage collector's rounds while the run goes on.

A process with an agent in it holds some hundred thousand objects that live as long as it does; a run makes
and drops so many more that the collector would look at all of them again and again: a tenth of an
episode's time. Nothing is lost by it: what becomes garbage among them is collected after the run.
Whoever looks for living objects meanwhile has to call `gc.unfreeze` first, or does not see these.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def settled_heap() -> Iterator[None]:
    """Leave all objects of now alone for the block."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
