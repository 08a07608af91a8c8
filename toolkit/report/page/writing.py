"""Write a page for one run or a comparison: one file, or a frame inside a notebook.

No text of a run becomes markup. Data is in JSON blocks with `& < >` and the line separators escaped, so that
no text can end its block; the script inserts it as text nodes. The content security policy allows exactly
this style and this script, by hash: no request, no frame, no form. All placeholders of the template are
replaced in one pass, so a placeholder inside the data stays unchanged.

In a notebook the page is a frame, followed by the text that remains if frames are removed. The frame's
address is the page itself (`data:`): in a `srcdoc` frame, links within the page would open the notebook in
itself. The frame's sandbox allows only the page's script: it cannot reach cookies, tokens or cells of the
notebook, and the content security policy still applies. Untrusted notebooks remove the frame and keep the
text.

Fields of a comparison's data (schema 3; a later version adds fields and keeps these):

    schema   3
    kind     "compare"
    run      {"name", "title", "notes": [text]}
    report   the comparison as `compare --json` gives it
    compare  {"stamp", "sign": a verdict's, "figures", "tools", "findings": [{"name", "before", "after",
             "moved", "clear", "good", "at": [low, change, high], "most"}]}
"""

import base64
import hashlib
import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path

from dreamgym_kit.errors import RunDirectoryError
from dreamgym_kit.report.comparing import (
    Change,
    Comparison,
    executed_compared,
    faults_compared,
    format_figures,
    left_out,
)
from dreamgym_kit.report.metrics import RunMetrics
from dreamgym_kit.report.page.gathering import gather, packed
from dreamgym_kit.report.page.overview import overview
from dreamgym_kit.report.summary import curve_of, facts_of
from dreamgym_kit.rollout.rundir import RunDirectory
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.trust.comparison import Conclusion

SCRIPTS = ("base", "verdict", "figures", "episodes", "episode", "compare", "training", "routes")
SCHEMA = 3  # of all page data; the script reads only this one
_MARK = re.compile(r"@@(style-hash|script-hash|style|script|report|episodes)@@")
_ESCAPED = {ord(char): f"\\u{ord(char):04x}" for char in "&<>\u2028\u2029"}
_LONG = 2000  # maximum characters of a manifest fact
PAGE = "report.html"
WARN_BYTES = 20_000_000
MAX_BYTES = 4_000_000  # of a page in a notebook, whose file grows by a third more
_HEIGHT = 720  # pixels


def document(report: Mapping[str, JsonValue], episodes: Mapping[str, JsonValue] | None = None) -> str:
    """Return the page.

    Args:
        report: data of the first screens; see `overview.overview`. Its schema, and the manifest as rows of
            text, are added here.
        episodes: the packed steps of all episodes from `packed`; None: left out.

    Raises:
        ValueError: a number in the data is not finite.
    """
    style, script = source("report.css"), script_text()
    manifest = {"manifest": manifest_rows(report["manifest"])} if "manifest" in report else {}
    parts = {
        "style-hash": _hash(style),
        "script-hash": _hash(script),
        "style": style,
        "script": script,
        "report": as_block({"schema": SCHEMA, **report, **manifest}),
        "episodes": as_block(packed([]).block if episodes is None else episodes),
    }
    return _MARK.sub(lambda mark: parts[mark[1]], source("report.html"))


def as_block(value: JsonValue) -> str:
    """Serialize data for a `<script type="application/json">`: valid JSON without markup."""
    spelled = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # a lone surrogate has no UTF-8 form and breaks links
    return spelled.encode("utf-8", "replace").decode("utf-8").translate(_ESCAPED)


@cache
def script_text() -> str:
    """Return the script: its files in order, in one closed scope."""
    parts = "\n".join(source(f"script/{name}.js") for name in SCRIPTS)
    return f"(() => {{\n'use strict';\n{parts}}})();\n"


@cache
def source(name: str) -> str:
    """Read a source file of the page from the installed package."""
    return files(__package__).joinpath(name).read_text("utf-8").replace("\r\n", "\n")


