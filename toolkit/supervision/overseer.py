"""Lets real calls through, one by one: foreseen, held, paced, counted, written down, run, compared.

    latched? a limit reached?      nothing more is asked
    what would the dream answer?   before anything real is done
    held?                          an approval that names this very call; anything else is a no
    its turn                       no tool is called faster than it may be
    the last look, under a lock    latched meanwhile? approval used before? arguments changed? limits;
                                   the audit log announces the call and has it on the disk
    the real tool runs
    the audit log, the ledger      where it cannot be kept, no call follows
    dream and reality              parted: every later call is refused

A stop latches for the whole run: after it no real call of any episode runs, whoever asks.
"""

import secrets
import threading
from collections.abc import Callable, Generator
from dataclasses import replace
from time import time
from typing import NoReturn
from weakref import WeakKeyDictionary

from dreamgym_kit.canonical import canonical, digest
from dreamgym_kit.dream.call_log import CallPosition
from dreamgym_kit.dream.faults import is_transient
from dreamgym_kit.dream.json_values import copy_json
from dreamgym_kit.dream.observed import observation
from dreamgym_kit.errors import UserError
from dreamgym_kit.interfaces import Approver, Situation
from dreamgym_kit.routing.router import Stage
from dreamgym_kit.routing.session import Identity, Session
from dreamgym_kit.routing.supervision import AwaitApproval, Execute, Passage, Predict, Step, Throttle
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.supervision.audit import AuditLog
from dreamgym_kit.supervision.divergence import Compared, Divergence, Likeness
from dreamgym_kit.supervision.limits import (
    RealCallRefused,
    RealCallsStopped,
    RealLimits,
    RunStopped,
    Why,
    digest_of,
)
from dreamgym_kit.supervision.session import EpisodeNotes, effect_of
from dreamgym_kit.types import Answer, Approval, Call, Effect, HeldCall, Source

_MAX_TOLD = 1000  # characters of an answer that differs, in the log
_SURE = 0.9  # support from which one answer that differs casts doubt on what follows it in its episode

_NOTHING = Answer(source=Source.UNANSWERED, confidence=0.0)  # what the dream says where it cannot tell

Exact = Callable[[], str | None]
_Reply = Answer | Approval | None  # what a driver sends for a step


class RealOverseer:
    """Implements `routing.supervision.Overseer`; one for all sessions of a run.

    Args:
        limits: counts real calls.
        audit: is told of everything before and after it is done.
        divergence: holds real answers against the dream.
        approver: is asked about held calls; None: all of them are refused.
        approval_s: how long it has for an answer.
        unheld: destructive tools that run without an approval in `Stage.LIVE`, by their exact names.
        on_stop: is told once why no more real calls run.
    """

    def __init__(
        self,
        limits: RealLimits,
        audit: AuditLog,
        *,
        divergence: Divergence,
        approver: Approver | None,
        approval_s: float,
        unheld: frozenset[str],
        on_stop: Callable[[RealCallsStopped], None] | None = None,
    ) -> None:
        self.limits, self.audit, self.divergence = limits, audit, divergence
        self.approver, self.approval_s, self.unheld = approver, approval_s, unheld
        self.stopped: RealCallsStopped | None = None
        self.withheld = 0  # calls of episodes in doubt that did not run
        self.lock = threading.RLock()  # held for the last look before a call, and to stop
        self.used: set[str] = set()  # digests of approvals
        self._on_stop = on_stop
        self._began: set[str] = set()  # episodes that asked for a real call
        self._episodes: WeakKeyDictionary[Session, EpisodeNotes] = WeakKeyDictionary()

    def passage(
        self, session: Session, call: Call, place: CallPosition, identity: Identity | None, exact: Exact
    ) -> Passage:
        """See `Overseer.passage`."""
        if identity is not None and (before := session.ledger.remembered(identity)) is not None:
            return before
        return (yield from _RealCall(self, session, call, place, identity, exact).steps())

    def affords(self, episodes: int) -> bool:
        """See `Overseer.affords`; by the mean of the episodes so far, one call each while there are none."""
        if self.stopped is not None:
            return False
        expected = episodes * (self.limits.calls / len(self._began) if self._began else 1.0)
        if expected <= self.limits.left:
            return True
        left, most = self.limits.left, self.limits.budget
        text = f"{left} of {most} real calls are left, and {episodes} episodes take about {expected:.0f}"
        self.stop(RealCallsStopped(Why.BUDGET, text))
        return False

    def count_earlier(self, tool: str, episode: str) -> None:
        """Count a real call of an earlier leg, limit or not."""
        self.limits.count_earlier(tool)
        self._began.add(episode)

    def stop(self, stopped: RealCallsStopped) -> None:
        """From now on no real call runs. The first reason stays."""
        with self.lock:
            if self.stopped is not None:
                return
            self.stopped = stopped
        try:
            self.audit.append("stopped", why=stopped.why.value, text=stopped.text)
        except UserError:  # the log cannot be written: that it stops stands in the report all the same
            pass
        finally:
            if self._on_stop is not None:
                self._on_stop(stopped)

    def notes(self, session: Session) -> EpisodeNotes:
        """What is remembered of a session; its episode counts from now on."""
        with self.lock:
            if session not in self._episodes:
                self._episodes[session] = EpisodeNotes()
                self._began.add(session.episode)
            return self._episodes[session]


