"""What came of the whole way, for somebody who decides and reads no logs: `report.md` and `report.html`.

Both forms are made from the same blocks. No script, no network. All text is data: none of its marks count in
either form.
"""

import html
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dreamgym_kit.deployment.model_registry import KEY
from dreamgym_kit.report.documents import quiet
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


_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 56rem; margin: 2rem auto; padding: 0 1rem;
       color: #1b1f24; background: #fff; color-scheme: light dark; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
.lead { font-size: 1.1rem; border-left: 4px solid #8a8f98; padding-left: .8rem; }
.lead.good { border-color: #1a7f37; } .lead.bad { border-color: #b35900; }
table { border-collapse: collapse; margin: 1rem 0; }
th { overflow-wrap: normal; }
td, th { border: 1px solid #d0d7de; padding: .3rem .6rem; text-align: left; }
pre { background: #f6f8fa; padding: .8rem; white-space: pre-wrap; }
@media (prefers-color-scheme: dark) {
  body { color: #e6edf3; background: #0d1117; }
  td, th { border-color: #30363d; } pre { background: #161b22; } }
"""


class Block(NamedTuple):
    """A part of the report."""

    kind: str  # one of `_FORMS`, or "table"
    rows: Sequence[Sequence[str]]  # of cells; all but a table have one in each


_FORMS = {  # kind: a row in Markdown; before all rows, a row, and after all rows in HTML
    "heading": ("## {}", "", "<h2>{}</h2>", ""),
    "good": ("**{}**", "", '<p class="lead good">{}</p>', ""),
    "bad": ("**{}**", "", '<p class="lead bad">{}</p>', ""),
    "paragraph": ("{}", "", "<p>{}</p>", ""),
    "points": ("- {}", "<ul>", "<li>{}</li>", "</ul>"),
}


def _block(kind: str, *texts: str) -> Block:
    return Block(kind, [(text,) for text in texts])


def _table(*rows: Sequence[str]) -> Block:
    """The first row is the head."""
    return Block("table", rows)


def write_report(out: Path, plan: "WholeWayPlan", outcome: "WholeWayOutcome") -> Path:
    """Write both forms; gives the page."""
    blocks = list(blocks_of(plan, outcome))
    write_atomically(out / "report.md", as_markdown(TITLE, blocks).encode("utf-8"))
    write_atomically(out / "report.html", as_html(TITLE, blocks).encode("utf-8"))
    return out / "report.html"


def blocks_of(plan: "WholeWayPlan", outcome: "WholeWayOutcome") -> Iterator[Block]:
    """The report, part by part; the answer first."""
    beating = outcome.after.beating
    assert beating is not None  # it was held against the start
    yield _block("good" if outcome.promoted else "bad", outcome.sentence)
    said_before = beating.phrase("what is deployed", "the candidate")  # the same, in other words
    reasons = [reason for reason in outcome.event.reasons if reason != said_before]
    if reasons and not outcome.promoted:
        yield _block("points", *reasons)
    yield _block("heading", "How good it is, on the real tools")
    tries = f"{plan.tries} tries" if plan.tries > 1 else "one try"
    yield _block(
        "paragraph",
        f"{plan.held_out} tasks without training data, in environments without recordings, {tries} each. "
        "In brackets: where the true figure lies, 95 times in 100.",
    )
    yield _table(("", "solved", "against the start"), *_scores(outcome))
    yield _table(("kind of task", "the start", "the candidate"), *_kinds(outcome))
    yield _block("heading", "What it cost")
    yield _table(("phase", "real calls", "seconds"), *_phases(outcome))
    yield from _notes(outcome)
    yield _block("heading", "What this does not say")
    yield _block("points", *_caveats(plan, outcome))
    yield _block("heading", "How it is used, and how it is undone")
    yield _block("code", *outcome.pointing.lines)
    yield _block(
        "paragraph",
        "The first line starts a server; dreamgym-kit serve does the same, after it held the files against "
        f"their digest. The second stands in the graph. Both read the key from {KEY}: set it to a secret of "
        "your own. Tool calls inside the third are kept for the next training.",
    )
    if outcome.promoted:
        registry = shlex.quote(outcome.pointing.shelf)
        yield _block("code", f"dreamgym-kit deploy rollback --registry {registry}")
    else:
        yield _block("paragraph", "There is nothing to undo: what is in use is the first version here.")
    yield _block("paragraph", f"The card of what is in use: {outcome.card}")


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


def _notes(outcome: "WholeWayOutcome") -> Iterator[Block]:
    dream, real = outcome.facts.get("dream", {}), outcome.facts.get("real", {})
    answered, made = dream.get("dreamed_calls", 0), dream.get("real_calls", 0)
    notes = [
        f"In the dream {answered:,} calls were answered, and {made} real ones made.",
        f"The gate to the real tools: {real.get('gate', 'not tried')}.".replace("..", "."),
    ]
    if dream.get("alarm"):
        notes.append(f"An alarm ended the dream at its last good step: {dream['alarm']}")
    if real.get("stopped"):
        notes.append(f"What ended the real calls: {real['stopped']}")
    yield _block("points", *notes)


def _caveats(plan: "WholeWayPlan", outcome: "WholeWayOutcome") -> Iterator[str]:
    yield f"One seed ({plan.seed}). Another gives other figures; the interval is about tasks, not seeds."
    yield "Other requests, environments other than this desk's, failing tools, and input that misleads."
    if outcome.after.b.inconclusive:
        yield f"{outcome.after.b.inconclusive} episodes of the candidate could not be judged."
    if outcome.promoted:
        yield "Whether it stays better: calls are recorded from now on, so that this can be asked again."


def as_markdown(title: str, blocks: Sequence[Block]) -> str:
    """The report as Markdown."""
    return "\n\n".join([f"# {quiet(title)}", *(_markdown(block) for block in blocks)]) + "\n"


def as_html(title: str, blocks: Sequence[Block]) -> str:
    """The report as one HTML file."""
    body = "\n".join(_html(block) for block in blocks)
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_text(title)}</title><style>{_STYLE}</style></head>\n"
        f"<body><h1>{_text(title)}</h1>\n{body}\n</body></html>\n"
    )


def _markdown(block: Block) -> str:
    if block.kind == "table":
        head, *rows = block.rows
        return "\n".join(f"| {' | '.join(map(quiet, row))} |" for row in (head, ["---"] * len(head), *rows))
    if block.kind == "code":
        return "\n".join(f"    {one_line(line)}" for [line] in block.rows)
    return "\n".join(_FORMS[block.kind][0].format(quiet(text)) for [text] in block.rows)


def _html(block: Block) -> str:
    if block.kind == "table":
        head, *rows = block.rows
        cells = "".join(f'<th scope="col">{_text(cell)}</th>' for cell in head)
        lines = "".join(f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in row)}</tr>" for row in rows)
        return f"<table><thead><tr>{cells}</tr></thead><tbody>{lines}</tbody></table>"
    if block.kind == "code":
        return f"<pre>{html.escape(chr(10).join(one_line(line) for [line] in block.rows))}</pre>"
    _, before, row, after = _FORMS[block.kind]
    return f"{before}{''.join(row.format(_text(text)) for [text] in block.rows)}{after}"


def _text(text: str) -> str:
    return html.escape(one_line(text), quote=True)