def _hash(text: str) -> str:
    """Return the hash of an inline style or script for the content security policy."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def manifest_rows(manifest: Mapping[str, JsonValue]) -> list[JsonValue]:
    """Return the manifest as rows: `[[name, text], ...]`."""
    rows: list[JsonValue] = []
    created = manifest.get("created_at")
    if isinstance(created, (int, float)):
        rows.append(["begun", datetime.fromtimestamp(created, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")])
    for part in ("matters", "about"):
        value = manifest.get(part)
        if isinstance(value, Mapping):
            rows += [[name.replace("_", " "), text[:_LONG]] for name, text in _rows(value)]
    return rows


def _rows(facts: Mapping[str, JsonValue]) -> Iterator[tuple[str, str]]:
    for name, value in facts.items():
        if isinstance(value, Mapping):
            if value:
                yield name, ", ".join(f"{key} {_fact(item)}" for key, item in value.items())
        else:
            yield name, _fact(value)


def _fact(value: JsonValue) -> str:
    if value is None:
        return "none"
    return value if isinstance(value, str) else json.dumps(value)


@dataclass(frozen=True, slots=True)
class Page:
    """A page and its notes.

    Attributes:
        html: the whole file.
        summary: the figures that it shows.
        warnings: warnings for the reader.
        look_at: the episode to look at first and its step, or None.
    """

    html: str
    summary: RunMetrics
    warnings: tuple[str, ...] = ()
    look_at: tuple[str, int | None] | None = None


def page_of(directory: RunDirectory, *, place: str) -> Page:
    """Build the page of a run; an unfinished run shows its finished episodes.

    Args:
        directory: the run, open for reading.
        place: its directory, for the commands on the page.

    Raises:
        RunDirectoryError: the journal is damaged or of another version.
    """
    episodes = directory.episodes()
    gathered = gather(episodes)
    summary = gathered.tally.summary(facts_of(directory), curve_of(directory))
    warnings = [] if episodes.torn is None else [f"{directory.path}: {episodes.torn}"]
    steps = packed([gathered.steps[line.id] for line in summary.episodes])
    notes = []
    if steps.left_out:
        notes.append(
            f"The steps of {steps.left_out:,} episodes are not in this page, which would be too large to "
            "open; dreamgym-kit report --episode shows them."
        )
    report = overview(gathered, summary, place=place, notes=notes)
    html = document(report, steps.block)
    worst = summary.worst
    if len(html) > WARN_BYTES:
        warnings.append(f"the page has {len(html) / 1e6:.0f} MB; some browsers will be slow to open it")
    return Page(
        html=html,
        summary=summary,
        warnings=(*warnings, *notes),
        look_at=(worst.id, worst.anomaly_step) if worst is not None else None,
    )


def inline(directory: Path, text: str) -> str:
    """Return a run's page as HTML for a notebook cell.

    Args:
        directory: the run; if it is missing or damaged, only the text is returned.
        text: the run as text, shown if the frame is not.
    """
    pre = f"<pre>{escape(text)}</pre>"
    place = shlex.quote(str(directory))
    try:
        page = page_of(RunDirectory.open(directory), place=place).html.encode("utf-8")
    except RunDirectoryError:
        return pre
    command = f"<code>{escape(f'dreamgym-kit view {place}')}</code>"
    if len(page) > MAX_BYTES:
        return f"{pre}<p>The page has {len(page) / 1e6:.0f} MB, too much for a notebook: {command}</p>"
    return (
        f"<details><summary>As text</summary>{pre}</details>"
        f'<iframe title="dreamgym-kit report" sandbox="allow-scripts" referrerpolicy="no-referrer" '
        f'style="width:100%;height:{_HEIGHT}px;border:1px solid #8884;border-radius:4px" '
        f'src="data:text/html;charset=utf-8;base64,{base64.b64encode(page).decode("ascii")}"></iframe>'
        f"<p>As a file: {command}</p>"
    )


_SIGNS = {Conclusion.BETTER: "passed", Conclusion.WORSE: "failed"}


def comparison_page(comparison: Comparison) -> str:
    """Return the whole file."""
    return document(comparison_block(comparison))


def comparison_block(comparison: Comparison) -> dict[str, JsonValue]:
    """Return the data of the page, with all judgments made."""
    return {
        "kind": "compare",
        "run": {
            "name": "compare",
            "title": f"{comparison.word.label}  {comparison.before} and {comparison.after}",
            "notes": _notes(comparison),
        },
        "report": comparison.to_json(),
        "compare": {
            "stamp": comparison.word.label,
            "sign": _SIGNS.get(comparison.word, "inconclusive"),
            "figures": _figures(comparison),
            "tools": _change_rows(comparison.tools, share=False),
            "findings": _change_rows(comparison.findings, share=True, good=False),
        },
    }


def _notes(runs: Comparison) -> list[JsonValue]:
    return [
        *executed_compared(runs),
        *(f"Not compared: {text}." for text in left_out(runs)),
        *(f"Planned faults: {text}." for text in faults_compared(runs)),
        *([f"Other settings: {'; '.join(runs.differs)}"] if runs.differs else []),  # in one note
    ]


def _figures(comparison: Comparison) -> list[JsonValue]:
    cost = comparison.cost_usd
    rows: list[JsonValue] = [
        _row(name, change, share=True, good=good, most=1.0)
        for name, change, good in (
            ("pass rate", comparison.pass_rate, True),
            ("inconclusive", comparison.inconclusive, False),
        )
        if change is not None
    ]
    if cost is not None and (cost.before or cost.after):
        rows.append(_row("USD", cost, share=False, good=False, most=_most([cost])))
    return rows


def _change_rows(changes: Mapping[str, Change], *, share: bool, good: bool | None = None) -> list[JsonValue]:
    """Return the figures that changed, on one axis."""
    moved = {name: change for name, change in changes.items() if change.change}
    most = 1.0 if share else _most(list(moved.values()))
    return [_row(name, change, share=share, good=good, most=most) for name, change in moved.items()]


def _most(changes: list[Change]) -> float:
    return max([abs(bound) for change in changes for bound in (change.low, change.high)], default=0.0) or 1.0


def _row(name: str, change: Change, *, share: bool, good: bool | None, most: float) -> dict[str, JsonValue]:
    """Return one row; `good`: whether more is better, None if unknown."""
    before, after, moved = format_figures(change, share=share)
    better = None if good is None or not change.clear else (change.change > 0) == good
    return {
        "name": name,
        "before": before,
        "after": after,
        "moved": moved,
        "clear": change.clear,
        "good": better,
        "at": [change.low, change.change, change.high],
        "most": most,
    }
