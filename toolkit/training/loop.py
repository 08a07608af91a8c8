"""The loop: collect groups in the dream, learn from them, sync, attest, evaluate; stop where in doubt.

    source(n)   tasks of step n -> groups -> batch            rollouts, on the loop aside
                judges agree? anything to learn?              alarms before an update is made
    update n                                                  the trainer, on this thread
    after(n)    figures in their corridor? -> weights written -> server loads them -> canaries agree?
                -> line in steps.jsonl -> evaluation, where one is due -> what waits is kept
    checkpoint n                                              the trainer; step n is kept from here on

Only orchestration: who collects, learns and serves stands behind ports. A step follows from the weights, the
seed and its number, so a run that was killed at any point and resumed is the unbroken run. With staleness k
the rollouts of the next k steps go on while a step's update runs; they have ended before new weights are
loaded, so which weights sampled what does not depend on time.
"""

import asyncio
import shutil
import time
from collections.abc import Coroutine
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any, TypeVar

from dreamgym_kit.errors import EndpointError, TrainingStopped
from dreamgym_kit.interfaces import EventSink
from dreamgym_kit.rollout.stop import StopSwitch
from dreamgym_kit.threads import BackgroundLoop
from dreamgym_kit.training.alarms import (
    EXECUTED,
    SERVER,
    STALE_WEIGHTS,
    Alarm,
    alarm_of_judges,
    alarm_of_update,
    canaries_of,
    known_text_alarm,
    logprobs_alarm,
    no_signal,
    sampling_gap,
    version_alarm,
)
from dreamgym_kit.training.batching import batch_of, corrected, staleness_of, version_of
from dreamgym_kit.training.plan import InTurn, Trained, TrainParts, TrainPlan, step_seed
from dreamgym_kit.training.records import (
    CourseRecord,
    Drawn,
    EvaluationRecord,
    StateFolder,
    StepRecord,
    append_record,
    cut_back,
    evaluated,
    read_courses,
    read_evaluations,
    read_steps,
    record_of,
)
from dreamgym_kit.training.samples import BY_RATIO
from dreamgym_kit.trust.weight_check import attest
from dreamgym_kit.turns import Batch, UpdateFacts

T = TypeVar("T")

WEIGHTS, STATE = "weights", "state"


class _Ended(Exception):
    """Ends the trainer's loop between two steps, without an alarm."""


