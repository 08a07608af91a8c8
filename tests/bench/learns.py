"""Does learning in the dream help on the real desk? Five seeds, each from nothing.

For each seed a nano model is taught from recorded work (`start`), then learns by GRPO three times from there:
in the dream of recordings (`dream`), on the real tools with as many episodes (`real`), and in the dream with
rewards that say nothing (`shuffled`: a coin thrown for each transcript). All are tried on the real tools, on
held-out tasks in worlds that nothing was recorded of. Real calls are counted at the desk.

`gain_low` is the lower end of the paired interval of the seed that speaks worst of the dream. Each part runs
in its own process and keeps what it found (see `parts`). Full size takes about 20 CPU minutes a seed.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from parts import kept

SEEDS = 5
ARMS = ("dream", "real", "shuffled")


@dataclass(frozen=True, slots=True)
class Found:
    """What one part of one seed came to, on the real tools."""

    outcomes: Mapping[str, Sequence[int]]  # by task: successes, failures, inconclusive
    real_calls: int  # while it learned
    steps: int
    alarm: str = ""

    @property
    def share(self) -> float:
        """pass@1."""
        decided = [counts for counts in self.outcomes.values() if counts[0] + counts[1]]
        return sum(one[0] / (one[0] + one[1]) for one in decided) / len(decided)


def measure(seed: int) -> list[tuple[str, float, str]]:
    """Figures for the bench runner."""
    return figures(range(seed, seed + SEEDS))


def quick(seed: int) -> list[tuple[str, float, str]]:
    """One seed in small, from the package's weights: that it runs, and that no real tool did."""
    found = seeds_measured([seed], small=True, arms=("dream",))[seed]
    return [
        ("start", found["start"].share, "of held-out tasks"),
        ("dream", found["dream"].share, "of held-out tasks"),
        ("real_calls_in_dream", found["dream"].real_calls, "calls"),
    ]


_TABLE: list[str] = []


def table() -> str:
    """Seed by seed."""
    head = "| seed | start | dream | real | shuffled | dream gain (95 %) | alarms |"
    return "\n".join([head, "| --- | --- | --- | --- | --- | --- | --- |", *_TABLE])


def figures(seeds: Sequence[int]) -> list[tuple[str, float, str]]:
    """The figures over these seeds."""
    found = seeds_measured(seeds)
    means = {
        part: sum(parts[part].share for parts in found.values()) / len(found) for part in ("start", *ARMS)
    }
    gain, real_gain = means["dream"] - means["start"], means["real"] - means["start"]
    lows = []
    _TABLE.clear()
    for seed, parts in found.items():
        change, low, high = change_of(parts["start"], parts["dream"])
        lows.append(low)
        shares = " | ".join(f"{parts[part].share:.3f}" for part in ("start", *ARMS))
        alarms = "; ".join(f"{arm}: {parts[arm].alarm}" for arm in ARMS if parts[arm].alarm)
        _TABLE.append(
            f"| {seed} | {shares} | {100 * change:+.1f} ({100 * low:+.1f} to {100 * high:+.1f}) | {alarms} |"
        )
    return [
        ("start", means["start"], "of held-out tasks"),
        ("dream", means["dream"], "of held-out tasks"),
        ("real", means["real"], "of held-out tasks"),
        ("gain_points", 100 * gain, "points"),
        ("gain_low", 100 * min(lows), "points"),
        ("gain_ratio", gain / real_gain if real_gain else float("nan"), "of the real gain"),
        ("real_calls_in_dream", sum(parts["dream"].real_calls for parts in found.values()), "calls"),
        ("shuffled_gain", 100 * (means["shuffled"] - means["start"]), "points"),
    ]


def change_of(start: Found, end: Found) -> tuple[float, float, float]:
    """The change of pass@1 over the same tasks, with its paired interval."""
    from dreamgym_kit.trust.comparison import beaten
    from dreamgym_kit.trust.outcomes import TaskOutcome

    a, b = ([TaskOutcome(task, *counts) for task, counts in one.outcomes.items()] for one in (start, end))
    found = beaten(a, b)
    return found.change, found.low, found.high


def seeds_measured(
    seeds: Sequence[int], *, small: bool = False, arms: Sequence[str] = ARMS
) -> dict[int, dict[str, Found]]:
    """Every part of every seed, each in its own process, one after the other."""
    with kept("learns-small" if small else "learns") as folder:
        found = {}
        for seed in seeds:
            found[seed] = {part: _part(folder, seed, part, small=small) for part in ("start", *arms)}
    return found


