"""`python -m dreamgym_kit.recipes.nano build OUT`: builds a nano model from nothing; see `build`."""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from dreamgym_kit.errors import UserError
from dreamgym_kit.recipes.nano.build import Plan, build
from dreamgym_kit.recipes.nano.lessons import Lessons

_QUICK = Plan(episodes=300, lessons=Lessons(steps=40), worlds_per_family=2, samplings=1)


def main(arguments: list[str] | None = None) -> int:
    """Build as told on the command line; gives the exit code."""
    parser = argparse.ArgumentParser(prog="python -m dreamgym_kit.recipes.nano")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("build", help="record the desk, train a model from nothing, measure it")
    command.add_argument("out", type=Path, help="the model directory to be written")
    command.add_argument("--seed", type=int, default=0, help="decides data, weights and order (default 0)")
    command.add_argument("--quick", action="store_true", help="a token effort, to see that it runs")
    asked = parser.parse_args(arguments)
    plan = _QUICK if asked.quick else Plan()
    try:
        build(asked.out, replace(plan, seed=asked.seed), tell=_say)
    except UserError as refused:
        sys.stderr.write(f"error: {refused}\n")
        return 2
    return 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