class _RealCall:
    """One call on its way to the real tool; see `Overseer.passage` for the arguments."""

    def __init__(
        self,
        overseer: RealOverseer,
        session: Session,
        call: Call,
        place: CallPosition,
        identity: Identity | None,
        exact: Exact,
    ) -> None:
        self._arguments = exact()
        self._overseer, self._session, self._place = overseer, session, place
        self._identity, self._exact = identity, exact
        self._call, self._effect = call, effect_of(session.spec(call, place))
        self._tool, self._writes = call.tool, self._effect.changes_environment

    def steps(self) -> Passage:
        """The way, from the first question to the comparison."""
        overseer, session, call = self._overseer, self._session, self._call
        if (stopped := overseer.stopped or overseer.limits.forbids(self._tool)) is not None:
            self._stop(stopped)
        self._notes = overseer.notes(session)
        writes, doubts = self._notes.writes, self._notes.doubts
        since, after, started = writes.now(), session.ledger.after(self._place), time()
        situation = session.situation(call, self._place, after)
        reply = yield Predict(call, situation)
        expected = reply if isinstance(reply, Answer) and not reply.asks else _NOTHING
        doubts_shown, approved = len(doubts), ""
        if self._needs_approval():
            approved = yield from self._approval(self._held_call(expected))
        if (pause := overseer.limits.pause_s(self._tool)) > 0:
            yield Throttle(pause)
        number = self._announce(approved, doubts_shown)
        with writes.under_way(writes=self._writes):
            answer = yield from self._run(number)
            if writes.beside(since, writes=self._writes):
                expected = _NOTHING  # who was first, nobody knows
            compared = self._compared(situation, expected, answer)
            try:
                self._log_answer(number, answer, compared, expected)
                session.keep_real(call, answer, self._place, after=after, started=started)
            except Exception as error:  # noqa: BLE001  an agent would take it for the tool's, and go on unseen
                why = f"{self._tool}: its answer cannot be kept ({type(error).__name__})"
                self._stop(RealCallsStopped(Why.AUDIT, why))
        if self._identity is not None:
            session.ledger.remember(self._identity, answer)
        if compared.parted:
            self._stop(RealCallsStopped(Why.DIVERGED, compared.parted))
        return answer

    # Held calls

    def _needs_approval(self) -> bool:
        """Whether somebody is asked; in doubt, an episode has none of its writes waved through."""
        if not self._writes:
            return False
        if self._session.policy.stage is not Stage.LIVE:
            return True
        if self._effect is Effect.DESTRUCTIVE and self._tool not in self._overseer.unheld:
            return True
        if doubts := self._notes.doubts:
            self._withhold(doubts[0])
        return False

    def _held_call(self, expected: Answer) -> HeldCall:
        """Return the call to show to the approver; a resumed node's call is the one shown before."""
        session, call = self._session, self._call
        doubts = self._doubts(expected)
        named = digest_of(call, session.id, self._number(doubts))
        if named is None:
            text = f"{self._tool}: an argument has no form by which an approval could name it"
            self._stop(RealCallsStopped(Why.REFUSED, text))
        own = replace(call, args=copy_json(dict(call.args)))  # whoever is asked may keep it, and change it
        self._log("held", digest=named, tool=self._tool, args=dict(call.args), episode=session.episode)
        return HeldCall(
            named, own, self._effect, session.episode, session.task, session.environment, expected, doubts
        )

    def _doubts(self, expected: Answer) -> tuple[str, ...]:
        """What speaks against the call."""
        doubts = list(self._notes.doubts)
        if times := self._notes.made.get(self._call.key, 0):
            doubts.append(f"this very call was made {times} times before in this episode")
        if expected.unanswered:
            doubts.append("the dream cannot tell what it would do")
        elif expected.error is not None:
            doubts.append(f"the dream expects it to fail: {expected.error}")
        return tuple(doubts)

    def _number(self, doubts: tuple[str, ...]) -> str:
        """Return a held call's number; a resumed node's call keeps its number if its doubts are the same."""
        if self._identity is None:
            return secrets.token_hex(16)  # nobody can guess it
        shown = self._notes.held_numbers.get(self._identity)
        if shown is None or shown[1] != doubts:
            shown = self._notes.held_numbers[self._identity] = (secrets.token_hex(16), doubts)
        return shown[0]

    def _approval(self, held_call: HeldCall) -> Generator[Step, _Reply, str]:
        """Ask for an approval; gives the digest that it named, used from now on."""
        overseer = self._overseer
        try:
            reply = yield AwaitApproval(
                held_call, overseer.approver, overseer.approval_s, lambda: overseer.stopped is not None
            )
        except TimeoutError:
            reply, why = None, f"nobody approved it within {overseer.approval_s:g} s"
        except Exception as error:  # noqa: BLE001  an approver that fails has not said yes
            reply, why = None, f"the approval failed: {type(error).__name__}"
        else:
            why = "it was not approved" if overseer.approver is not None else "there is nobody to approve it"
            if overseer.stopped is not None:
                why = "real calls had ended before it was approved"
        if not isinstance(reply, Approval):
            self._refuse(held_call, why)
        with overseer.lock:
            fresh = reply.digest not in overseer.used
            overseer.used.add(reply.digest)
        if reply.digest != held_call.digest:
            self._refuse(held_call, "the approval names another call")
        if not fresh:
            self._refuse(held_call, "the approval was used before")
        self._log("approved", digest=held_call.digest, tool=self._tool, by=reply.by)
        return held_call.digest

    def _refuse(self, held_call: HeldCall, why: str) -> NoReturn:
        self._log("refused", digest=held_call.digest, tool=self._tool, text=why)
        self._stop(RealCallsStopped(Why.REFUSED, f"{self._tool} did not run: {why}"))

    # The last look, and what comes after

    def _announce(self, approved: str, doubts_shown: int) -> int:
        """Everything that may still forbid it, and the log's word that it runs now; gives the line.

        `doubts_shown`: how many of the episode's doubts were known when it was asked whether it may run.
        """
        overseer, session, notes = self._overseer, self._session, self._notes
        unchanged = self._exact() == self._arguments
        with overseer.lock:
            session.check_open(self._tool)
            if overseer.stopped is not None:
                self._stop(overseer.stopped)
            if not unchanged:
                text = f"{self._tool} did not run: its arguments were changed on the way"
                self._stop(RealCallsStopped(Why.REFUSED, text))
            if self._writes and len(notes.doubts) > doubts_shown:
                self._withhold(f"while it waited, {notes.doubts[doubts_shown]}")
            if (stopped := overseer.limits.take(self._tool)) is not None:
                self._stop(stopped)
            if self._writes:
                notes.made[self._call.key] = notes.made.get(self._call.key, 0) + 1
            return self._log(
                "call",
                tool=self._tool,
                effect=self._effect.value,
                args=dict(self._call.args),
                episode=session.episode,
                environment=str(session.environment),
                stage=session.policy.stage.value,
                approved=approved,
            )

    def _run(self, number: int) -> Generator[Step, _Reply, Answer]:
        """The real tool. What becomes of a call whose end nobody saw stands in the log, too."""
        answer: _Reply = None
        try:
            answer = yield Execute()
        finally:
            if not isinstance(answer, Answer):
                text = "nobody saw its end; it may have taken effect"
                self._overseer.audit.append("unknown", call=number, text=text)
        if not isinstance(answer, Answer):
            raise TypeError("a real call came back without an answer")
        return answer

    def _compared(self, situation: Situation, expected: Answer, answer: Answer) -> Compared:
        """Hold the answer against the dream's; where that fails, no more real calls run."""
        overseer, session, notes = self._overseer, self._session, self._notes
        try:
            where = digest([session.tenant, str(session.environment), situation.after, self._call.key])
            if notes.unsure:
                expected = _NOTHING
            if is_transient(answer) and situation.tool.effect.changes_environment:
                notes.unsure = True
            compared = overseer.divergence.take(situation.tool, expected, answer, where=where)
            if compared.differs and compared.support >= _SURE:
                doubt = f"{self._tool} answered otherwise than the dream, which was sure, expected"
                notes.doubts.append(doubt)
            if compared.parted:  # latched before anybody else gets to his last look
                with overseer.lock:
                    overseer.stop(RealCallsStopped(Why.DIVERGED, compared.parted))
        except Exception as error:  # noqa: BLE001  a fault of ours must not look like the tool's, nor blind us
            why = f"{self._tool}: its answer cannot be compared ({type(error).__name__})"
            overseer.stop(RealCallsStopped(Why.DIVERGED, why))
            return Compared(Likeness.UNKNOWN, 0.0, why)
        return compared

    def _log_answer(self, number: int, answer: Answer, compared: Compared, expected: Answer) -> None:
        differs: dict[str, JsonValue] = {}
        if compared.differs:
            differs = {
                "expected": canonical(observation(expected))[:_MAX_TOLD],
                "told": canonical(observation(answer))[:_MAX_TOLD],
                "by": expected.source.value,
                "support": round(compared.support, 4),
            }
        self._log(
            "answered",
            call=number,
            tool=self._tool,
            failed=answer.error is not None,
            digest=digest(observation(answer)),
            likeness=compared.likeness.value,
            **differs,
        )

    def _log(self, kind: str, **facts: object) -> int:
        """A line of the audit log; where it cannot be written, nothing runs any more."""
        try:
            return self._overseer.audit.append(kind, **facts)
        except UserError as error:
            self._stop(RealCallsStopped(Why.AUDIT, str(error)))

    def _withhold(self, doubt: str) -> NoReturn:
        """End this episode; others go on."""
        refused = RealCallRefused(f"{self._tool} did not run: {doubt}")
        with self._overseer.lock:
            self._overseer.withheld += 1
        self._log("withheld", tool=self._tool, text=str(refused), episode=self._session.episode)
        self._end_episode(refused)

    def _stop(self, stopped: RealCallsStopped) -> NoReturn:
        """End the run's real calls, and this episode."""
        self._overseer.stop(stopped)
        self._end_episode(RunStopped(self._overseer.stopped or stopped))

    def _end_episode(self, refused: RealCallRefused) -> NoReturn:
        self._session.stopped = self._session.stopped or refused
        raise refused
