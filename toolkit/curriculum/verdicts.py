"""Two verdicts or more that have to agree: how tasks are judged that nobody wrote a checker for.

A judge that errs in one of twenty verdicts makes a third of all groups of an impossible task look as if it
could be learned (0.95^8 of eight failures are seen as such); two independent ones that have to agree make it
one in fifty. Where they differ the episode is inconclusive, and nothing is learned from it.
"""

from collections.abc import Container, Mapping

from dreamgym_kit.dream.outcome import judge
from dreamgym_kit.ports import Checker, Judgement, Outcome
from dreamgym_kit.vocabulary import Verdict

AGREED = "curriculum.judges"
"""The checker's name in tasks that are judged so."""


class Agreed:
    """Implements `ports.Checker` over several, by name."""

    def __init__(self, judges: Mapping[str, Checker]) -> None:
        """Two or more; fewer are no second word."""
        if len(judges) < 2:
            raise ValueError("two judges or more")
        self._judges = judges

    async def __call__(self, outcome: Outcome) -> Judgement:
        """The verdict that all of them come to."""
        told = {name: await judge(outcome, checker) for name, checker in self._judges.items()}
        verdicts = {one.verdict for one in told.values()}
        verdict = next(iter(verdicts))
        if len(verdicts) == 1 and verdict.conclusive:
            reason = next(iter(told.values())).reason
            return Judgement(
                verdict, f"{' and '.join(told)} agree: {reason}", float(verdict is Verdict.PASSED)
            )
        said = "; ".join(f"{name}: {one.verdict} ({one.reason})" for name, one in told.items())
        if Verdict.ERROR in verdicts:
            return Judgement(Verdict.ERROR, f"one of its judges failed: {said}"[:600])
        return Judgement(Verdict.INCONCLUSIVE, f"its judges do not agree: {said}"[:600])


class OfGiven:
    """Implements `ports.Checker`: one judge for the tasks that were given, their own checkers for those made.

    A judge of the training's own was tried on recorded requests; of what is made later it proved nothing.
    """

    def __init__(self, given: Checker, made: Container[str], checkers: Mapping[str, Checker]) -> None:
        """`made`: ids of tasks, looked up anew for each episode, as are `checkers`."""
        self._given, self._made, self._checkers = given, made, checkers

    async def __call__(self, outcome: Outcome) -> Judgement:
        """The verdict of whoever judges this task."""
        task = outcome.task
        own = self._checkers.get(task.checker) if task.checker is not None else None
        return await judge(outcome, own if task.id in self._made else self._given)


def agreed_error(error: float) -> float:
    """Share of agreeing verdicts that are wrong, of two independent judges with this error each."""
    both = error**2
    return both / (both + (1 - error) ** 2)
