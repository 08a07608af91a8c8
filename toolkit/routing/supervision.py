"""What stands before a real call on the way to the real tools: an overseer, asked step by step.

The decision is written once, as a generator of steps that the leaf carries out, in a thread or on a loop.
The real body runs at `Go` and nowhere else: a generator that ends, or raises, before it has let nothing run.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from dreamgym_kit.dream.call_log import CallPosition
from dreamgym_kit.interfaces import Approver, Situation
from dreamgym_kit.types import Answer, Approval, Call, HeldCall

if TYPE_CHECKING:
    from dreamgym_kit.routing.session import Identity, Session


@dataclass(frozen=True, slots=True)
class Predict:
    """Ask the dream what it would answer. Reply: its `Answer`."""

    call: Call
    situation: Situation


@dataclass(frozen=True, slots=True)
class AwaitApproval:
    """Ask whoever may approve. Reply: an `Approval`, or None; an exception but `Postponed` is a no."""

    held: HeldCall
    approver: Approver | None  # None: there is nobody to ask, which is a no
    seconds: float  # that there are for an answer
    over: Callable[[], bool] = bool  # whether no answer is of use any more


@dataclass(frozen=True, slots=True)
class Throttle:
    """Wait, so that no tool is called faster than it may be. Reply: nothing."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Execute:
    """Run the real body, now. Reply: what it answered, as an `Answer`."""


class Deferred(BaseException):
    """Thrown into a passage at `Hold`: the answer comes later, to a passage of its own. It goes through."""


Step = Predict | AwaitApproval | Throttle | Execute
Passage = Generator[Step, Answer | Approval | None, Answer]
"""The way of one call; its result is what the agent is told."""


class Overseer(Protocol):
    """Lets real calls through, one by one. Thread-safe; one for all the sessions of a run."""

    def affords(self, episodes: int) -> bool:
        """Whether so many more episodes can be expected to fit; where not, real calls have ended."""
        ...

    def passage(
        self,
        session: "Session",
        call: Call,
        place: CallPosition,
        identity: "Identity | None",
        exact: Callable[[], str | None],
    ) -> Passage:
        """The way of one call that the policy would have run under oversight.

        Args:
            session: whose call it is.
            call: the call as it is told and kept, without secrets.
            place: its place in the session.
            identity: names the request, so that a resumed node is told what it was told before.
            exact: a digest of the arguments as they are now, secrets and all; None where some have no form
                that tells them apart.

        Raises:
            EpisodeStop: the call does not run.
        """
        ...
