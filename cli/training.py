"""A training as `report` shows it: on the terminal, as JSON, as a page, as pictures."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dreamgym_kit.cli.output import say, say_json, tell

if TYPE_CHECKING:
    from dreamgym_kit.rollout.rundir import RunDirectory


def shown(
    directory: "RunDirectory",
    to: Path | None,
    *,
    html: bool,
    plots: Path | None,
    open_it: bool,
    as_json: bool,
    others: Sequence[object],
) -> bool:
    """Show a run directory if it is that of a training; False where it is not."""
    from dreamgym_kit.errors import UserError
    from dreamgym_kit.report.training import is_training

    if not is_training(directory):
        if plots is not None:
            raise UserError("report: --plots draws a training; this is a run of episodes.")
        return False
    if any(other is not None for other in others):
        raise UserError(
            f"report: {directory.path} is a training; it is shown whole, with --html, --plots or --json. "
            "The episodes of its steps are runs of their own below it, in rollouts/."
        )
    _show(directory, to, html=html or to is not None, plots=plots, open_it=open_it, as_json=as_json)
    return True


def _show(
    directory: "RunDirectory",
    to: Path | None,
    *,
    html: bool,
    plots: Path | None,
    open_it: bool,
    as_json: bool,
) -> None:
    """Show a training: on the terminal, as a page, as pictures."""
    from dreamgym_kit.cli.running import near, stdout_paint
    from dreamgym_kit.report.terminal import next_steps
    from dreamgym_kit.report.training import training_of
    from dreamgym_kit.report.training_text import render_training

    training = training_of(directory)
    if plots is not None:
        from dreamgym_kit.adapters.plots.training import draw_training

        drawn = draw_training(training, plots)
        say_json({"pictures": [str(path) for path in drawn]}) if as_json else say(f" {near(plots)}")
        return
    if html or open_it:
        _write_training_page(directory, to, open_it=open_it, as_json=as_json)
        return
    if as_json:
        say_json({"directory": str(directory.path), **training.to_json()})
        return
    say(f" {near(directory.path)}")
    say(render_training(training, paint=stdout_paint()))
    run = shlex.quote(near(directory.path))
    say(next_steps([("Page", f"dreamgym-kit report {run} --html", "how it went, step by step")]))


def _write_training_page(directory: "RunDirectory", to: Path | None, *, open_it: bool, as_json: bool) -> None:
    import webbrowser

    from dreamgym_kit.cli.running import near
    from dreamgym_kit.report.page.training import training_page
    from dreamgym_kit.report.training import training_of
    from dreamgym_kit.rollout.files import write_atomically

    target = page_target(directory, to)
    html = training_page(training_of(directory), name=directory.path.name).encode("utf-8")
    write_atomically(target, html)
    link = target.absolute().as_uri()
    if as_json:
        say_json({"page": str(target), "bytes": len(html), "link": link})
    else:
        say(f" {near(target)}  {len(html) / 1e6:.1f} MB\n {link}")
    if open_it and not webbrowser.open(link):
        tell("warning: no browser was found here; open the file named above.")


def page_target(directory: "RunDirectory", to: Path | None) -> Path:
    """Where a page is to be written."""
    from dreamgym_kit.errors import UserError
    from dreamgym_kit.report.page.writing import PAGE
    from dreamgym_kit.rollout.files import is_folder

    target = directory.path / PAGE if to is None else to
    if is_folder(target) or not is_folder(target.parent):
        raise UserError(f"report: --to {target}: name a file in a folder that is there.")
    return target
