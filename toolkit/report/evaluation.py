"""Evaluate a run of an agent's tasks: pass@1, pass^k, by task family, and comparison with a baseline A.

One computation for terminal, JSON and Python. The figures are means over tasks; inconclusive episodes are
counted separately (see `trust`). The terminal shows the verdict, the pass rate and other figures, then the
families.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from dreamgym_kit.codec import Codec
from dreamgym_kit.report.colors import PLAIN, Paint, fold, labelled
from dreamgym_kit.report.comparing import differing, first_line
from dreamgym_kit.report.gate_rules import Rule, verdict_of
from dreamgym_kit.report.headline import format_pass_rate
from dreamgym_kit.report.jsonform import verdict_to_json
from dreamgym_kit.report.metrics import RunMetrics, natural
from dreamgym_kit.report.percent import format_points, whole_bounds, whole_percent
from dreamgym_kit.report.sanitize import one_line, shown
from dreamgym_kit.report.terminal import executed_first, verdict
from dreamgym_kit.rollout.journal import RENAMED_FIELDS
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.trust.comparison import Conclusion, PairedComparison, beaten
from dreamgym_kit.trust.outcomes import (
    Share,
    TaskOutcome,
    passed_by_all,
    passed_by_any,
    passed_once,
    task_outcomes,
)
from dreamgym_kit.types import Task, Verdict

EVALUATION_SCHEMA = 2
_FAMILIES, _FAMILY_WIDTH = 20, 24
FAMILY = "family"  # key in a task's meta: its family


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores of one run; a score is None if no task has enough conclusive episodes."""

    run: str  # its directory, for commands
    directory: str  # its absolute directory
    agent: str  # short description of the agent
    real: bool  # True: on the real tools; False: in a dream
    outcomes: tuple[TaskOutcome, ...]
    once: Share | None  # pass@1
    in_a_row: Mapping[int, Share]  # pass^k, k from 2
    any_of: Mapping[int, Share]  # pass@k, k from 2
    families: Mapping[str, Share | None]  # pass@1 by family; empty if no task names a family
    summary: RunMetrics = field(repr=False)

    @property
    def inconclusive(self) -> int:
        """Number of inconclusive episodes."""
        return self.summary.inconclusive

    @property
    def episodes(self) -> int:
        """Number of episodes that were run."""
        return len(self.summary.episodes)

    def to_json(self) -> dict[str, JsonValue]:
        """Return the scores as a JSON object."""
        summary = self.summary
        return {
            "run": self.run,
            "agent": self.agent,
            "where": "real" if self.real else "dream",
            **verdict_to_json(summary),
            "tasks": len(self.outcomes),
            "not_run": summary.not_run,
            "pass_all": {str(k): asdict(share) for k, share in self.in_a_row.items()},
            "pass_any": {str(k): asdict(share) for k, share in self.any_of.items()},
            "families": {name: share and asdict(share) for name, share in self.families.items()},
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
                    "task": outcome.task,
                    "family": outcome.family,
                    "passed": outcome.success,
                    "failed": outcome.failure,
                    "inconclusive": outcome.inconclusive,
                }
                for outcome in self.outcomes
            ],
        }


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The evaluation of B, and its comparison with the baseline A, if any.

    `verdict`, `passed` and `exit_code` come from B's run, and fail if B misses its requirement against A.
    """

    b: Scores
    a: Scores | None = None
    beating: PairedComparison | None = None
    differs: tuple[str, ...] = ()  # settings in which the runs differ, except the agent
    must_be: str = ""  # requirement on B against A: "better", "not-worse" or ""

    @property
    def directory(self) -> str:
        """The run directory of B, absolute."""
        return self.b.directory

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The requirement on B against A; B's gate rules are `b.summary.rules()`."""
        if not self.must_be or self.beating is None:
            return ()
        word = self.beating.word
        passed = word is Conclusion.BETTER or (
            word is Conclusion.NO_DIFFERENCE and self.must_be == "not-worse"
        )
        unknown = word in (Conclusion.INCONCLUSIVE, Conclusion.NO_COMMON_TASKS)
        measured, limit = word.label.lower(), f"required {self.must_be}"
        broken = Verdict.INCONCLUSIVE if unknown else Verdict.FAILED
        return (Rule("must_be", passed, measured, limit, self.sentence * (not passed), (), broken),)

    @property
    def verdict(self) -> Verdict:
        """The verdict of B's run and of the requirement against A."""
        return verdict_of((*self.b.summary.rules(), *self.rules))

    @property
    def passed(self) -> bool:
        """Whether the verdict is PASSED."""
        return self.verdict is Verdict.PASSED

    @property
    def exit_code(self) -> int:
        """The command's exit code: of B's run, or of the requirement against A."""
        code = self.b.summary.exit_code
        return self.verdict.exit_code if code in [verdict.exit_code for verdict in Verdict] else code

    @property
    def sentence(self) -> str:
        """The result in one sentence."""
        return self.beating.sentence if self.beating is not None else scored(self.b)

    def to_json(self) -> dict[str, JsonValue]:
        """Return it as a JSON object."""
        return {
            "schema": EVALUATION_SCHEMA,
            "kind": "evaluate",
            "verdict": str(self.verdict),
            "exit_code": self.exit_code,
            "sentence": self.sentence,
            "b": self.b.to_json(),
            "a": self.a.to_json() if self.a is not None else None,
            "comparison": beating_to_json(self.beating),
            "differs": list(self.differs),
        }

    def __str__(self) -> str:
        """Return the output of `evaluate`."""
        return render_evaluation(self)


