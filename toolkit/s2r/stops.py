"""Why real calls end: the word for reports, and the exception that ends an episode."""

from dataclasses import dataclass
from enum import StrEnum

from dreamgym_kit.errors import EpisodeStop


class Why(StrEnum):
    """What ended a session's real calls."""

    BUDGET = "budget"  # the hard budget of real calls is spent
    LIMIT = "limit"  # one tool's own limit is
    REFUSED = "refused"  # somebody or some rule said no, or nobody said yes in time
    DIVERGED = "diverged"  # dream and reality have parted
    CANARY = "canary"  # what had to be as it was, was not: first episodes, or the weights that are served
    ALARM = "alarm"  # what was learned cannot be trusted
    AUDIT = "audit"  # what is done can no longer be written down

    @property
    def final(self) -> bool:
        """Whether the dream that all this rests on was wrong: going on with it is no option."""
        return self in (Why.DIVERGED, Why.CANARY)


@dataclass(frozen=True, slots=True)
class Stopped:
    """The end of all real calls of a run."""

    why: Why
    text: str  # a plain sentence


class RealCallRefused(EpisodeStop):
    """A real call was not let through; it did not run, and the episode is inconclusive."""


class RunStopped(RealCallRefused):
    """So was every call after it: the run's real calls have ended."""

    def __init__(self, stopped: Stopped) -> None:
        self.stopped = stopped
        super().__init__(stopped.text)
