"""An evaluation on the terminal: the sentence, the figures with their intervals, then family by family."""

from collections.abc import Mapping

from dreamgym_kit.report.clean import one_line, shown
from dreamgym_kit.report.evaluation import Evaluation, Scores
from dreamgym_kit.report.executed import executed_of
from dreamgym_kit.report.paint import PLAIN, Paint
from dreamgym_kit.report.terminal import executed_first, fold
from dreamgym_kit.report.whole import duration, interval_told, points_told, whole_percent
from dreamgym_kit.trust.beating import Beating, Word
from dreamgym_kit.trust.outcomes import Share

_LABEL = 15
_FAMILIES, _FAMILY_WIDTH = 20, 24
_STAMPS = {
    Word.BETTER: "B IS BETTER",
    Word.WORSE: "B IS WORSE",
    Word.NO_DIFFERENCE: "NO DIFFERENCE SEEN",
    Word.INCONCLUSIVE: "CANNOT BE SAID",
    Word.NOTHING_SHARED: "NOTHING SHARED",
}


def render_evaluation(found: Evaluation, *, paint: Paint = PLAIN) -> str:
    """Give the whole evaluation."""
    parts = [executed_first(found.b.summary, paint), _head(found, paint)]
    if found.a is not None and found.beating is not None:
        parts.append(_scores(found.a, "A"))
        parts.append(_scores(found.b, "B"))
        parts.append(_against(found, found.beating))
    else:
        parts.append(_scores(found.b, ""))
    parts.append(_families(found))
    return "\n\n".join(part for part in parts if part) + "\n"


def stamp_of(found: Evaluation) -> str:
    """The evaluation in a word or three, for whoever reads no further."""
    if found.beating is not None:
        return _STAMPS[found.beating.word]
    return "EVALUATED" if found.b.once is not None else "INCONCLUSIVE"


def _head(found: Evaluation, paint: Paint) -> str:
    word = stamp_of(found)
    colours = {"B IS BETTER": paint.green, "EVALUATED": paint.green, "B IS WORSE": paint.red}
    line = fold(f" {word}  {one_line(found.sentence)}", indent=len(word) + 3)
    return line.replace(word, colours.get(word, paint.yellow)(word), 1)


def _scores(scores: Scores, name: str) -> str:
    summary = scores.summary
    where = "the real tools" if scores.real else "a dream, no real tool ran"
    if summary.executed:
        where = f"a dream; {executed_of(summary)}"
    rows = [
        ("agent", one_line(scores.agent)),
        ("run", one_line(scores.run)),
        ("on", f"{where}; {len(scores.outcomes)} tasks, {scores.episodes} episodes"),
        ("pass@1", share_told(scores.once)),
        *((f"pass^{k}", share_told(share)) for k, share in _doubling(scores.in_a_row)),
        *((f"pass@{k}", share_told(share)) for k, share in list(scores.any_of.items())[-1:]),
    ]
    if scores.inconclusive:
        rows.append(("inconclusive", f"{scores.inconclusive} episodes, neither success nor failure"))
    if summary.not_run:
        rows.append(("not run", f"{summary.not_run} episodes"))
    rows.append(("calls", f"{summary.calls:,}, {summary.real_calls:,} of them real"))
    rows.append(("cost", _cost(scores)))
    told = [fold(f"  {label:<{_LABEL - 2}}{text}", indent=_LABEL) for label, text in rows if text]
    return "\n".join([f" {name}", *told] if name else told)


def _doubling(shares: Mapping[int, Share]) -> list[tuple[int, Share]]:
    """Those of 2, 4, 8 ... and the last: more say little more."""
    last = max(shares, default=0)
    return [(k, share) for k, share in shares.items() if k & (k - 1) == 0 or k == last]


def share_told(share: Share | None) -> str:
    """A share with its interval, in the words of every form."""
    if share is None:
        return "not known"
    told = f"{whole_percent(share.mean):>3} %  ({interval_told(share.low, share.high)})"
    left = f"{share.left_out} task{'s' if share.left_out != 1 else ''} left out, too little decided"
    return f"{told}   {left}" if share.left_out else told


def _cost(scores: Scores) -> str:
    summary = scores.summary
    told = [f"{summary.model_calls:,} model calls"]
    told += [f"{summary.tokens:,} tokens"] if summary.tokens else []
    told += [f"USD {summary.cost_usd:.2f}"] if summary.cost_usd else []
    return ", ".join([*told, duration(summary.elapsed_s)])


def _against(found: Evaluation, beating: Beating) -> str:
    change, bounds = f"{100 * beating.change:+.0f}", points_told(beating.low, beating.high)
    lines = [" B against A, on the tasks that both decided"]
    lines.append(f"  {'pass@1':<{_LABEL - 2}}{change} points ({bounds})")
    same = beating.tasks - beating.better - beating.worse
    lines.append(f"  {'tasks':<{_LABEL - 2}}{beating.better} better, {beating.worse} worse, {same} the same")
    if beating.left_out:
        lines.append(f"  {'left out':<{_LABEL - 2}}{beating.left_out} tasks that one side did not decide")
    if beating.inconclusive_a or beating.inconclusive_b:
        text = f"{points_told(beating.least, beating.most)} points, whichever way the inconclusive went"
        lines.append(f"  {'bounds':<{_LABEL - 2}}{text}")
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