def scores_of(summary: RunMetrics, tasks: Sequence[Task], *, run: str, directory: str, agent: str) -> Scores:
    """Score a run; `tasks` give the families."""
    named = {task.id: task.meta.get(FAMILY) for task in tasks}
    families = {name: family if isinstance(family, str) else "" for name, family in named.items()}
    outcomes = task_outcomes(
        ((line.task, line.verdict) for line in summary.episodes),
        family=lambda task: families.get(task, ""),
    )
    outcomes = tuple(sorted(outcomes, key=lambda outcome: natural(outcome.task)))
    most = max((outcome.decided for outcome in outcomes), default=0)
    kinds = sorted({outcome.family for outcome in outcomes if outcome.family})
    return Scores(
        run=run,
        directory=directory,
        agent=agent,
        real=summary.recorded,
        outcomes=outcomes,
        once=passed_once(outcomes),
        in_a_row={k: share for k in range(2, most + 1) if (share := passed_by_all(outcomes, k))},
        any_of={k: share for k in range(2, most + 1) if (share := passed_by_any(outcomes, k))},
        families={
            kind: passed_once([outcome for outcome in outcomes if outcome.family == kind]) for kind in kinds
        },
        summary=summary,
    )


def evaluated(b: Scores, a: Scores | None = None, *, must_be: str = "") -> Evaluation:
    """Compare B with A, if given; the bootstrap uses a fixed seed."""
    if a is None:
        return Evaluation(b)
    differs = tuple(differing(a.summary, b.summary, names=("of A", "of B")))
    return Evaluation(b, a, beaten(a.outcomes, b.outcomes), differs, must_be)


def scored(scores: Scores) -> str:
    """Return one run's result in a sentence."""
    where = "on the real tools" if scores.real else "in the dream"
    return f"The pass rate {where} is {format_pass_rate(scores.summary)}."


def beating_to_json(paired: PairedComparison | None) -> JsonValue:
    """Return a comparison as a JSON object; None stays null."""
    if paired is None:
        return None
    figures = {name: value for name, value in asdict(paired).items() if not name.endswith(("_a", "_b"))}
    inconclusive = {"a": paired.inconclusive_a, "b": paired.inconclusive_b}
    return {
        "word": paired.word.value,
        "sentence": paired.sentence,
        **figures,
        "inconclusive": inconclusive,
    }


def render_evaluation(figures: Evaluation, *, paint: Paint = PLAIN) -> str:
    """Format the whole evaluation."""
    parts = [executed_first(figures.b.summary, paint)]
    if figures.a is not None and figures.beating is not None:
        parts.append(_against(figures, figures.beating, paint))
        parts += [f" A\n{_scores(figures.a, paint)}", f" B\n{_scores(figures.b, paint, also=figures.rules)}"]
    else:
        parts.append(_scores(figures.b, paint))
    parts.append(_families(figures))
    return "\n\n".join(part for part in parts if part) + "\n"


def _scores(scores: Scores, paint: Paint, *, also: Sequence[Rule] = ()) -> str:
    rows = [
        *((f"pass^{k}", format_share(share)) for k, share in _doubling(scores.in_a_row)),
        *((f"pass@{k}", format_share(share)) for k, share in list(scores.any_of.items())[-1:]),
        ("Agent", one_line(scores.agent)),
        ("Run", f"{one_line(scores.run)}, {'on the real tools' if scores.real else 'in a dream'}"),
    ]
    return "\n".join(
        [verdict(scores.summary, paint, also=also), *(labelled(label, text) for label, text in rows)]
    )


