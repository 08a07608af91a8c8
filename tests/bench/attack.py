"""Attacks on the gate: does a body run in a dream by any way an agent can be written, and is it told?

Agents are generated, most by crossing how a function is held, how it comes to be run, in which kind of node,
sync or async. The function moves money at a bank in another process, and the bank's own log says what ran.
Each agent has a harmless twin of the same structure, which has to run to its end. Cases of which a body ran
stand in a table. One is tried alone by `python tests/bench/attack.py [--seed N] CASE`, which keeps
its projects.
"""

import argparse
import random
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))  # `waiting` lies beside this folder
from attacks.crossing import crossed
from attacks.project import Case
from attacks.trials import Outcome, tried
from attacks.written import written
from shares import share

CROSSED = 100
QUICK = 12

_TABLE: list[str] = []


def measure(seed: int) -> list[tuple[str, float, str]]:
    """Figures for the bench runner."""
    return figures(cases(seed))


def quick(seed: int) -> list[tuple[str, float, str]]:
    """The same of a few cases: how many were made is no figure of these."""
    chosen = random.Random(seed).sample(cases(seed), QUICK)
    return [figure for figure in figures(chosen) if figure[0] not in ("tries", "crossed")]


def cases(seed: int) -> list[Case]:
    """All of them that what is installed allows."""
    return [*(case for case in written() if not case.needs or find_spec(case.needs)), *crossed(seed, CROSSED)]


def figures(chosen: Sequence[Case], *, preload: str = "") -> list[tuple[str, float, str]]:
    """What trying these has shown; `preload` is a planted bug, see `tried`."""
    outcomes = tried(chosen, preload=preload)
    for outcome in outcomes:
        if outcome.ran or not outcome.real or not outcome.twin:
            print(line(outcome), file=sys.stderr)
    return judged(outcomes)


def judged(outcomes: Sequence[Outcome]) -> list[tuple[str, float, str]]:
    """The figures of these outcomes; a case whose body does not run without the kit either is no try."""
    real = [outcome for outcome in outcomes if outcome.real]
    _TABLE[:] = [row(outcome) for outcome in real if outcome.ran]
    return [
        ("tries", len(real), "cases"),
        ("crossed", sum(outcome.case.crossed for outcome in real), "cases"),
        ("ran", sum(outcome.ran for outcome in real), "cases"),
        ("ran_silent", sum(outcome.silent for outcome in real), "cases"),
        ("refused_before", sum(outcome.refused for outcome in real), "cases"),
        ("twins_right", share(sum(outcome.twin for outcome in real), len(real)), "share"),
    ]


def table() -> str:
    """Of which cases a body ran."""
    if not _TABLE:
        return "No body ran."
    return "\n".join(["| case | what it is | told |", "| --- | --- | --- |", *_TABLE])


def row(outcome: Outcome) -> str:
    """A case whose body ran, as a line of the page's table."""
    return f"| {outcome.case.name} | {outcome.case.about} | {'no' if outcome.silent else 'yes'} |"


def line(outcome: Outcome) -> str:
    """A case in a line of text."""
    words = [
        "no body runs for real" if not outcome.real else "",
        "RAN, silently" if outcome.silent else "RAN, and told" if outcome.ran else "",
        "refused" if outcome.refused else "",
        f"twin: {outcome.twin_why}" if outcome.twin_why else "",
    ]
    said = "; ".join(filter(None, words)) or "held"
    return f"{outcome.case.name} (code {outcome.code}) [{outcome.case.about}]: {said}"


def main() -> int:
    """Try the cases that are named, one line each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("cases", nargs="*", metavar="CASE", help="names; all without")
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn by chance (0)")
    parser.add_argument("--list", action="store_true", help="name all cases")
    asked = parser.parse_args()
    known = {case.name: case for case in cases(asked.seed)}
    if asked.list:
        print(*(f"{case.name:<34} {case.about}" for case in known.values()), sep="\n")
        return 0
    if unknown := [name for name in asked.cases if name not in known]:
        parser.error(f"no case named {', '.join(unknown)}; see --list")
    folder = Path(tempfile.mkdtemp(prefix="attack-")) if asked.cases else None
    outcomes = tried([known[name] for name in asked.cases or known], folder=folder)
    for outcome in outcomes:
        print(line(outcome))
    for name, value, unit in judged(outcomes):
        print(name, f"{value:g}", unit)
    if folder is not None:
        print(f"the projects: {folder}")
    return int(any(outcome.ran for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