def _part(folder: Path, seed: int, part: str, *, small: bool) -> Found:
    result = _place(folder / f"seed-{seed}", part) / "result.json"
    if not result.exists():
        command = [sys.executable, __file__, part, str(seed), str(folder), *(["--small"] if small else [])]
        threads = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        subprocess.run(command, env=os.environ | threads, stdout=sys.stderr, check=True)
    return Found(**json.loads(result.read_text()))


def _place(home: Path, part: str) -> Path:
    """Where a part works and leaves what it found; beside the model that the seed's parts begin with."""
    return home / f"part-{part}"


# What runs in a process of its own


def coin(outcome: Any) -> bool:
    """A judge that knows nothing: equal transcripts get equal verdicts, and half of them are good."""
    from dreamgym_kit.canonical import digest

    said = [[message.get("role"), message.get("content")] for message in outcome.messages]
    calls = [[step.call.tool, dict(step.call.args)] for step in outcome.transitions]
    return int(digest([outcome.task.id, said, calls])[:8], 16) % 2 == 0


def _main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=["start", *ARMS])
    parser.add_argument("seed", type=int)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--small", action="store_true")
    asked = parser.parse_args()
    from dreamgym_kit.recipes.train_then_deploy import QUICK, WholeWayPlan, settings_for

    plan = replace(QUICK if asked.small else WholeWayPlan(), seed=asked.seed)
    home = asked.folder / f"seed-{asked.seed}"
    place = _place(home, asked.part)
    shutil.rmtree(home if asked.part == "start" else place, ignore_errors=True)  # what was broken off
    place.mkdir(parents=True)
    settings = settings_for(place, plan)
    found = _start(home, plan, settings) if asked.part == "start" else _arm(asked.part, home, plan, settings)
    (place / "result.json").write_text(json.dumps(found))


def _start(home: Path, plan: Any, settings: Any) -> dict[str, Any]:
    """Record, teach, try; recordings and model are there for the arms."""
    from dreamgym_kit.adapters.stores.sqlite import SqliteStore
    from dreamgym_kit.recipes.desk.tasks import drawn_tasks
    from dreamgym_kit.recipes.train_then_deploy import record_work, taught

    store = SqliteStore(home / "recordings.db")
    record_work(drawn_tasks(plan.environments, seed=plan.seed), settings, store, plan, print)
    store.close()
    model = taught(home, plan, print)
    (home / "model.txt").write_text(str(model))
    return _tried(model, plan, settings) | {"real_calls": 0, "steps": 0}


def _arm(part: str, home: Path, plan: Any, settings: Any) -> dict[str, Any]:
    """Learn in one of the three ways, then try what came of it."""
    from dreamgym_kit.adapters.stores.sqlite import SqliteStore
    from dreamgym_kit.recipes.desk.tasks import drawn_tasks
    from dreamgym_kit.recipes.train_then_deploy import learn
    from dreamgym_kit.routing.router import Mode

    tasks = drawn_tasks(plan.environments, seed=plan.seed)
    if part == "shuffled":
        sys.path.insert(0, str(Path(__file__).parent))
        tasks = [replace(task, checker="learns:coin") for task in tasks]
    real = part == "real"
    store = None if real else SqliteStore(home / "recordings.db", read_only=True)
    start = Path((home / "model.txt").read_text())
    mode = Mode.RECORD if real else Mode.DREAM
    learned = learn(start, tasks, settings, store, _place(home, part), print, mode=mode)
    return _tried(learned.weights, plan, settings) | {
        "real_calls": learned.real,
        "steps": learned.steps,
        "alarm": learned.alarm,
    }


def _tried(model: Path, plan: Any, settings: Any) -> dict[str, Any]:
    from dreamgym_kit.recipes.desk.tasks import drawn_tasks
    from dreamgym_kit.recipes.train_then_deploy import tried
    from dreamgym_kit.types import Split

    held_out = drawn_tasks(plan.held_out, split=Split.HELD_OUT, seed=plan.seed)
    found = tried(model, held_out, settings, plan, None, print)
    rows = {one.task: [one.success, one.failure, one.inconclusive] for one in found.b.outcomes}
    return {"outcomes": rows}


if __name__ == "__main__":
    _main()
