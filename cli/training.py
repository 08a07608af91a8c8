"""A training as `report` shows it: on the terminal, as JSON."""

import shlex
from typing import TYPE_CHECKING

from dreamgym_kit.cli.output import near, say, say_json, say_steps, stdout_paint
from dreamgym_kit.errors import UserError

if TYPE_CHECKING:
    from dreamgym_kit.rollout.rundir import RunDirectory


def shown(directory: "RunDirectory", *, alone: bool, as_json: bool) -> bool:
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
