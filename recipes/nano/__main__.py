"""`python -m dreamgym_kit.recipes.nano build|experience OUT`: builds a nano model from nothing.

`build` makes a policy (see `build`), `experience` an experience model (see `experience.build`).
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from dreamgym_kit.errors import UserError
from dreamgym_kit.recipes.nano.build import BuildPlan, build
from dreamgym_kit.recipes.nano.lessons import Lessons

_ABOUT = {
    "build": "record the desk, train a policy from nothing, measure it",
    "experience": "record the desk, train an experience model from nothing, measure it",
}
_QUICK = BuildPlan(episodes=300, lessons=Lessons(steps=40), environments_per_family=2, samplings=1)


def main(arguments: list[str] | None = None) -> int:
    """Build as told on the command line; gives the exit code."""
    parser = argparse.ArgumentParser(prog="python -m dreamgym_kit.recipes.nano")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, about in _ABOUT.items():
        command = commands.add_parser(name, help=about)
        command.add_argument("out", type=Path, help="the model directory to be written")
        command.add_argument(
            "--seed", type=int, default=0, help="decides data, weights and order (default 0)"
        )
        command.add_argument("--quick", action="store_true", help="a token effort, to see that it runs")
        if name == "experience":
            command.add_argument(
                "--no-reasoning",
                action="store_true",
                help="teach it no reasons: an ablation",
            )
    flags = parser.parse_args(arguments)
    try:
        if flags.command == "build":
            build(flags.out, replace(_QUICK if flags.quick else BuildPlan(), seed=flags.seed), tell=_say)
        else:
            _build_experience(flags.out, seed=flags.seed, quick=flags.quick, reasons=not flags.no_reasoning)
    except UserError as refused:
        sys.stderr.write(f"error: {refused}\n")
        return 2
    return 0


def _build_experience(out: Path, *, seed: int, quick: bool, reasons: bool) -> None:
    from dreamgym_kit.recipes.nano.experience.build import QUICK, ExperiencePlan
    from dreamgym_kit.recipes.nano.experience.build import build as build_experience

    plan = replace(QUICK if quick else ExperiencePlan(), seed=seed, reasons=reasons)
    build_experience(out, plan, tell=_say)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
