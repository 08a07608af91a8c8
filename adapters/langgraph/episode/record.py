"""What is known of an episode while it runs, and the record that is made of it: at its end, or before."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from dreamgym_kit.adapters.langgraph.episode.state import EpisodeState
from dreamgym_kit.adapters.langgraph.episode.transcript import final_state
from dreamgym_kit.adapters.langgraph.episode.usage import UsageCounter
from dreamgym_kit.interfaces import Judgement
from dreamgym_kit.routing.session import Session
from dreamgym_kit.types import Episode, Finding, Task, Verdict, format_executed


@dataclass(frozen=True, slots=True, kw_only=True)
class Lived:
    """One episode so far."""

    task: Task
    repeat: int
    attempt: int
    session: Session
    usage: UsageCounter
    course: EpisodeState
    started: float = field(default_factory=time.time)
    clock: float = field(default_factory=time.perf_counter)

    def episode(self, judgement: Judgement, findings: Sequence[Finding]) -> Episode:
        """The record, secrets in its texts included."""
        session, usage, course, task = self.session, self.usage, self.course, self.task
        return Episode(
            id=f"{task.id}.{self.repeat}",
            task=task.id,
            repeat=self.repeat,
            environment=task.environment,
            verdict=judgement.verdict,
            reason=judgement.reason,
            reward=judgement.reward,
            transitions=session.ledger.transitions(),
            messages=tuple(course.transcript.records),
            stop=course.stop,
            violations=tuple(session.violations),
            executed=tuple(session.executed),
            findings=tuple(findings),
            model_calls=usage.calls,
            tokens=usage.tokens,
            cost_usd=usage.cost_usd + sum(spend.cost_usd for spend in session.spends.values()),
            attempt=self.attempt,
            started_at=self.started,
            elapsed_s=time.perf_counter() - self.clock,
            counts=dict(session.counts),
            final=final_state(course.values),
            dream_spend=dict(sorted(session.spends.items())),
            user_turns=tuple(course.turns),
            traceback=course.traceback,
        )

    def executed(self) -> Episode:
        """The record of an episode in which real calls ran: a failure, whatever else it was."""
        reason = format_executed(self.session.executed)
        self.course.stop, self.course.reason = "executed", reason
        return self.episode(Judgement(Verdict.FAILED, reason, 0.0), ())
