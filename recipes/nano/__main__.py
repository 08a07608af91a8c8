"""`python -m dreamgym_kit.recipes.nano build|experience OUT`: builds a nano model from nothing.

`build` makes a policy (see `build`), `experience` an experience model (see `experience.build`).
"""

import argparse
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

from dreamgym_kit.errors import UserError
from dreamgym_kit.recipes.nano import build as policy
from dreamgym_kit.recipes.nano.build import Lessons
from dreamgym_kit.recipes.nano.experience import build as experience

_QUICK = policy.BuildPlan(episodes=300, lessons=Lessons(steps=40), environments_per_family=2, samplings=1)


def main(arguments: list[str] | None = None) -> int:
    """Build as asked on the command line; gives the exit code."""
    parser = argparse.ArgumentParser(prog="python -m dreamgym_kit.recipes.nano")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, kind in (("build", "a policy"), ("experience", "an experience model")):
        command = commands.add_parser(name, help=f"record the desk, train {kind} from nothing, measure it")
        command.add_argument("out", type=Path, help="the model directory to be written")
        seed_help = "decides data, weights and order (default 0)"
        command.add_argument("--seed", type=int, default=0, help=seed_help)
        command.add_argument("--quick", action="store_true", help="a token effort, to see that it runs")
    reasons_help = "teach it no reasons: an ablation"
    # the last command of the two
    command.add_argument("--no-reasoning", dest="reasons", action="store_false", help=reasons_help)
    flags, say = parser.parse_args(arguments), partial(print, flush=True)
    try:
        if flags.command == "build":
            plan = _QUICK if flags.quick else policy.BuildPlan()
            policy.build(flags.out, replace(plan, seed=flags.seed), tell=say)
        else:
            taught = experience.QUICK if flags.quick else experience.ExperiencePlan()
            experience.build(flags.out, replace(taught, seed=flags.seed, reasons=flags.reasons), tell=say)
    except UserError as refused:
        sys.stderr.write(f"error: {refused}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
