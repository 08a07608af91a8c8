"""`dreamgym-kit compare`: two runs on the same tasks, what changed and how sure that is."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dreamgym_kit.cli import options
from dreamgym_kit.cli.output import near, say, say_json, say_steps, stdout_paint
from dreamgym_kit.cli.running import summary_of
from dreamgym_kit.errors import UserError

if TYPE_CHECKING:
    from dreamgym_kit.report.comparing import Comparison

EXAMPLES = (
    "dreamgym-kit compare runs/2026-11-20-desk-1c2d runs/2026-11-21-desk-7f3a",
    "dreamgym-kit compare BEFORE AFTER --json > compare.json",
    "dreamgym-kit compare BEFORE AFTER -o compare.html",
)

Before = Annotated[Path, options.argument("BEFORE", "A run directory.")]
After = Annotated[Path, options.argument("AFTER", "Another run on the same tasks.")]
Limit = Annotated[int, typer.Option("--limit", metavar="N", min=1, help="Most tasks listed.")]
Output = Annotated[Path | None, options.option("--output -o", "Write FILE.html too.", "FILE")]


def command(
    before: Before,
    after: After,
    limit: Limit = 20,
    output: Output = None,
    as_json: options.AsJson = False,
) -> None:
    """Compare two runs of the same tasks.

    By task, by tool and by finding, with 95 % intervals.
    """
    from dreamgym_kit.report.comparing import compared, render_comparison
    from dreamgym_kit.rollout.rundir import RunDirectory

    runs = [RunDirectory.open(path) for path in (before, after)]
    names = (near(runs[0].path), near(runs[1].path))
    comparison = compared(summary_of(runs[0]), summary_of(runs[1]), names=names)
    if output is not None:
        _write(comparison, output)
    if as_json:
        say_json(comparison.to_json())
        return
    say(render_comparison(comparison, paint=stdout_paint(), limit=limit))
    place = shlex.quote(names[1])
    steps = [("Look", f"dreamgym-kit report {place} --list", "the episodes of the run after")]
    if output is not None:
        say(f" {output.absolute().as_uri()}")
    else:
        again = " ".join(["dreamgym-kit compare", *map(shlex.quote, names), "-o compare.html"])
        steps.append(("Show", again, "the same as a page"))
    say_steps(*steps)


def _write(comparison: "Comparison", target: Path) -> None:
    from dreamgym_kit.report.page.comparison import comparison_page
    from dreamgym_kit.rollout.atomic_files import is_folder, write_atomically

    if target.suffix != ".html" or is_folder(target) or not is_folder(target.absolute().parent):
        raise UserError(f"-o {target}: name a file that ends in .html, in a folder that is there.")
    write_atomically(target, comparison_page(comparison).encode("utf-8"))
