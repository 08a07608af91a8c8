"""What came of the whole way, for somebody who decides and reads no logs: `report.md` and `report.html`.

The page is made from the Markdown. No script, no network. All text is data: none of its marks count.
"""

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from markdown_it import MarkdownIt

from dreamgym_kit.deployment.model_registry import KEY
from dreamgym_kit.report.documents import bullets, quiet, table
from dreamgym_kit.report.evaluation import format_share
from dreamgym_kit.report.sanitize import one_line
from dreamgym_kit.rollout.atomic_files import write_atomically

if TYPE_CHECKING:
    from dreamgym_kit.recipes.train_then_deploy import WholeWayPlan
    from dreamgym_kit.recipes.whole_way import WholeWayOutcome

TITLE = "The support desk: from recordings to weights in use"
_PHASES = {
    "record": "Colleagues work for real and are recorded",
    "distil": "A model learns to decide what recordings leave open",
    "start": "The model that learning begins with",
    "before": "The start is tried on the real tools",
    "dream": "It learns in the dream",
    "dreamed": "What the dream made of it is tried on the real tools",
    "real": "It goes on learning on the real tools, within a budget",
    "after": "The candidate is tried on the real tools",
    "deploy": "It takes the place of the start, or does not",
}

_PAGE = """\
<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>%s</title><style>
body { font: 16px/1.5 system-ui, sans-serif; max-width: 56rem; margin: 2rem auto; padding: 0 1rem;
       color: #1b1f24; background: #fff; color-scheme: light dark; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
table { border-collapse: collapse; margin: 1rem 0; }
th { overflow-wrap: normal; }
td, th { border: 1px solid #d0d7de; padding: .3rem .6rem; text-align: left; }
pre { background: #f6f8fa; padding: .8rem; white-space: pre-wrap; }
@media (prefers-color-scheme: dark) {
  body { color: #e6edf3; background: #0d1117; }
  td, th { border-color: #30363d; } pre { background: #161b22; } }
</style></head><body>
%s</body></html>
"""


def write_report(out: Path, plan: "WholeWayPlan", outcome: "WholeWayOutcome") -> Path:
    """Write both forms; gives the page."""
    text = "\n\n".join([f"# {TITLE}", *blocks_of(plan, outcome)]) + "\n"
    write_atomically(out / "report.md", text.encode("utf-8"))
    body = MarkdownIt("commonmark", {"html": False}).enable("table").render(text)
    write_atomically(out / "report.html", (_PAGE % (TITLE, body)).encode("utf-8"))
    return out / "report.html"


def blocks_of(plan: "WholeWayPlan", outcome: "WholeWayOutcome") -> Iterator[str]:
    """The report as Markdown, part by part; the answer first."""
    beating = outcome.after.beating
    assert beating is not None  # it was held against the start
    yield f"**{quiet(outcome.sentence)}**"
    said_before = beating.phrase("what is deployed", "the candidate")  # the same, in other words
    reasons = [reason for reason in outcome.event.reasons if reason != said_before]
    if reasons and not outcome.promoted:
        yield bullets(reasons)
    yield "## How good it is, on the real tools"
    tries = f"{plan.tries} tries" if plan.tries > 1 else "one try"
    yield (
        f"{plan.held_out} tasks without training data, in environments without recordings, {tries} each. "
        "In brackets: where the true figure lies, 95 times in 100."
    )
    yield _table(("", "solved", "against the start"), *_scores(outcome))
    yield _table(("kind of task", "the start", "the candidate"), *_kinds(outcome))
    yield "## What it cost"
    yield _table(("phase", "real calls", "seconds"), *_phases(outcome))
    yield bullets(_notes(outcome))
    yield "## What this does not say"
    yield bullets(_caveats(plan, outcome))
    yield "## How it is used, and how it is undone"
    yield _code(*outcome.pointing.lines)
    yield quiet(
        "The first line starts a server; dreamgym-kit serve does the same, after it held the files against "
        f"their digest. The second stands in the graph. Both read the key from {KEY}: set it to a secret of "
        "your own. Tool calls inside the third are kept for the next training."
    )
    if outcome.promoted:
        registry = shlex.quote(outcome.pointing.shelf)
        yield _code(f"dreamgym-kit deploy rollback --registry {registry}")
    else:
        yield "There is nothing to undo: what is in use is the first version here."
    yield quiet(f"The card of what is in use: {outcome.card}")


def _scores(outcome: "WholeWayOutcome") -> Iterator[tuple[str, str, str]]:
    rows = (
        ("the start", outcome.before),
        ("after the dream", outcome.dreamed),
        ("the candidate: dream, then real tools", outcome.after),
    )
    for name, trial in rows:
        change = ""
        if trial.beating is not None:
            low, middle, high = (
                100 * share for share in (trial.beating.low, trial.beating.change, trial.beating.high)
            )
            change = f"{middle:+.0f} points ({low:+.0f} to {high:+.0f})"
        yield name, format_share(trial.b.once).strip(), change


def _kinds(outcome: "WholeWayOutcome") -> Iterator[tuple[str, str, str]]:
    a, b = outcome.before.b.families, outcome.after.b.families
    for name in sorted(set(a) | set(b)):
        yield name, format_share(a.get(name)).strip(), format_share(b.get(name)).strip()


def _phases(outcome: "WholeWayOutcome") -> Iterator[tuple[str, str, str]]:
    for name, seconds in outcome.seconds.items():
        yield _PHASES.get(name, name), f"{_calls(outcome, name):,}", f"{seconds:.0f}"
    whole = sum(_calls(outcome, name) for name in outcome.seconds)
    yield "all", f"{whole:,}", f"{sum(outcome.seconds.values()):.0f}"


def _calls(outcome: "WholeWayOutcome", phase: str) -> int:
    tried = {"before": outcome.before, "dreamed": outcome.dreamed, "after": outcome.after}
    if phase in tried:
        return tried[phase].b.summary.real_calls
    calls: int = outcome.facts.get(phase, {}).get("real_calls", 0)
    return calls


def _notes(outcome: "WholeWayOutcome") -> Iterator[str]:
    dream, real = outcome.facts.get("dream", {}), outcome.facts.get("real", {})
    answered, made = dream.get("dreamed_calls", 0), dream.get("real_calls", 0)
    yield f"In the dream {answered:,} calls were answered, and {made} real ones made."
    yield f"The gate to the real tools: {real.get('gate', 'not tried')}.".replace("..", ".")
    if dream.get("alarm"):
        yield f"An alarm ended the dream at its last good step: {dream['alarm']}"
    if real.get("stopped"):
        yield f"What ended the real calls: {real['stopped']}"


def _caveats(plan: "WholeWayPlan", outcome: "WholeWayOutcome") -> Iterator[str]:
    yield f"One seed ({plan.seed}). Another gives other figures; the interval is about tasks, not seeds."
    yield "Other requests, environments other than this desk's, failing tools, and input that misleads."
    if outcome.after.b.inconclusive:
        yield f"{outcome.after.b.inconclusive} episodes of the candidate could not be judged."
    if outcome.promoted:
        yield "Whether it stays better: calls are recorded from now on, so that this can be asked again."


def _code(*lines: str) -> str:
    return "\n".join(f"    {one_line(line)}" for line in lines)


def _table(*rows: Sequence[str]) -> str:
    return table([[*map(quiet, row)] for row in rows])
