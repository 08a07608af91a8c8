"""`dreamgym-kit runs` and `compare`: the runs that there are, shards made one run, two runs side by side."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dreamgym_kit.cli import options
from dreamgym_kit.cli.output import near, say, say_json, say_steps, stdout_paint
from dreamgym_kit.cli.running import look_at, summary_of
from dreamgym_kit.errors import UserError
from dreamgym_kit.report.sanitize import one_line

if TYPE_CHECKING:
    from dreamgym_kit.report.comparing import Comparison

EXAMPLES = (
    "dreamgym-kit runs list",
    "dreamgym-kit runs merge shards/1 shards/2 shards/3 --into runs/nightly",
    "dreamgym-kit runs merge shards/* --into runs/nightly --json",
)
CODES = (
    "Exit codes: 0 merged, also where it was before; 1 failed, 3 inconclusive, 4 error, over all "
    "shards; 2 shards are missing, twice there, not finished or of different runs; 6 a real call was "
    "executed in one of them."
)

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="List runs; merge shards.")

Directories = Annotated[
    list[Path], typer.Argument(metavar="DIR...", help="The run directories of all shards.")
]
Into = Annotated[Path, typer.Option("--into", metavar="DIR", help="The run directory to make.")]


@app.callback()
def runs() -> None:
    """Run directories: put shards together."""


def list_runs(as_json: options.AsJson = False) -> None:
    """List runs, newest first."""
    from dreamgym_kit.rollout.rundir import runs_below

    settings = options.settings_for()
    rows = []
    for run in runs_below(settings.resolve(settings.runs)):
        headline = (run.read_report() or {}).get("headline")
        summary = one_line(headline) if isinstance(headline, str) else ""
        rows.append((near(run.path), str(run.manifest.matters.get("mode") or ""), summary))
    if as_json:
        say_json([dict(zip(("run", "mode", "headline"), row, strict=True)) for row in rows])
        return
    widths = [max((len(row[column]) for row in rows), default=0) for column in (0, 1)]
    for place, mode, summary in rows:
        say(f"{place:<{widths[0]}}  {mode:<{widths[1]}}  {summary}".rstrip())


def merge(directories: Directories, into: Into, as_json: options.AsJson = False) -> None:
    """Put the shards of a run together: one run directory, one journal, one report.

    All of them must be there, finished, and of the same run. Merging them again changes nothing, unless
    errors in them were run again meanwhile: then the run is made anew.
    """
    from dreamgym_kit.report.merging import merge_runs
    from dreamgym_kit.report.terminal import render_run

    merged = merge_runs(directories, into)
    if as_json:
        say_json(merged.summary.to_json())
    else:
        done = "were merged before" if merged.again else "merged"
        say(render_run(merged.summary, paint=stdout_paint()))
        say(f" {len(directories)} shards {done}: {merged.episodes} episodes in {near(merged.directory)}\n")
        say_steps(look_at(merged.summary, merged.directory))
    raise typer.Exit(merged.summary.exit_code)


COMPARE_EXAMPLES = (
    "dreamgym-kit compare runs/2026-11-20-desk-1c2d runs/2026-11-21-desk-7f3a",
    "dreamgym-kit compare BEFORE AFTER --json > compare.json",
    "dreamgym-kit compare BEFORE AFTER -o compare.html",
)

Before = Annotated[Path, options.argument("BEFORE", "A run directory.")]
After = Annotated[Path, options.argument("AFTER", "Another run on the same tasks.")]
Limit = Annotated[int, typer.Option("--limit", metavar="N", min=1, help="Most tasks listed.")]
Output = Annotated[Path | None, options.option("--output -o", "Write FILE.html too.", "FILE")]


def compare(
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
        _write_page(comparison, output)
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


def _write_page(comparison: "Comparison", target: Path) -> None:
    from dreamgym_kit.report.page.comparison import comparison_page
    from dreamgym_kit.rollout.atomic_files import is_folder, write_atomically

    if target.suffix != ".html" or is_folder(target) or not is_folder(target.absolute().parent):
        raise UserError(f"-o {target}: name a file that ends in .html, in a folder that is there.")
    write_atomically(target, comparison_page(comparison).encode("utf-8"))
