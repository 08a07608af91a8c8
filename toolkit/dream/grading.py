"""What an ended episode amounts to: the task's expectations and its checker, judged once, at the end.

An episode that did not come to its own end (the dream abstained, a limit, a refusal) is inconclusive and no
checker is asked: half an episode proves nothing either way. A checker that raises makes it an error. What the
agent did before the dream abstained stays done: where that alone makes success impossible, whatever would
have come next, the episode has failed (`judge_cut_off`).
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, TypeVar

from dreamgym_kit.errors import EpisodeStop
from dreamgym_kit.interfaces import Account, Checker, Judgement, Outcome
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.threads import awaited
from dreamgym_kit.types import Finding, Transition, Verdict, error_line

if TYPE_CHECKING:
    from dreamgym_kit.dream.judge import ModelJudge

DISAGREE = "judges_disagree"  # the kind of finding
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TwoJudgements:
    """The episode's judgement and, beside it, the model's."""

    settled: Judgement
    model: Judgement | None = None

    @property
    def agree(self) -> bool | None:
        """Whether both came to the same verdict; None where one of them came to none."""
        if self.model is None or not (self.settled.verdict.conclusive and self.model.verdict.conclusive):
            return None
        return self.settled.verdict is self.model.verdict

    @property
    def alarm(self) -> Finding | None:
        """A disagreement, as a finding for the report."""
        if self.model is None or self.agree is not False:
            return None
        text = f"the checker said {self.settled.verdict}, the model {self.model.verdict}: {self.model.reason}"
        return Finding(kind=DISAGREE, text=text)


async def judge(outcome: Outcome, checker: Checker | None) -> Judgement:
    """Judge an episode that came to its end: expectations first, then the checker."""
    missed = unmet(outcome.task.expect, outcome.transitions)
    if missed:
        return Judgement(Verdict.FAILED, missed, 0.0)
    if checker is not None:
        return await _ask_checker(checker, outcome, as_judgement)
    if outcome.task.expect:
        return Judgement(Verdict.PASSED, "every expectation held", 1.0)
    return Judgement(Verdict.INCONCLUSIVE, "finished; the task has no checker and no expectations")


async def judge_twice(
    outcome: Outcome,
    checker: Checker | None,
    second: "ModelJudge | None",
    account: Account | None = None,
) -> TwoJudgements:
    """Judge by expectations and checker, and by a model beside them where there is one.

    The checker wins, both are kept, and a disagreement is an alarm.
    """
    first = await judge(outcome, checker)
    if second is None:
        return TwoJudgements(first)
    second_judgement = await second.judge(outcome, account)
    if checker is None and not outcome.task.expect:
        return TwoJudgements(second_judgement)
    return TwoJudgements(first, second_judgement)


async def judge_cut_off(outcome: Outcome, checker: Checker | None, why: str) -> Judgement:
    """Judge an episode that the dream could not go on with: inconclusive, unless it was lost before.

    Calls that are forbidden, or more than are allowed, stay made. A checker knows of more where it has a
    method `lost(outcome)` that gives a sentence, or "" (see `interfaces.Checker`).

    Args:
        outcome: what was done so far.
        checker: of the task.
        why: what the dream could not tell.
    """
    expect = {name: value for name, value in outcome.task.expect.items() if name != "calls"}
    lost: str | Judgement | None = unmet(expect, outcome.transitions)

    def ask(done: Outcome) -> Any:
        method = getattr(checker, "lost", None)  # reading it may run the checker's own code, too
        return "" if method is None else method(done)

    if not lost:
        lost = await _ask_checker(ask, outcome, _sentence)
    if isinstance(lost, Judgement):
        return replace(lost, reason=f"{lost.reason}; before that, {why}")
    if not lost:
        return Judgement(Verdict.INCONCLUSIVE, why)
    return Judgement(Verdict.FAILED, f"{lost}; then the dream could not go on: {why}", 0.0)


def unmet(expect: Mapping[str, JsonValue], transitions: Sequence[Transition]) -> str | None:
    """Return the first unmet expectation as a sentence; None if all are met."""
    called = Counter(entry.call.tool for entry in transitions if not entry.within)
    everything = [entry.call.tool for entry in transitions]
    for tool in expect.get("calls") or ():
        if not called[str(tool)]:
            return f"{tool} was never called"
    for pattern in expect.get("forbid") or ():
        forbidden = next((tool for tool in everything if fnmatchcase(tool, str(pattern))), None)
        if forbidden:
            return f"{forbidden} was called, which the task forbids"
    for tool, most in (expect.get("max") or {}).items():
        if called[tool] > most:
            return f"{tool} was called {called[tool]} times; the task allows {most}"
    return None


async def _ask_checker(
    ask: Callable[[Outcome], Any], outcome: Outcome, read: Callable[[object], T]
) -> T | Judgement:
    """Return a checker's result, converted by `read`; an error if the checker raises."""
    try:
        return read(await awaited(ask(outcome)))
    except BaseException as error:
        if _goes_on(error):
            raise
        return Judgement(Verdict.ERROR, f"the checker raised {error_line(error)}")


def _goes_on(error: BaseException) -> bool:
    """Whether an exception is not the checker's: the run ends, or the gate refused something."""
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0
    return isinstance(error, EpisodeStop | GeneratorExit | KeyboardInterrupt)


def _sentence(sentence: object) -> str:
    if not isinstance(sentence, str):
        raise TypeError(f'lost() gives a sentence or "", not {sentence!r:.80}')
    return sentence


def as_judgement(result: object) -> Judgement:
    """Convert a checker's result: a judgement, True or False, or a reward in 0..1 (success is 1).

    Raises:
        TypeError: none of these.
    """
    match result:
        case Judgement():
            return _checked(result)
        case bool():
            verdict = Verdict.PASSED if result else Verdict.FAILED
            return Judgement(verdict, f"the checker said {result}", float(result))
        case int() | float() if 0 <= result <= 1:
            verdict = Verdict.PASSED if result >= 1 else Verdict.FAILED
            return Judgement(verdict, f"the checker gave {result!r} of 1", float(result))
    raise TypeError(f"a checker returns a judgement, True, False or a number in 0..1, not {result!r:.80}")


def _checked(judgement: Judgement) -> Judgement:
    """Check the fields of a judgement that a checker made."""
    reward = judgement.reward
    if not isinstance(judgement.verdict, Verdict):
        raise TypeError(f"the verdict of a checker's judgement is a Verdict, not {judgement.verdict!r:.80}")
    if not isinstance(judgement.reason, str):
        raise TypeError(f"the reason of a checker's judgement is text, not {judgement.reason!r:.80}")
    if reward is not None and not 0 <= reward <= 1:
        raise TypeError(f"the reward of a checker's judgement is in 0..1, or None, not {reward!r:.80}")
    return judgement if judgement.reason.strip() else replace(judgement, reason="the checker gives no reason")
