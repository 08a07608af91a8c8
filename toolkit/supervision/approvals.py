"""Approvals: what they are bound to, and the rules that give them.

An approval names the digest of one held call: its tool, its arguments, its session and a number drawn for
this very call. So it fits no other call, no other session or process, and not the same call a second time.
"""

import inspect
import secrets
from collections.abc import Callable

from dreamgym_kit.canonical import digest
from dreamgym_kit.errors import UserError
from dreamgym_kit.interfaces import Approver
from dreamgym_kit.serialization import is_exact
from dreamgym_kit.threads import run_in_thread_async
from dreamgym_kit.types import Approval, Call, HeldCall

Rule = Callable[[HeldCall], object]
"""A person's own function: True, and nothing else, is a yes."""


def drawn_number() -> str:
    """A number that nobody can guess, for one held call."""
    return secrets.token_hex(16)


def digest_of(call: Call, session: str, number: str) -> str | None:
    """What an approval of this call has to name; None where its arguments do not tell it apart."""
    if not all(is_exact(value) for value in call.args.values()):
        return None
    return digest([session, number, call.tool, dict(call.args)])


class RuleApprover:
    """Implements `interfaces.Approver` by a function of the user's own; `async def` is fine too.

    One that is not runs in a thread: it may hang, and neither the loop nor the time for an answer may.
    """

    def __init__(self, rule: Rule, name: str) -> None:
        self._rule, self._name = rule, name

    async def approve(self, held: HeldCall) -> Approval | None:
        """See `Approver.approve`."""
        if inspect.iscoroutinefunction(self._rule):
            reply: object = self._rule(held)
        else:
            reply = await run_in_thread_async(lambda: self._rule(held), name="dreamgym-approval")
        if inspect.isawaitable(reply):
            reply = await reply
        return Approval(held.digest, self._name) if reply is True else None


def approver_from(approver: Approver | Rule) -> Approver:
    """An approver as it is, or one made of a function.

    Raises:
        UserError: it is neither.
    """
    if isinstance(approver, Approver):
        return approver
    if not callable(approver):
        raise UserError(f"approve: expected an approver or a function, got {type(approver).__name__}.")
    return RuleApprover(approver, getattr(approver, "__qualname__", type(approver).__name__))
