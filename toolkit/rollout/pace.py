"""Keeps lanes out of step where they wait for an endpoint, and in step where they wait for the processor.

Lanes that begin at once stay together for as long as every answer takes the same time: each answer then
finds all other lanes at work, and waits for them. A short pause after a lane's first episode, another for
each lane, spreads them for good. Where the processor is what they wait for, doing the same thing for all
lanes in a row is the quickest way, and there is no pause.
"""

import time

APART_S = 0.004  # between lanes: somewhat more than one lane works between two waits
BUSY = 0.5  # share of the processor's time from which on it is the processor that lanes wait for


class Pace:
    """Made when the lanes begin; asked once by each."""

    def __init__(self) -> None:
        self._began = time.perf_counter(), time.process_time()

    def pause_s(self, place: int) -> float:
        """How long lane number `place` waits after its first episode, in seconds."""
        wall, cpu = self._began
        passed = time.perf_counter() - wall
        busy = (time.process_time() - cpu) / passed if passed else 1.0
        return place * APART_S if busy < BUSY else 0.0