def _doubling(shares: Mapping[int, Share]) -> list[tuple[int, Share]]:
    """Return the shares of k = 2, 4, 8 ... and of the last k."""
    last = max(shares, default=0)
    return [(k, share) for k, share in shares.items() if k & (k - 1) == 0 or k == last]


def format_share(share: Share | None) -> str:
    """Format a share with its interval, for all outputs."""
    if share is None:
        return "not known"
    low, high = whole_bounds(share.low, share.high)
    text = f"{whole_percent(share.mean)}% (95% CI {low}-{high}%)"
    left = f"{share.left_out} task{'s' if share.left_out != 1 else ''} left out, too few conclusive episodes"
    return f"{text}   {left}" if share.left_out else text


def _against(evaluation: Evaluation, beating: PairedComparison, paint: Paint) -> str:
    """Format the conclusion about B against A, the requirement, and the figures behind it."""
    lines = [first_line(beating.word, evaluation.sentence, paint)]
    change, bounds = f"{100 * beating.change:+.0f}", format_points(beating.low, beating.high)
    points = f"{change} points ({bounds}), on the tasks that are conclusive in both"
    lines.append(labelled("Pass rate", points))
    same = beating.tasks - beating.better - beating.worse
    lines.append(labelled("Tasks", f"{beating.better} better, {beating.worse} worse, {same} the same"))
    if beating.left_out:
        lines.append(
            labelled("Left out", f"{beating.left_out} tasks without a conclusive episode in one of them")
        )
    if beating.inconclusive_a or beating.inconclusive_b:
        bounds = format_points(beating.least, beating.most)
        lines.append(labelled("Range", f"{bounds} points with the inconclusive episodes failed or passed"))
    lines += [fold(f"  ! other settings: {one_line(text)}", indent=4) for text in evaluation.differs]
    return "\n".join(lines)


def _families(evaluation: Evaluation) -> str:
    """Format the pass rates by family, of both runs if there are two; they carry no conclusion."""
    names = list(evaluation.b.families)
    if len(names) < 2:
        return ""
    width = min(_FAMILY_WIDTH, max(len(one_line(name)) for name in names))
    before = evaluation.a.families if evaluation.a is not None else None
    lines = [f" Pass rate by family{', A -> B' if before is not None else ''}"]
    for name in names[:_FAMILIES]:
        row = f"  {shown(name, width):<{width}}  "
        if before is not None:
            row += f"{format_share(before.get(name)):<22} -> "
        lines.append(f"{row}{format_share(evaluation.b.families[name])}")
    if len(names) > _FAMILIES:
        lines.append(f"  {len(names) - _FAMILIES} more; all: --json")
    return "\n".join(lines)


WHOLE = "nothing"  # disabled part of the baseline row
DREAM_ONLY = ("history", "state", "retrieval", "reasoning")
LEARNING_ONLY = ("curriculum", "faults")  # parts that matter only for training


@dataclass(frozen=True, slots=True, kw_only=True)
class AblationRow:
    """A dream without one part."""

    part: str
    calls: int = 0  # held-out calls that it was asked
    answered: int = 0
    exact: int = 0
    dream: float | None = None  # the policy's pass rate in it, of conclusive episodes, 0..1
    inconclusive: int = 0  # inconclusive episodes of that pass rate
    real: float | None = None  # real pass rate of a policy trained in it, 0..1
    against_whole: str | None = None  # `real` compared with training in the whole dream
    alarm: str | None = None  # alarm that stopped its training


ROWS = Codec(AblationRow, renamed=RENAMED_FIELDS)


def render_ablation(rows: Sequence[AblationRow]) -> str:
    """Format the table; the whole dream first."""
    head = ("without", "answered", "exact", "success in it", "inconclusive", "learned in it, real")
    body = [head, *(_cells(row) for row in rows)]
    widths = [max(len(cells[place]) for cells in body) for place in range(len(head))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) for cells in body
    ]
    notes = [f"  without {row.part}: {row.against_whole}" for row in rows if row.against_whole]
    notes += [f"  without {row.part}: an alarm ended its training: {row.alarm}" for row in rows if row.alarm]
    return "\n".join([*(f" {line}".rstrip() for line in lines), *([""] if notes else []), *notes])


def _cells(row: AblationRow) -> tuple[str, ...]:
    return (
        row.part,
        _share(row.answered, row.calls),
        _share(row.exact, row.calls),
        _percent(row.dream),
        str(row.inconclusive) if row.dream is not None or row.inconclusive else "-",
        _percent(row.real),
    )


def _share(count: int, of: int) -> str:
    return f"{100 * count / of:.1f} %" if of else "-"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"
