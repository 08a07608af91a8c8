"""`dreamgym-kit report`: a run again, one of its episodes, or a list of them."""

import shlex
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

from dreamgym_kit.cli import options, s2r
from dreamgym_kit.cli.output import near, say, say_json, say_steps, stdout_paint
from dreamgym_kit.cli.running import look_at, opened, say_episode, summary_of
from dreamgym_kit.errors import UnknownName, UserError

if TYPE_CHECKING:
    from dreamgym_kit.report.metrics import RunMetrics
    from dreamgym_kit.rollout.rundir import RunDirectory
    from dreamgym_kit.types import Episode

EXAMPLES = (
    "dreamgym-kit report",
    "dreamgym-kit report runs/2026-11-21-desk-7f3a --tools",
    "dreamgym-kit report --only failed",
    "dreamgym-kit report --episode refund-03.2",
    "dreamgym-kit report --json > report.json",
)


class Only(StrEnum):
    """Which episodes to list."""

    PASSED = "passed"
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"
    ERROR = "error"
    ANOMALY = "anomaly"


EpisodeId = Annotated[str | None, options.option("--episode", "This episode, step by step.", "ID")]
OnlyThese = Annotated[Only | None, options.option("--only", "List the episodes of this kind.")]
List = Annotated[bool, options.option("--list", "List the episodes, the worst first.")]
Full = Annotated[bool, options.option("--full", "With --episode: cut no text, however long.")]
Tools = Annotated[bool, options.option("--tools", "Every tool: effect, calls, where answers came from.")]


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

    What the agent would have done, what to look at first, how sure that is.
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

    say(episode_list(summary, stdout_paint(), only=only.value if only is not None else None) + "\n")
    place = shlex.quote(near(directory.path))
    say_steps(("Look", f"dreamgym-kit report {place} --episode ID", "one of them, step by step"))


def _show_episode(directory: "RunDirectory", name: str, *, full: bool, as_json: bool) -> None:
    from dreamgym_kit.rollout.records import episode_to_record

    episode = _find(directory, name)
    if as_json:
        say_json(episode_to_record(episode))
    else:
        say_episode(directory, episode, full=full)


def _find(directory: "RunDirectory", name: str) -> "Episode":
    known = []
    for episode in directory.episodes():
        if episode.id == name:
            return episode
        known.append(episode.id)
    raise UnknownName("episode", name, known=known[:100], source=str(directory.path), where="the run")


def _show_training(directory: "RunDirectory", *, alone: bool, as_json: bool) -> bool:
    """Show a run directory if it is that of a training; False where it is not.

    `alone`: some of its episodes were asked for, which a training has not.
    """
    from dreamgym_kit.report.training import is_training, training_of
    from dreamgym_kit.report.training_text import render_training

    if not is_training(directory):
        return False
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
