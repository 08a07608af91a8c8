"""An evaluation on the terminal: the verdict, how it compares, the figures, then family by family."""

from collections.abc import Mapping

from dreamgym_kit.report.clean import one_line, shown
from dreamgym_kit.report.evaluation import Evaluation, Scores
from dreamgym_kit.report.headline import headline, pass_rate_told, usage_told
from dreamgym_kit.report.paint import PLAIN, Paint
from dreamgym_kit.report.terminal import executed_first, fold, verdict
from dreamgym_kit.report.whole import count_told, points_told, whole_bounds, whole_percent
from dreamgym_kit.trust.beating import Beating, Word
from dreamgym_kit.trust.outcomes import Share

_LABEL = 16
_FAMILIES, _FAMILY_WIDTH = 20, 24


def render_evaluation(found: Evaluation, *, paint: Paint = PLAIN) -> str:
    """Give the whole evaluation: the verdict of its run, then how it compares, then the figures."""
    verdict_told = verdict(found.b.summary, paint, rules=found.rules())
    parts = [executed_first(found.b.summary, paint)]
    if found.a is not None and found.beating is not None:
        parts += [verdict_told, _against(found, found.beating, paint), _scores(found.a, "A")]
        parts.append(_scores(found.b, "B"))
    else:
        parts.append("\n".join([verdict_told, _scores(found.b, "")]))
    parts.append(_families(found))
    return "\n\n".join(part for part in parts if part) + "\n"


def _scores(scores: Scores, name: str) -> str:
    summary = scores.summary
    rows = [("Agent", one_line(scores.agent)), ("Run", one_line(scores.run))]
    if name == "A":  # what stands above is of B
        rows += [("Verdict", headline(summary)), ("Pass rate", pass_rate_told(summary))]
        rows.append(("Usage", usage_told(summary)))
    if scores.once is not None and scores.once.left_out:
        rows.append(("Left out", f"{count_told(scores.once.left_out, 'task')} without a conclusive episode"))
    rows += [(f"pass^{k}", share_told(share)) for k, share in _doubling(scores.in_a_row)]
    rows += [(f"pass@{k}", share_told(share)) for k, share in list(scores.any_of.items())[-1:]]
    told = [fold(f"  {label:<{_LABEL - 2}}{text}", indent=_LABEL) for label, text in rows]
    return "\n".join([name, *told] if name else told)


def _doubling(shares: Mapping[int, Share]) -> list[tuple[int, Share]]:
    """Those of 2, 4, 8 ... and the last: more say little more."""
    last = max(shares, default=0)
    return [(k, share) for k, share in shares.items() if k & (k - 1) == 0 or k == last]


def share_told(share: Share | None) -> str:
    """A share with its interval, in the words of every form."""
    if share is None:
        return "not known"
    low, high = whole_bounds(share.low, share.high)
    told = f"{whole_percent(share.mean):>3}% (95% CI {low}-{high}%)"
    left = f"{share.left_out} task{'s' if share.left_out != 1 else ''} left out, too few conclusive episodes"
    return f"{told}   {left}" if share.left_out else told


def _against(found: Evaluation, beating: Beating, paint: Paint) -> str:
    word = beating.word.told
    colour = {Word.BETTER: paint.green, Word.WORSE: paint.red}.get(beating.word, paint.yellow)
    lines = [fold(f"{word}  {one_line(beating.sentence)}", indent=2).replace(word, colour(word), 1)]
    change, bounds = f"{100 * beating.change:+.0f}", points_told(beating.low, beating.high)
    same = beating.tasks - beating.better - beating.worse
    rows = [
        ("Pass rate", f"{change} points ({bounds}), on the tasks that are conclusive in both"),
        ("Tasks", f"{beating.better} better, {beating.worse} worse, {same} the same"),
    ]
    if beating.left_out:
        rows.append(("Left out", f"{count_told(beating.left_out, 'task')} not conclusive in one or both"))
    if beating.inconclusive_a or beating.inconclusive_b:
        text = f"{points_told(beating.least, beating.most)} points, whichever way the inconclusive went"
        rows.append(("Bounds", text))
    lines += [fold(f"  {label:<{_LABEL - 2}}{text}", indent=_LABEL) for label, text in rows]
    lines += [fold(f"  ! other settings: {one_line(text)}", indent=4) for text in found.differs]
    return "\n".join(lines)


def _families(found: Evaluation) -> str:
    """Family by family, both sides where there are two: to look at, not to claim by."""
    names = list(found.b.families)
    if len(names) < 2:
        return ""
    width = min(_FAMILY_WIDTH, max(len(one_line(name)) for name in names))
    before = found.a.families if found.a is not None else None
    lines = [f" pass@1 by family{', A -> B' if before is not None else ''}"]
    for name in names[:_FAMILIES]:
        row = f"  {shown(name, width):<{width}}  "
        if before is not None:
            row += f"{share_told(before.get(name)):<22} -> "
        lines.append(f"{row}{share_told(found.b.families[name])}")
    if len(names) > _FAMILIES:
        lines.append(f"  {len(names) - _FAMILIES} more; all: --json")
    return "\n".join(lines)
