"""`dreamgym-kit compare`: two runs on the same tasks, what changed and how sure that is."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dreamgym_kit.cli import options
from dreamgym_kit.cli.output import say, say_json

if TYPE_CHECKING:
    from dreamgym_kit.report.comparing import Comparison

EXAMPLES = (
    "dreamgym-kit compare runs/2026-11-20-desk-1c2d runs/2026-11-21-desk-7f3a",
    "dreamgym-kit compare BEFORE AFTER --json > compare.json",
    "dreamgym-kit compare BEFORE AFTER --html compare.html",
)

Before = Annotated[Path, typer.Argument(metavar="BEFORE", help="A run directory.", show_default=False)]
After = Annotated[
    Path, typer.Argument(metavar="AFTER", help="Another run on the same tasks.", show_default=False)
]
Limit = Annotated[int, typer.Option("--limit", min=1, help="Most tasks listed.")]
Html = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", help="Write it as one HTML file too.", show_default=False),
]


def command(
    before: Before,
    after: After,
    limit: Limit = 20,
    html: Html = None,
    as_json: options.AsJson = False,
) -> None:
    """Compare two runs of the same tasks.

    By task, by tool and by finding, with 95 % intervals.
    """
    from dreamgym_kit.cli.report import summary_of
    from dreamgym_kit.cli.running import near, stdout_paint
    from dreamgym_kit.report.compare_text import render_comparison
    from dreamgym_kit.report.comparing import compared
    from dreamgym_kit.report.terminal import next_steps
    from dreamgym_kit.rollout.rundir import RunDirectory

    runs = [RunDirectory.open(path) for path in (before, after)]
    names = (near(runs[0].path), near(runs[1].path))
    found = compared(summary_of(runs[0]), summary_of(runs[1]), names=names)
    if html is not None:
        _write(found, html)
    if as_json:
        say_json(found.to_json())
        return
    say(render_comparison(found, paint=stdout_paint(), limit=limit))
    place = shlex.quote(names[1])
    steps = [("Look", f"dreamgym-kit report {place} --list", "the episodes of the run after")]
    if html is not None:
        say(f" {html.absolute().as_uri()}")
    else:
        again = " ".join(["dreamgym-kit compare", *map(shlex.quote, names), "--html compare.html"])
        steps.append(("Show", again, "the same as a page"))
    say(next_steps(steps))


def _write(found: "Comparison", target: Path) -> None:
    from dreamgym_kit.errors import UserError
    from dreamgym_kit.report.page.comparison import comparison_page
    from dreamgym_kit.rollout.files import is_folder, write_atomically

    if is_folder(target) or not is_folder(target.absolute().parent):
        raise UserError(f"compare: --html {target}: name a file in a folder that is there.")
    write_atomically(target, comparison_page(found).encode("utf-8"))
