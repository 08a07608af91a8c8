"""Does a policy that learns under faults do better where real tools fail?

The nano policy of the package learns by GRPO in the dream of one set of recordings, once without faults and
once with `train.faults`, from as many episodes. All three are tried on the real tools, on held-out tasks:
as the tools are, and with one call in ten made to fail (an error, a time-out with or without effect, a rate
limit), the same ones for all. The agent is told of failures and may try again.

Each part keeps what it found (see `parts`). Full size takes some ten minutes of CPU time.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from parts import kept

SHARE = 0.1  # of calls that fail
ARMS: Mapping[str, float] = {"without": 0.0, "with": SHARE}
PARTS = ("start", *ARMS)
GRAPH = "tolerant_desk:graph"

_TABLE: list[str] = []


def measure(seed: int) -> list[tuple[str, float, str]]:
    """Figures for the bench runner."""
    return _figures(seed, small=False)


def quick(seed: int) -> list[tuple[str, float, str]]:
    """The same in small: that faults are met, and that all of it runs."""
    return _figures(seed, small=True)


def table() -> str:
    """What was learned under faults against what was not, task by task."""
    return "\n".join(["| tried | with - without (95 %) |", "| --- | --- |", *_TABLE])


def _figures(seed: int, *, small: bool) -> list[tuple[str, float, str]]:
    with kept("faults-small" if small else "faults") as home:
        folder = home / f"seed-{seed}"
        for parts in [PARTS] if small else [(part,) for part in PARTS]:
            if not all(_result(folder, part).exists() for part in parts):
                _run(seed, folder, *parts, *(["--small"] if small else []))
        found = {part: json.loads(_result(folder, part).read_text()) for part in PARTS}
    _TABLE[:] = [_compared(found, where) for where in ("faulty", "sound")]
    shares = [
        (f"{part}_{where}", found[part][where]["share"], "of held-out tasks")
        for where in ("faulty", "sound")
        for part in PARTS
    ]
    return [*shares, ("faults_met", sum(found[part]["faulty"]["faults"] for part in PARTS), "calls")]


def _compared(found: Mapping[str, Any], where: str) -> str:
    from dreamgym_kit.trust.comparison import beaten
    from dreamgym_kit.trust.outcomes import TaskOutcome

    sides = ([TaskOutcome(*row) for row in found[arm][where]["outcomes"]] for arm in ARMS)
    change = beaten(*sides)
    return f"| {where} | {100 * change.change:+.1f} ({100 * change.low:+.1f} to {100 * change.high:+.1f}) |"


def _run(seed: int, folder: Path, *asked: str) -> None:
    command = [sys.executable, __file__, str(seed), str(folder), *asked]
    threads = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    subprocess.run(command, env=os.environ | threads, stdout=sys.stderr, check=True)


def _result(folder: Path, part: str) -> Path:
    return folder / f"part-{part}" / "result.json"


# What runs in a process of its own


def _main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("seed", type=int)
    parser.add_argument("folder", type=Path)
    parser.add_argument("parts", nargs="+", choices=PARTS)
    parser.add_argument("--small", action="store_true")
    asked = parser.parse_args()
    from dreamgym_kit.recipes.train_then_deploy import QUICK, WholeWayPlan

    full = WholeWayPlan(seed=asked.seed, shipped=True, environments=150, steps=10)
    small = replace(QUICK, seed=asked.seed, environments=9, steps=1, repeats=6, held_out=6, tries=1)
    sys.path.insert(0, str(Path(__file__).parent))  # where the graph is
    for part in asked.parts:
        place = _result(asked.folder, part).parent
        shutil.rmtree(place, ignore_errors=True)  # what was broken off
        place.mkdir(parents=True)
        found = _part(part, asked.folder, small if asked.small else full)
        _result(asked.folder, part).write_text(json.dumps(found))


def _part(part: str, home: Path, plan: Any) -> dict[str, Any]:
    from dreamgym_kit.adapters.stores.sqlite import SqliteStore
    from dreamgym_kit.recipes.desk.tasks import drawn_tasks
    from dreamgym_kit.recipes.nano.build import WEIGHTS
    from dreamgym_kit.recipes.train_then_deploy import record_work, settings_for

    settings, tasks = (
        settings_for(home / f"part-{part}", plan),
        drawn_tasks(plan.environments, seed=plan.seed),
    )
    model = WEIGHTS
    if part == "start":
        (home / "recordings.db").unlink(missing_ok=True)
        store = SqliteStore(home / "recordings.db")
        record_work(tasks, settings, store, plan, print)
        store.close()
    else:
        settings = settings.with_overrides({"train.faults": ARMS[part]})
        model = _learned(part, home, tasks, settings)
    return {
        where: _tried(model, plan, settings, share) for where, share in (("faulty", SHARE), ("sound", None))
    }


def _learned(part: str, home: Path, tasks: list[Any], settings: Any) -> Path:
    from dreamgym_kit.adapters.langgraph.run.request import TrainRequest
    from dreamgym_kit.adapters.langgraph.training.train import run_training
    from dreamgym_kit.adapters.stores.sqlite import SqliteStore
    from dreamgym_kit.recipes.nano.build import WEIGHTS
    from dreamgym_kit.rollout.events import NoEvents

    request = TrainRequest(
        graph=GRAPH,
        tasks=tasks,
        settings=settings.with_overrides({"policy.model": str(WEIGHTS)}),
        store=SqliteStore(home / "recordings.db", read_only=True),
        directory=(home / f"part-{part}" / "training").absolute(),
    )
    result = run_training(request, events=NoEvents())
    print(f"{part}: {len(result.trained.steps)} steps; {result.trained.alarm or 'no alarm'}")
    return result.weights or WEIGHTS


def _tried(model: Path, plan: Any, settings: Any, share: float | None) -> dict[str, Any]:
    from dreamgym_kit.adapters.langgraph.run.evaluation import evaluate
    from dreamgym_kit.recipes.desk.tasks import drawn_tasks
    from dreamgym_kit.types import Split

    held_out = drawn_tasks(plan.held_out, split=Split.HELD_OUT, seed=plan.seed)
    found = evaluate(
        GRAPH, held_out, real=True, settings=settings, repeats=plan.tries, policy=model, faults=share
    )
    print(found.sentence)
    outcomes = found.b.outcomes
    return {
        "share": found.b.once.mean if found.b.once is not None else float("nan"),
        "outcomes": [[one.task, one.success, one.failure, one.inconclusive] for one in outcomes],
        "faults": found.b.summary.faults,
    }


if __name__ == "__main__":
    _main()
