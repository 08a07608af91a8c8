"""The steps of a call's way to its answer, and the overseer that stands before a real call.

Each decision is written once, as a generator of steps that a driver carries out, in a thread or on a loop
(`Session.drive`). Under oversight the real body runs at `Execute` and nowhere else: a generator that ends, or
raises, before it has let nothing run.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from contextvars import copy_context
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from dreamgym_kit.dream.call_log import CallPosition
from dreamgym_kit.interfaces import Approver, Situation
from dreamgym_kit.threads import run_in_thread
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
    """Wait: no tool is called faster than it may be, and a slow one is late. Reply: nothing."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Execute:
    """Run the real body, now. Reply: what it answered, as an `Answer`."""


@dataclass(frozen=True, slots=True)
class RunBody:
    """`Execute` for a driver, which knows no bodies. Reply: what this one gives; on a loop it is awaited."""

    body: Callable[[], Any]


class Deferred(BaseException):
    """Thrown into a passage at `AwaitApproval`: the answer comes to a later passage. It goes through."""


Step = Predict | AwaitApproval | Throttle | Execute
Passage = Generator[Step, Answer | Approval | None, Answer]
"""The way of one call past its overseer; its result is what the agent is told."""
_Result = TypeVar("_Result")
Flow = Generator[Predict | AwaitApproval | Throttle | RunBody, Any, _Result]
"""What a driver carries out; what a step raises is raised in it."""
_GLANCE_S = 0.2  # between two looks at whether a question is still of use


class CallerApprover(ABC):
    """An approver that is asked where the call is made, in its own thread and context."""

    async def approve(self, held: HeldCall) -> Approval | None:
        """See `Approver.approve`."""
        return self.ask(held)

    @abstractmethod
    def ask(self, held: HeldCall) -> Approval | None:
        """An approval that names exactly this call; None is a no."""


async def approval(step: AwaitApproval) -> Approval | None:
    """The answer, while there is time for it; a question that is of no use any more is withdrawn."""
    if step.approver is None or isinstance(step.approver, CallerApprover):
        return approval_now(step)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + step.seconds
    asking = asyncio.ensure_future(step.approver.approve(step.held))
    try:
        async with asyncio.timeout_at(deadline):
            while not asking.done():
                if step.over():
                    return None
                await asyncio.wait({asking}, timeout=_GLANCE_S)
    finally:
        asking.cancel()
    given = asking.result()
    return given if loop.time() <= deadline else None  # one that cannot be interrupted may be late, too


def approval_now(step: AwaitApproval) -> Approval | None:
    """The same from a thread."""
    if step.approver is None:
        return None
    if isinstance(step.approver, CallerApprover):
        return step.approver.ask(step.held)
    context = copy_context()
    return run_in_thread(lambda: context.run(asyncio.run, approval(step)), name="dreamgym-approval")


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
