"""The steps of a call to its answer, and the overseer's interface for real calls.

Each decision is a generator of steps that a driver executes, in a thread or on an event loop
(`Session.drive`). Under supervision the real body runs only at `Execute`: a generator that ends or raises
earlier has run nothing.
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
    """Request the dream's answer. Reply: its `Answer`."""

    call: Call
    situation: Situation


@dataclass(frozen=True, slots=True)
class AwaitApproval:
    """Request approval. Reply: an `Approval`, or None; exceptions other than `Deferred` are a no."""

    held_call: HeldCall
    approver: Approver | None  # None: no approver, which is a no
    seconds: float  # time limit of the answer
    over: Callable[[], bool] = bool  # whether an answer is no longer needed


@dataclass(frozen=True, slots=True)
class Throttle:
    """Wait, for rate limits and injected delays. Reply: nothing."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Execute:
    """Run the real body now. Reply: its `Answer`."""


@dataclass(frozen=True, slots=True)
class RunBody:
    """`Execute` with its body, for a driver. Reply: the body's result; on a loop it is awaited."""

    body: Callable[[], Any]


class Deferred(BaseException):
    """Thrown into a passage at `AwaitApproval`: a later passage gets the answer. It is not caught."""


Step = Predict | AwaitApproval | Throttle | Execute
Passage = Generator[Step, Answer | Approval | None, Answer]
"""The supervised steps of one call; returns the agent's answer."""
_Result = TypeVar("_Result")
Flow = Generator[Predict | AwaitApproval | Throttle | RunBody, Any, _Result]
"""Steps for a driver; a step's exception is raised in the generator."""
_GLANCE_S = 0.2  # between two checks whether a request is still needed


class CallerApprover(ABC):
    """An approver that runs in the call's own thread and context."""

    async def approve(self, held: HeldCall) -> Approval | None:
        """See `Approver.approve`."""
        return self.ask(held)

    @abstractmethod
    def ask(self, held: HeldCall) -> Approval | None:
        """Return an approval of exactly this call; None is a no."""


async def approval(step: AwaitApproval) -> Approval | None:
    """Await the answer within the time limit; withdraw a request that is no longer needed."""
    if step.approver is None or isinstance(step.approver, CallerApprover):
        return approval_now(step)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + step.seconds
    asking = asyncio.ensure_future(step.approver.approve(step.held_call))
    try:
        async with asyncio.timeout_at(deadline):
            while not asking.done():
                if step.over():
                    return None
                await asyncio.wait({asking}, timeout=_GLANCE_S)
    finally:
        asking.cancel()
    given = asking.result()
    return given if loop.time() <= deadline else None  # an uninterruptible approver may be late


def approval_now(step: AwaitApproval) -> Approval | None:
    """Like `approval`, from a thread."""
    if step.approver is None:
        return None
    if isinstance(step.approver, CallerApprover):
        return step.approver.ask(step.held_call)
    context = copy_context()
    return run_in_thread(lambda: context.run(asyncio.run, approval(step)), name="dreamgym-approval")


class Overseer(Protocol):
    """Admits real calls one by one. Thread-safe; one for all sessions of a run."""

    def affords(self, episodes: int) -> bool:
        """Return whether the budget is expected to allow more episodes; if not, real calls have ended."""
        ...

    def passage(
        self,
        session: "Session",
        call: Call,
        place: CallPosition,
        identity: "Identity | None",
        exact: Callable[[], str | None],
    ) -> Passage:
        """Return the supervised steps of one call.

        Args:
            session: the call's session.
            call: the call without secrets, as reported and stored.
            place: its place in the session.
            identity: identifies the request, so that a resumed node gets the same answer.
            exact: returns a digest of the current arguments including secrets; None if some arguments have no
                distinguishing form.

        Raises:
            EpisodeStop: the call does not run.
        """
        ...
