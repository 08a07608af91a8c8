"""An evaluation on the terminal: verdict, pass rate and what else was measured, then family by family."""

from collections.abc import Mapping, Sequence

from dreamgym_kit.report.clean import one_line, shown
from dreamgym_kit.report.compare_text import first_line
from dreamgym_kit.report.evaluation import Evaluation, Scores
from dreamgym_kit.report.gating import Rule
from dreamgym_kit.report.paint import PLAIN, Paint, fold
from dreamgym_kit.report.terminal import executed_first, verdict
from dreamgym_kit.report.whole import points_told, whole_bounds, whole_percent
from dreamgym_kit.trust.beating import Beating
from dreamgym_kit.trust.outcomes import Share

_LABEL = 16
_FAMILIES, _FAMILY_WIDTH = 20, 24


def render_evaluation(found: Evaluation, *, paint: Paint = PLAIN) -> str:
    """Give the whole evaluation."""
    parts = [executed_first(found.b.summary, paint)]
    if found.a is not None and found.beating is not None:
        parts.append(_against(found, found.beating, paint))
        parts += [f" A\n{_scores(found.a, paint)}", f" B\n{_scores(found.b, paint, also=found.rules)}"]
    else:
        parts.append(_scores(found.b, paint))
    parts.append(_families(found))
    return "\n\n".join(part for part in parts if part) + "\n"


def _scores(scores: Scores, paint: Paint, *, also: Sequence[Rule] = ()) -> str:
    rows = [
        *((f"pass^{k}", share_told(share)) for k, share in _doubling(scores.in_a_row)),
        *((f"pass@{k}", share_told(share)) for k, share in list(scores.any_of.items())[-1:]),
        ("Agent", one_line(scores.agent)),
        ("Run", f"{one_line(scores.run)}, {'on the real tools' if scores.real else 'in a dream'}"),
    ]
    return "\n".join(
        [verdict(scores.summary, paint, also=also), *(_row(label, told) for label, told in rows)]
    )


def _row(label: str, told: str) -> str:
    return fold(f"  {label:<{_LABEL - 2}}{told}", indent=_LABEL)


def _doubling(shares: Mapping[int, Share]) -> list[tuple[int, Share]]:
    """Those of 2, 4, 8 ... and the last: more say little more."""
    last = max(shares, default=0)
    return [(k, share) for k, share in shares.items() if k & (k - 1) == 0 or k == last]


def share_told(share: Share | None) -> str:
    """A share with its interval, in the words of every form."""
    if share is None:
        return "not known"
    low, high = whole_bounds(share.low, share.high)
    told = f"{whole_percent(share.mean)}% (95% CI {low}-{high}%)"
    left = f"{share.left_out} task{'s' if share.left_out != 1 else ''} left out, too few conclusive episodes"
    return f"{told}   {left}" if share.left_out else told


def _against(found: Evaluation, beating: Beating, paint: Paint) -> str:
    """What can be said of B against A, what of it was required, and the figures that it rests on."""
    lines = [first_line(beating.word, found.sentence, paint)]
    change, bounds = f"{100 * beating.change:+.0f}", points_told(beating.low, beating.high)
    lines.append(_row("Pass rate", f"{change} points ({bounds}), on the tasks that are conclusive in both"))
    same = beating.tasks - beating.better - beating.worse
    lines.append(_row("Tasks", f"{beating.better} better, {beating.worse} worse, {same} the same"))
    if beating.left_out:
        lines.append(
            _row("Left out", f"{beating.left_out} tasks without a conclusive episode in one of them")
        )
    if beating.inconclusive_a or beating.inconclusive_b:
        bounds = points_told(beating.least, beating.most)
        lines.append(_row("Range", f"{bounds} points with the inconclusive episodes failed or passed"))
    lines += [fold(f"  ! other settings: {one_line(text)}", indent=4) for text in found.differs]
    return "\n".join(lines)


def _families(found: Evaluation) -> str:
    """Family by family, both sides where there are two: to look at, not to claim by."""
    names = list(found.b.families)
    if len(names) < 2:
        return ""
    width = min(_FAMILY_WIDTH, max(len(one_line(name)) for name in names))
    before = found.a.families if found.a is not None else None
    lines = [f" Pass rate by family{', A -> B' if before is not None else ''}"]
    for name in names[:_FAMILIES]:
        row = f"  {shown(name, width):<{width}}  "
        if before is not None:
            row += f"{share_told(before.get(name)):<22} -> "
        lines.append(f"{row}{share_told(found.b.families[name])}")
    if len(names) > _FAMILIES:
        lines.append(f"  {len(names) - _FAMILIES} more; all: --json")
    return "\n".join(lines)
