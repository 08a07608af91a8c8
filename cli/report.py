"""`dreamgym-kit report`, `compare` and `runs`: a run or one of its episodes, two runs, all that there are."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dreamgym_kit.cli import options, s2r
from dreamgym_kit.cli.output import near, say, say_json, say_steps, stdout_paint
from dreamgym_kit.cli.running import look_at, opened, say_episode, summary_of
from dreamgym_kit.errors import UnknownName, UserError
from dreamgym_kit.report.sanitize import one_line

if TYPE_CHECKING:
    from dreamgym_kit.report.comparing import Comparison
    from dreamgym_kit.report.metrics import RunMetrics
    from dreamgym_kit.rollout.rundir import RunDirectory

EXAMPLES = (
    "dreamgym-kit report",
    "dreamgym-kit report runs/2026-11-21-desk-7f3a --tools",
    "dreamgym-kit report --only failed",
    "dreamgym-kit report --episode refund-03.2",
    "dreamgym-kit report --json > report.json",
)


Only = Literal["passed", "failed", "inconclusive", "error", "anomaly"]
EpisodeId = Annotated[str | None, options.option("--episode", "Show this episode step by step.", "ID")]
OnlyThese = Annotated[Only | None, options.option("--only", "List only episodes of this kind.")]
List = Annotated[bool, options.option("--list", "List the episodes, worst first.")]
Full = Annotated[bool, options.option("--full", "With --episode: cut no text.")]
Tools = Annotated[bool, options.option("--tools", "List every tool: effect, calls, sources of its answers.")]


def command(
    run: options.Run = None,
    episode: EpisodeId = None,
    only: OnlyThese = None,
    list_all: List = False,
    full: Full = False,
    tools: Tools = False,
    as_json: options.AsJson = False,
) -> None:
    """Print a run, or one episode, in the terminal.

    Shows what the agent would have done, what to check first, and how reliable that is.
    """
    directory = opened(run)
    alone = episode is not None or only is not None or list_all or tools
    if s2r.shown(directory, as_json=as_json) or _show_training(directory, alone=alone, as_json=as_json):
        return
    if episode is not None:
        _show_episode(directory, episode, full=full, as_json=as_json)
        return
    summary = summary_of(directory)
    if as_json:
        say_json(summary.to_json())
    elif only is not None or list_all:
        _show_list(summary, directory, only)
    else:
        _show_run(summary, directory, tools=tools)


def _show_run(summary: "RunMetrics", directory: "RunDirectory", *, tools: bool) -> None:
    from dreamgym_kit.report.terminal import finding_list, render_run, tool_table

    paint = stdout_paint()
    say(render_run(summary, paint=paint))
    say(f" {near(directory.path)}\n")
    if summary.findings:
        say(finding_list(summary, paint) + "\n")
    if tools:
        say(tool_table(summary, paint) + "\n")
    place = shlex.quote(near(directory.path))
    steps = [("List", f"dreamgym-kit report {place} --list", "its episodes, the worst first")]
    steps.append(("Page", f"dreamgym-kit view {place}", "the same in the browser"))
    if not tools:
        steps.append(("Tools", f"dreamgym-kit report {place} --tools", "where each tool's answers came from"))
    say_steps(look_at(summary, directory.path), *steps)


def _show_list(summary: "RunMetrics", directory: "RunDirectory", only: Only | None) -> None:
    from dreamgym_kit.report.terminal import episode_list

    say(episode_list(summary, stdout_paint(), only=only) + "\n")
    place = shlex.quote(near(directory.path))
    say_steps(("Look", f"dreamgym-kit report {place} --episode ID", "one of them, step by step"))


def _show_episode(directory: "RunDirectory", name: str, *, full: bool, as_json: bool) -> None:
    from dreamgym_kit.rollout.journal import episode_to_record

    ids = []
    for episode in directory.episodes():
        if episode.id == name:
            break
        ids.append(episode.id)
    else:
        raise UnknownName("episode", name, known=ids[:100], source=str(directory.path), where="the run")
    if as_json:
        say_json(episode_to_record(episode))
    else:
        say_episode(directory, episode, full=full)


def _show_training(directory: "RunDirectory", *, alone: bool, as_json: bool) -> bool:
    """Show a run directory if it is that of a training; False where it is not.

    `alone`: some of its episodes were asked for, which a training has not.
    """
    from dreamgym_kit.rollout.rundir import TRAINING

    if directory.mode != TRAINING:
        return False
    from dreamgym_kit.report.training import training_of
    from dreamgym_kit.report.training_text import render_training

    if alone:
        raise UserError(
            f"report: {directory.path} is a training, which is shown whole. The episodes of its steps are "
            "runs of their own below it, in rollouts/."
        )
    training = training_of(directory)
    if as_json:
        say_json({"directory": str(directory.path), **training.to_json()})
        return True
    say(f" {near(directory.path)}")
    say(render_training(training, paint=stdout_paint()))
    run = shlex.quote(near(directory.path))
    say_steps(("Page", f"dreamgym-kit view {run}", "how it went, step by step"))
    return True


RUNS_EXAMPLES = (
    "dreamgym-kit runs list",
    "dreamgym-kit runs merge shards/1 shards/2 shards/3 --into runs/nightly",
    "dreamgym-kit runs merge shards/* --into runs/nightly --json",
)
MERGE_CODES = (
    "Exit codes: 0 merged, now or before; 1 failed, 3 inconclusive, 4 error, over all "
    "shards; 2 a shard is missing, duplicate, unfinished or of another run; 6 a real call was "
    "executed in one of them."
)

runs_app = options.group("List runs; merge shards.", RUNS_EXAMPLES)

Directories = Annotated[
    list[Path], typer.Argument(metavar="DIR...", help="The run directories of all shards.")
]
Into = Annotated[Path, typer.Option("--into", metavar="DIR", help="Run directory to create.")]


@runs_app.command("list")
def list_runs(as_json: options.AsJson = False) -> None:
    """List runs, newest first."""
    from dreamgym_kit.rollout.rundir import runs_below

    settings = options.settings_for()
    rows = []
    for run in runs_below(settings.resolve(settings.runs)):
        headline = (run.read_report() or {}).get("headline")
        summary = one_line(headline) if isinstance(headline, str) else ""
        rows.append((near(run.path), run.mode, summary))
    if as_json:
        say_json([dict(zip(("run", "mode", "headline"), row, strict=True)) for row in rows])
        return
    widths = [max((len(row[column]) for row in rows), default=0) for column in (0, 1)]
    for place, mode, summary in rows:
        say(f"{place:<{widths[0]}}  {mode:<{widths[1]}}  {summary}".rstrip())


@runs_app.command("merge", epilog=options.examples(RUNS_EXAMPLES, MERGE_CODES))
def merge(directories: Directories, into: Into, as_json: options.AsJson = False) -> None:
    """Merge the shards of a run into one run directory with one report.

    All shards must be present, finished, and of the same run. Merging again changes nothing, unless episodes
    with errors were run again since: then the merged run is rebuilt.
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
Limit = Annotated[int, typer.Option("--limit", metavar="N", min=1, help="Maximum number of tasks listed.")]
Output = Annotated[Path | None, options.option("--output -o", "Write FILE.html too.", "FILE")]


def compare(
    before: Before,
    after: After,
    limit: Limit = 20,
    output: Output = None,
    as_json: options.AsJson = False,
) -> None:
    """Compare two runs of the same tasks.

    By task, tool and finding, with 95% confidence intervals.
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
    from dreamgym_kit.report.page.writing import comparison_page
    from dreamgym_kit.rollout.atomic_files import is_folder, write_atomically

    if target.suffix != ".html" or is_folder(target) or not is_folder(target.absolute().parent):
        raise UserError(f"-o {target}: name a file that ends in .html, in a folder that is there.")
    write_atomically(target, comparison_page(comparison).encode("utf-8"))
