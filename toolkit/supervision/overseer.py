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
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from time import time
from typing import NoReturn
from weakref import WeakKeyDictionary

from dreamgym_kit.canonical import canonical, digest
from dreamgym_kit.dream.call_log import CallPosition
from dreamgym_kit.dream.faults import is_transient
from dreamgym_kit.dream.state.observed import observation
from dreamgym_kit.dream.state.values import copy_json
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
        self.stopped: RealCallsStopped | None = None
        self.withheld = 0  # calls of episodes in doubt that did not run
        self._approver, self._approval_s = approver, approval_s
        self._unheld, self._on_stop = unheld, on_stop
        self._lock = threading.RLock()
        self._began: set[str] = set()  # episodes that asked for a real call
        self._used: set[str] = set()  # digests of approvals
        self._episodes: WeakKeyDictionary[Session, EpisodeNotes] = WeakKeyDictionary()

    def passage(
        self, session: Session, call: Call, place: CallPosition, identity: Identity | None, exact: Exact
    ) -> Passage:
        """See `Overseer.passage`."""
        if identity is not None and (before := session.ledger.remembered(identity)) is not None:
            return before
        arguments, approved = exact(), ""
        call, effect = session.masked(call), effect_of(session.spec(call, place))
        if (stopped := self.stopped or self.limits.forbids(call.tool)) is not None:
            self._stop_for(session, stopped)
        episode = self._episode(session)
        since, after, started = episode.writes.now(), session.ledger.after(place), time()
        situation = session.situation(call, place, after)
        reply = yield Predict(call, situation)
        expected = reply if isinstance(reply, Answer) and not reply.asks else _NOTHING
        doubts = len(episode.doubts)
        if self._waits(session, effect, call.tool):
            held = self._held(session, call, effect, identity, expected)
            approved = yield from self._approved(session, held)
        if (pause := self.limits.pause_s(call.tool)) > 0:
            yield Throttle(pause)
        number = self._announce(
            session, call, effect, approved, unchanged=exact() == arguments, doubts=doubts
        )
        with episode.writes.under_way(writes=effect.changes_environment):
            answer = yield from self._run(number)
            if episode.writes.beside(since, writes=effect.changes_environment):
                expected = _NOTHING  # who was first, nobody knows
            compared = self._seen(session, call, situation, expected, answer)
            with self._keeping(session, call):
                self._write_down(session, number, call, answer, compared, expected)
                session.keep_real(call, answer, place, after=after, started=started)
        if identity is not None:
            session.ledger.remember(identity, answer)
        if compared.parted:
            self._stop_for(session, RealCallsStopped(Why.DIVERGED, compared.parted))
        return answer

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
        with self._lock:
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

    # Held calls

    def _waits(self, session: Session, effect: Effect, tool: str) -> bool:
        """Whether a call needs an approval; an episode in doubt has none of its writes waved through."""
        if not effect.changes_environment:
            return False
        if session.policy.stage is Stage.LIVE:
            if effect is Effect.DESTRUCTIVE and tool not in self._unheld:
                return True
            if doubts := self._episode(session).doubts:
                self._withhold(session, tool, doubts[0])
            return False
        return True

    def _held(
        self, session: Session, call: Call, effect: Effect, identity: Identity | None, expected: Answer
    ) -> HeldCall:
        """The call as it is shown to whoever may approve; a resumed node's is the one that was shown."""
        doubts = self._doubts(session, call, expected)
        named = digest_of(call, session.id, self._number(session, identity, doubts))
        if named is None:
            text = f"{call.tool}: an argument has no form by which an approval could name it"
            self._stop_for(session, RealCallsStopped(Why.REFUSED, text))
        own = replace(call, args=copy_json(dict(call.args)))  # whoever is asked may keep it, and change it
        held = HeldCall(
            named, own, effect, session.episode, session.task, session.environment, expected, doubts
        )
        self._log(
            session, "held", digest=named, tool=call.tool, args=dict(call.args), episode=session.episode
        )
        return held

    def _doubts(self, session: Session, call: Call, expected: Answer) -> tuple[str, ...]:
        """What speaks against a call."""
        episode = self._episode(session)
        doubts = list(episode.doubts)
        if times := episode.made.get(call.key, 0):
            doubts.append(f"this very call was made {times} times before in this episode")
        if expected.unanswered:
            doubts.append("the dream cannot tell what it would do")
        elif expected.error is not None:
            doubts.append(f"the dream expects it to fail: {expected.error}")
        return tuple(doubts)

    def _number(self, session: Session, identity: Identity | None, doubts: tuple[str, ...]) -> str:
        """A number for a held call; the one that it had, where a resumed node makes it and nothing is new."""
        shown = self._episode(session).held
        known = shown.get(identity) if identity is not None else None
        if known is not None and known[1] == doubts:
            return known[0]
        number = secrets.token_hex(16)  # nobody can guess it
        if identity is not None:
            shown[identity] = (number, doubts)
        return number

    def _approved(self, session: Session, held: HeldCall) -> Generator[Step, Answer | Approval | None, str]:
        """Ask for an approval; gives the digest that it named, used from now on."""
        try:
            reply = yield AwaitApproval(
                held, self._approver, self._approval_s, lambda: self.stopped is not None
            )
        except TimeoutError:
            reply, why = None, f"nobody approved it within {self._approval_s:g} s"
        except Exception as error:  # noqa: BLE001  an approver that fails has not said yes
            reply, why = None, f"the approval failed: {type(error).__name__}"
        else:
            why = "it was not approved" if self._approver is not None else "there is nobody to approve it"
            if self.stopped is not None:
                why = "real calls had ended before it was approved"
        if not isinstance(reply, Approval):
            self._refuse_held(session, held, why)
        with self._lock:
            fits, fresh = reply.digest == held.digest, reply.digest not in self._used
            self._used.add(reply.digest)
        if not fits:
            self._refuse_held(session, held, "the approval names another call")
        if not fresh:
            self._refuse_held(session, held, "the approval was used before")
        self._log(session, "approved", digest=held.digest, tool=held.call.tool, by=reply.by)
        return held.digest

    def _refuse_held(self, session: Session, held: HeldCall, why: str) -> NoReturn:
        self._log(session, "refused", digest=held.digest, tool=held.call.tool, text=why)
        self._stop_for(session, RealCallsStopped(Why.REFUSED, f"{held.call.tool} did not run: {why}"))

    # The last look, and what comes after

    def _announce(
        self, session: Session, call: Call, effect: Effect, approved: str, *, unchanged: bool, doubts: int
    ) -> int:
        """Everything that may still forbid it, and the log's word that it runs now; gives the line.

        `doubts` of the episode were known when it was last asked whether it may run.
        """
        with self._lock:
            session.check_open(call.tool)
            if self.stopped is not None:
                self._stop_for(session, self.stopped)
            if not unchanged:
                text = f"{call.tool} did not run: its arguments were changed on the way"
                self._stop_for(session, RealCallsStopped(Why.REFUSED, text))
            episode = self._episode(session)
            if effect.changes_environment and len(episode.doubts) > doubts:
                self._withhold(session, call.tool, f"while it waited, {episode.doubts[doubts]}")
            if (stopped := self.limits.take(call.tool)) is not None:
                self._stop_for(session, stopped)
            if effect.changes_environment:
                episode.made[call.key] = episode.made.get(call.key, 0) + 1
            return self._log(
                session,
                "call",
                tool=call.tool,
                effect=effect.value,
                args=dict(call.args),
                episode=session.episode,
                environment=str(session.environment),
                stage=session.policy.stage.value,
                approved=approved,
            )

    def _run(self, number: int) -> Generator[Step, Answer | Approval | None, Answer]:
        """The real tool. What becomes of a call whose end nobody saw stands in the log, too."""
        answer: Answer | Approval | None = None
        try:
            answer = yield Execute()
        finally:
            if not isinstance(answer, Answer):
                self.audit.append("unknown", call=number, text="nobody saw its end; it may have taken effect")
        if not isinstance(answer, Answer):
            raise TypeError("a real call came back without an answer")
        return answer

    def _seen(
        self, session: Session, call: Call, situation: Situation, expected: Answer, answer: Answer
    ) -> Compared:
        """Compare; where that fails, no more real calls run."""
        try:
            return self._compare(session, call, situation, expected, answer)
        except Exception as error:  # noqa: BLE001  a fault of ours must not look like the tool's, nor blind us
            why = f"{call.tool}: its answer cannot be compared ({type(error).__name__})"
            self.stop(RealCallsStopped(Why.DIVERGED, why))
            return Compared(Likeness.UNKNOWN, 0.0, why)

    def _compare(
        self, session: Session, call: Call, situation: Situation, expected: Answer, answer: Answer
    ) -> Compared:
        where = digest([session.tenant, str(session.environment), situation.after, call.key])
        episode = self._episode(session)
        if episode.unsure:
            expected = _NOTHING
        if is_transient(answer) and situation.tool.effect.changes_environment:
            episode.unsure = True
        compared = self.divergence.take(situation.tool, expected, answer, where=where)
        if compared.differs and compared.support >= _SURE:
            doubt = f"{call.tool} answered otherwise than the dream, which was sure, expected"
            episode.doubts.append(doubt)
        if compared.parted:  # latched before anybody else gets to his last look
            with self._lock:
                self.stop(RealCallsStopped(Why.DIVERGED, compared.parted))
        return compared

    @contextmanager
    def _keeping(self, session: Session, call: Call) -> Iterator[None]:
        """Where an answer cannot be kept, nothing real runs any more."""
        try:
            yield
        except Exception as error:  # noqa: BLE001  an agent would take it for the tool's, and go on unseen
            why = f"{call.tool}: its answer cannot be kept ({type(error).__name__})"
            self._stop_for(session, RealCallsStopped(Why.AUDIT, why))

    def _write_down(
        self,
        session: Session,
        number: int,
        call: Call,
        answer: Answer,
        compared: Compared,
        expected: Answer,
    ) -> None:
        differs: dict[str, JsonValue] = {}
        if compared.differs:
            differs = {
                "expected": _short(expected),
                "told": _short(answer),
                "by": expected.source.value,
                "support": round(compared.support, 4),
            }
        self._log(
            session,
            "answered",
            call=number,
            tool=call.tool,
            failed=answer.error is not None,
            digest=digest(observation(answer)),
            likeness=compared.likeness.value,
            **differs,
        )

    def _log(self, session: Session, kind: str, **facts: object) -> int:
        """A line of the audit log; where it cannot be written, nothing runs any more."""
        try:
            return self.audit.append(kind, **facts)
        except UserError as error:
            self._stop_for(session, RealCallsStopped(Why.AUDIT, str(error)))

    def _withhold(self, session: Session, tool: str, doubt: str) -> NoReturn:
        """End this episode; others go on."""
        text = f"{tool} did not run: {doubt}"
        with self._lock:
            self.withheld += 1
        self._log(session, "withheld", tool=tool, text=text, episode=session.episode)
        refused = RealCallRefused(text)
        session.stopped = session.stopped or refused
        raise refused

    def _stop_for(self, session: Session, stopped: RealCallsStopped) -> NoReturn:
        """End the run's real calls, and this episode."""
        self.stop(stopped)
        ended = RunStopped(self.stopped or stopped)
        session.stopped = session.stopped or ended
        raise ended

    def _episode(self, session: Session) -> EpisodeNotes:
        with self._lock:
            if session not in self._episodes:
                self._episodes[session] = EpisodeNotes()
                self._began.add(session.episode)
            return self._episodes[session]


def _short(answer: Answer) -> str:
    """What an answer told, for a person to look at."""
    return canonical(observation(answer))[:_MAX_TOLD]