class TrainingLoop:
    """One leg of a training; who made its folder holds the lock."""

    def __init__(
        self,
        plan: TrainPlan,
        parts: TrainParts,
        *,
        folder: Path,
        aside: BackgroundLoop,
        events: EventSink,
        stop: StopSwitch,
    ) -> None:
        """Make it ready; `folder` is the run directory, and `aside` the loop that the parts await on."""
        self._plan, self._parts = plan, parts
        self._folder, self._aside, self._events, self._stop = folder, aside, events, stop
        self._state = StateFolder(folder / STATE)
        wanted = plan.train
        self._chooser = parts.chooser or InTurn(plan.tasks, wanted.tasks_per_step, wanted.seed)
        self._steps: list[StepRecord] = []
        self._evaluations: list[EvaluationRecord] = []
        self._waiting: dict[int, Drawn] = {}
        self._ahead: dict[int, Future[Drawn]] = {}
        self._now: Drawn | None = None
        self._canaries: list[list[int]] = []
        self._scored: list[list[float]] | None = None
        self._spent: dict[str, float] = {}
        self._saved = 0
        self._weights: Path | None = None
        self._left = time.monotonic()

    def run(self) -> Trained:
        """Go on from the last whole checkpoint to the last step, or to where something ends it.

        Raises:
            UserError: a part cannot be used as asked.
        """
        alarm: TrainingStopped | None = None
        try:
            self._begin()
            self._parts.trainer.fit(self._source, steps=self._plan.train.steps, after=self._after)
            self._keep(self._parts.trainer.step)
        except _Ended:
            pass
        except TrainingStopped as stopped:
            alarm = stopped
            self._forget(stopped.step)
            self._events.emit("alarm", alarm=stopped.alarm, text=stopped.text, step=stopped.step)
        finally:
            for future in self._ahead.values():
                future.cancel()
        return Trained(
            checkpoint=self._saved,
            steps=tuple(self._steps),
            evaluations=tuple(self._evaluations),
            weights=self._weights if self._saved else None,
            alarm=alarm,
            stopped=self._stop.reason if self._stop.requested else "",
        )

    def _begin(self) -> None:
        """Take up what the last checkpoint left, and prove that the server has its weights."""
        step = self._parts.trainer.step
        cut_back(self._folder, step)
        self._steps, self._evaluations = read_steps(self._folder), read_evaluations(self._folder)
        self._waiting = {drawn.batch.step: drawn for drawn in self._state.read(step)}
        courses = {course.step: course.course for course in read_courses(self._folder)}
        self._chooser.restore(courses | {later: drawn.course for later, drawn in self._waiting.items()})
        self._saved = step
        self._events.emit("training_started", step=step, steps=self._plan.train.steps)
        self._sync(step)
        if self._parts.known_ids is not None:
            self._stop_on(
                self._wait_for(known_text_alarm(self._parts.policy, self._parts.known_ids), step), step
            )
        if self._evaluation_due(step):
            self._evaluate(step)
        self._left = time.monotonic()

    def _source(self, step: int) -> Batch:
        """What step `step` learns from; see `Trainer.fit`."""
        began = time.monotonic()
        self._keep(step - 1)
        self._heed_stop(step)
        self._spent = {"checkpoint": began - self._left}
        drawn = self._taken(step)
        self._spent |= {"rollouts": drawn.seconds, "waited": time.monotonic() - began}
        self._stop_on(
            alarm_of_judges([*(past.facts for past in self._steps), drawn.facts], self._plan.alarms), step
        )
        batch = drawn.batch
        if staleness_of(batch) > 1 and self._plan.train.algorithm in BY_RATIO:
            batch = corrected(batch, self._parts.trainer.score([sample.ids for sample in batch.samples]))
        self._now = drawn
        self._canaries = canaries_of(batch)
        self._scored = self._parts.trainer.score(self._canaries)
        self._collect_ahead(step)
        self._events.emit("step_collected", step=step, success=drawn.facts.share, tokens=drawn.facts.tokens)
        return batch

    def _after(self, update: UpdateFacts) -> None:
        """Look at an update, bring it to the server, and write down what it was; see `Trainer.fit`."""
        step, drawn = update.step, self._now
        if drawn is None:
            raise ValueError("an update without a batch of ours")
        self._stop_on(alarm_of_update(update, self._steps, self._plan.alarms), step)
        began = time.monotonic()
        wait(self._ahead.values())
        self._spent["waited"] += time.monotonic() - began
        gap = self._sync(step)
        record = record_of(
            drawn.facts,
            update,
            draws=drawn.draws,
            staleness=staleness_of(drawn.batch),
            canary_gap=gap,
            seconds=self._spent,
        )
        if drawn.course is not None:
            append_record(self._folder, CourseRecord(step, drawn.course))
        append_record(self._folder, record)
        self._steps.append(record)
        self._events.emit("step_finished", **_step_event(record))
        if self._evaluation_due(step):
            self._evaluate(step)
        self._settle(step)
        self._left = time.monotonic()

    # Rollouts

    def _taken(self, step: int) -> Drawn:
        """The batch of a step: kept from before, collected ahead, or collected now."""
        if step in self._waiting:
            return self._waiting.pop(step)
        future = self._ahead.pop(step, None) or self._aside.start(self._draw(step))
        try:
            return future.result()
        except EndpointError as error:
            raise Alarm(SERVER, f"the policy's server gave no answers: {error}").stop(step) from error

    def _collect_ahead(self, step: int) -> None:
        """Begin the rollouts that may be as many updates behind as settings allow, in their order."""
        last = min(step + self._plan.train.staleness, self._plan.train.steps)
        before: Future[Drawn] | None = None
        for later in range(step + 1, last + 1):
            if later in self._waiting or self._stop.requested:
                continue
            before = self._ahead.get(later) or self._aside.start(self._draw(later, after=before))
            self._ahead[later] = before

    async def _draw(self, step: int, *, after: "Future[Drawn] | None" = None) -> Drawn:
        """Collect groups until there is something to learn from."""
        if after is not None:
            await asyncio.wait([asyncio.ensure_future(asyncio.wrap_future(after))])  # however it ends
        began = time.monotonic()
        wanted = self._plan.train
        for draw in range(1, self._plan.alarms.max_zero_variance_draws + 1):
            tasks = await self._chooser.tasks(step, draw)
            seed = step_seed(wanted.seed, step, draw)
            groups = await self._parts.collector.collect(tasks, wanted.group_size, step=step, seed=seed)
            self._heed_stop(step)
            left = self._chooser.saw(step, groups)
            batch, facts = batch_of(
                step, groups, algorithm=wanted.algorithm, pairs=wanted.dpo_pairs, left_out=left
            )
            if batch.samples:
                await self._spot_check(batch)
                return Drawn(batch, facts, draw, time.monotonic() - began, self._chooser.course(step))
            self._events.emit("draw_without_signal", step=step, draw=draw, dead=facts.dead, small=facts.small)
        await self._parts.policy.score([[0, 0]])  # a server that is gone leaves nothing decided either
        raise no_signal(facts, draw, wanted.algorithm, groups).stop(step)

    async def _spot_check(self, batch: Batch) -> None:
        """Have the server score some of what it just sampled; overlapped, no trainer has these weights."""
        if self._plan.temperature != 1.0:  # at which it scores
            return
        rows = canaries_of(batch)
        gap = sampling_gap(batch, await self._parts.policy.score(rows))
        if not gap <= self._plan.alarms.logprobs:
            raise logprobs_alarm(gap, "the server itself", self._plan.alarms).stop(batch.step)

    # Weights

    def _sync(self, step: int) -> float | None:
        """Bring the trainer's weights to the server and prove that they arrived; gives the canaries' gap."""
        version, trainer = version_of(step), self._parts.trainer
        began = time.monotonic()
        weights = self._folder / WEIGHTS / version
        weights.parent.mkdir(exist_ok=True)
        trainer.write_weights(weights)
        self._wait_for(self._parts.policy.load(weights, version), step)
        self._spent["sync"] = time.monotonic() - began
        began = time.monotonic()
        self._stop_on(version_alarm(self._parts.policy, version), step)
        gap = self._attest(step) if self._canaries else None
        self._spent["attest"] = time.monotonic() - began
        self._weights = weights
        return gap

    def _attest(self, step: int) -> float:
        now = self._parts.trainer.score(self._canaries)
        served = self._wait_for(self._parts.policy.score(self._canaries), step)
        gap, problem = attest(served, now, self._scored, most=self._plan.alarms.stale_weights)
        if problem:
            raise Alarm(STALE_WEIGHTS, problem).stop(step)
        return gap

    # Evaluation and keeping

    def _evaluation_due(self, step: int) -> bool:
        if self._parts.examiner is None or not self._plan.held_out or self._stop.requested:
            return False
        every, last = self._plan.train.eval_every, self._plan.train.steps
        planned = step in (0, last) or (every > 0 and step % every == 0)
        return planned and all(done.step != step for done in self._evaluations)

    def _evaluate(self, step: int) -> None:
        """Measure; one that was stopped half-way is not kept, and a resume begins with it."""
        if self._parts.examiner is None:
            return
        wanted = self._plan.train
        self._events.emit("evaluation_started", step=step, episodes=len(self._plan.held_out) * wanted.eval_n)
        work = evaluated(
            self._parts.examiner,
            self._plan.held_out,
            n=wanted.eval_n,
            step=step,
            seed=wanted.seed,
            real=self._parts.real,
        )
        record = self._wait_for(work, step)
        if self._stop.code is not None:
            self._heed_stop(step + 1)  # the weights that were measured are kept
        if self._stop.requested:
            return
        append_record(self._folder, record)
        self._evaluations.append(record)
        self._events.emit(
            "evaluated", step=step, success=record.success, decided=record.decided, real=record.real
        )

    def _settle(self, step: int) -> None:
        """Keep what was collected ahead. A rollout that failed is made again when its step comes."""
        for later, future in list(self._ahead.items()):
            if not future.cancelled() and future.exception() is None:
                self._waiting[later] = self._ahead.pop(later).result()
        oldest = step - (self._plan.train.keep_checkpoints + 1) * self._plan.train.save_every
        self._state.write(step, [self._waiting[later] for later in sorted(self._waiting)], keep_from=oldest)

    def _keep(self, step: int) -> None:
        """Step `step` has gone through its checkpoint: what only earlier ones needed can go."""
        every, last = self._plan.train.save_every, self._plan.train.steps
        if step % every == 0 or step == last:
            self._saved = max(self._saved, step)
        for path in (self._folder / WEIGHTS).glob("step-*"):
            if path.name not in (version_of(step), version_of(self._saved)):
                shutil.rmtree(path)

    def _forget(self, step: int) -> None:
        """What an alarm ended is no step: its weights must not be taken for the result, nor its figures."""
        if step > self._saved:
            shutil.rmtree(self._folder / WEIGHTS / version_of(step), ignore_errors=True)
            cut_back(self._folder, step - 1)
            self._steps = [record for record in self._steps if record.step < step]
            self._evaluations = [evaluation for evaluation in self._evaluations if evaluation.step < step]
        weights = self._folder / WEIGHTS / version_of(self._saved)
        self._weights = weights if weights.is_dir() else None

    # Asking

    def _wait_for(self, work: Coroutine[Any, Any, T], step: int) -> T:
        """Wait for the policy's server; what it cannot answer is an alarm."""
        try:
            return self._aside.run(work)
        except EndpointError as error:
            raise Alarm(SERVER, f"the policy's server does not answer: {error}").stop(step) from error

    def _heed_stop(self, step: int) -> None:
        """Learn nothing more once somebody asked for the end; a real call that was executed is an alarm."""
        if self._stop.code is not None:
            raise Alarm(EXECUTED, self._stop.reason).stop(step)
        if self._stop.requested:
            raise _Ended

    def _stop_on(self, alarm: Alarm | None, step: int) -> None:
        if alarm is not None:
            raise alarm.stop(step)


def _step_event(record: StepRecord) -> dict[str, Any]:
    """A step as an event."""
    facts = record.facts
    return {
        "step": record.step,
        "success": record.success,
        "reward": facts.reward,
        "entropy": record.entropy,
        "kl": record.kl,
        **{name: getattr(facts, name) for name in ("dead", "groups", "inconclusive", "tokens")},
        "seconds": dict(record.seconds),
    }
