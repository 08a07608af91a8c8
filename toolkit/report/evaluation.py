"""How good an agent is on its tasks, by a run of them: pass@1, pass^k, by family; and whether B beats A.

One computation for terminal, JSON and Python. The figures are means over tasks; episodes that nobody can
judge are counted apart (see `trust`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dreamgym_kit.plain import JsonValue
from dreamgym_kit.report.comparing import differing
from dreamgym_kit.report.figures import Summary, natural
from dreamgym_kit.report.whole import interval_told, whole_bounds, whole_percent
from dreamgym_kit.trust.beating import Beating, beaten
from dreamgym_kit.trust.outcomes import (
    Share,
    TaskOutcome,
    passed_by_all,
    passed_by_any,
    passed_once,
    task_outcomes,
)
from dreamgym_kit.vocabulary import Task

EVALUATION_SCHEMA = 2
FAMILY = "family"  # of a task's meta: which kind of task it is


@dataclass(frozen=True, slots=True)
class Scores:
    """One run of the tasks, in figures; None where no task has enough decided episodes for one."""

    run: str  # its directory, as a person would type it
    directory: str  # the same, absolute
    agent: str  # who was tried, in a few words
    real: bool  # on the real tools; else in a dream
    outcomes: tuple[TaskOutcome, ...]
    once: Share | None  # pass@1
    in_a_row: Mapping[int, Share]  # pass^k, k from 2
    any_of: Mapping[int, Share]  # pass@k, k from 2
    families: Mapping[str, Share | None]  # pass@1 of each; empty where no task names its family
    summary: Summary = field(repr=False)

    @property
    def inconclusive(self) -> int:
        """Episodes that nobody can judge."""
        return self.summary.inconclusive

    @property
    def episodes(self) -> int:
        """All that were run."""
        return len(self.summary.episodes)

    def to_json(self) -> dict[str, JsonValue]:
        """Give the figures as one JSON object."""
        summary = self.summary
        return {
            "run": self.run,
            "agent": self.agent,
            "where": "real" if self.real else "dream",
            "tasks": len(self.outcomes),
            "episodes": {
                "total": self.episodes,
                "passed": summary.passed,
                "failed": summary.failed,
                "inconclusive": summary.inconclusive,
                "errors": summary.errors,
                "not_run": summary.not_run,
            },
            "pass_at_1": share_to_json(self.once),
            "pass_all": {str(k): share_to_json(share) for k, share in self.in_a_row.items()},
            "pass_any": {str(k): share_to_json(share) for k, share in self.any_of.items()},
            "families": {name: share_to_json(share) for name, share in self.families.items()},
            "calls": {
                "total": summary.calls,
                "real": summary.real_calls,
                "executed": len(summary.executed),
            },
            "model_calls": summary.model_calls,
            "tokens": summary.tokens,
            "cost_usd": summary.cost_usd,
            "elapsed_s": summary.elapsed_s,
            "by_task": [
                {
                    "task": one.task,
                    "family": one.family,
                    "passed": one.success,
                    "failed": one.failure,
                    "inconclusive": one.inconclusive,
                }
                for one in self.outcomes
            ],
        }


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Who was evaluated (B), and, where there was somebody to be held against (A), how they compare."""

    b: Scores
    a: Scores | None = None
    beating: Beating | None = None
    differs: tuple[str, ...] = ()  # settings in which the runs differ, other than the agent

    @property
    def directory(self) -> str:
        """The run directory of B, absolute."""
        return self.b.directory

    @property
    def sentence(self) -> str:
        """What it comes to, in one plain sentence."""
        return self.beating.sentence if self.beating is not None else scored(self.b)

    def to_json(self) -> dict[str, JsonValue]:
        """Give it as one JSON object."""
        return {
            "schema": EVALUATION_SCHEMA,
            "kind": "evaluate",
            "sentence": self.sentence,
            "b": self.b.to_json(),
            "a": self.a.to_json() if self.a is not None else None,
            "comparison": beating_to_json(self.beating),
            "differs": list(self.differs),
        }

    def __str__(self) -> str:
        """The evaluation as `evaluate` prints it."""
        from dreamgym_kit.report.evaluation_text import render_evaluation

        return render_evaluation(self)


def scores_of(summary: Summary, tasks: Sequence[Task], *, run: str, directory: str, agent: str) -> Scores:
    """Score a run; of its tasks, those that were run are told by their families."""
    families = {task.id: _family(task) for task in tasks}
    outcomes = task_outcomes(
        ((line.task, line.verdict) for line in summary.episodes),
        family=lambda task: families.get(task, ""),
    )
    outcomes = tuple(sorted(outcomes, key=lambda one: natural(one.task)))
    most = max((one.decided for one in outcomes), default=0)
    kinds = sorted({one.family for one in outcomes if one.family})
    return Scores(
        run=run,
        directory=directory,
        agent=agent,
        real=summary.recorded,
        outcomes=outcomes,
        once=passed_once(outcomes),
        in_a_row={k: share for k in range(2, most + 1) if (share := passed_by_all(outcomes, k))},
        any_of={k: share for k in range(2, most + 1) if (share := passed_by_any(outcomes, k))},
        families={kind: passed_once([one for one in outcomes if one.family == kind]) for kind in kinds},
        summary=summary,
    )


def evaluated(b: Scores, a: Scores | None = None) -> Evaluation:
    """Hold B against A, where there is one; the draws of the bootstrap are always the same."""
    if a is None:
        return Evaluation(b)
    return Evaluation(
        b, a, beaten(a.outcomes, b.outcomes), tuple(differing(a.summary, b.summary, names=("of A", "of B")))
    )


def scored(scores: Scores) -> str:
    """One run in one plain sentence."""
    where = "on the real tools" if scores.real else "in the dream"
    share, tasks = scores.once, len(scores.outcomes)
    of = f"{tasks} task{'s' if tasks != 1 else ''}"
    if share is None:
        return f"Nothing is known: no episode of {of} was decided {where}."
    bounds = interval_told(share.low, share.high)
    told = f"It solves {whole_percent(share.mean)} % of {of} {where} (95 %: {bounds})"
    if not scores.inconclusive:
        return f"{told}."
    counted = f"{scores.inconclusive} of {scores.episodes} episodes are inconclusive and count as neither"
    worst, best = whole_bounds(share.worst, share.best)
    return f"{told}; {counted}: between {worst} and {best} %, whichever way they went."


def share_to_json(share: Share | None) -> JsonValue:
    """Give a share as a JSON object; null where there is none."""
    if share is None:
        return None
    return {
        "mean": share.mean,
        "low": share.low,
        "high": share.high,
        "tasks": share.tasks,
        "left_out": share.left_out,
        "worst": share.worst,
        "best": share.best,
    }


def beating_to_json(found: Beating | None) -> JsonValue:
    """Give a comparison as a JSON object; null where there is none."""
    if found is None:
        return None
    return {
        "word": found.word.value,
        "sentence": found.sentence,
        "tasks": found.tasks,
        "left_out": found.left_out,
        "a": found.a,
        "b": found.b,
        "change": found.change,
        "low": found.low,
        "high": found.high,
        "better": found.better,
        "worse": found.worse,
        "inconclusive": {"a": found.inconclusive_a, "b": found.inconclusive_b},
        "least": found.least,
        "most": found.most,
    }


def _family(task: Task) -> str:
    named = task.meta.get(FAMILY)
    return named if isinstance(named, str) else ""
