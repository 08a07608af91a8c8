"""GRPO, PPO, DPO and SFT on successes from the same start on as many episodes: who does best for real?

Each seed has recordings, tasks and sampling of its own; all arms begin with the nano policy of the package
and learn in the dream of these recordings, step for step from as many episodes. All are tried on the real
tools, on held-out tasks.

Each part runs in its own process and keeps what it found (see `parts`). Full size takes about a quarter of an
hour of CPU time a seed.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from learns import Found, _tried, change_of
from parts import kept

SEEDS = 3
ARMS: Mapping[str, Mapping[str, Any]] = {
    "grpo": {"train.lr": 3e-4},
    "ppo": {"train.lr": 3e-4},
    "dpo": {"train.lr": 1e-4},
    "sft": {"train.lr": 3e-4},
}


def measure(seed: int) -> list[tuple[str, float, str]]:
    """Figures for the bench runner."""
    return figures(range(seed, seed + SEEDS))


def quick(seed: int) -> list[tuple[str, float, str]]:
    """One seed in small: that each of them runs."""
    return figures([seed], small=True)


_TABLE: list[str] = []


def table() -> str:
    """Seed by seed, against the start."""
    return "\n".join(
        ["| seed | start | " + " | ".join(ARMS) + " |", "| --- " * (2 + len(ARMS)) + "|", *_TABLE]
    )


def figures(seeds: Sequence[int], *, small: bool = False) -> list[tuple[str, float, str]]:
    """Mean shares over these seeds."""
    found: dict[int, dict[str, Found]] = {}
    with kept("algorithms-small" if small else "algorithms") as home:
        for seed in seeds:
            folder = home / f"seed-{seed}"
            found[seed] = _small(folder, seed) if small else _whole(folder, seed)
    _TABLE.clear()
    for seed, parts in found.items():
        cells = [f"{parts['start'].share:.3f}"]
        for arm in ARMS:
            change, low, high = (100 * one for one in change_of(parts["start"], parts[arm]))
            told = f"{parts[arm].share:.3f} ({change:+.1f}: {low:+.1f} to {high:+.1f})"
            cells.append(f"{told}; {parts[arm].alarm}" if parts[arm].alarm else told)
        _TABLE.append(f"| {seed} | {' | '.join(cells)} |")
    return [
        (part, sum(parts[part].share for parts in found.values()) / len(found), "of held-out tasks")
        for part in ("start", *ARMS)
    ]


def _whole(folder: Path, seed: int) -> dict[str, Found]:
    """Every part in a process of its own, one after the other; what was measured before is taken as it is."""
    for part in ("start", *ARMS):
        if not _result(folder, part).exists():
            _run(seed, folder, part)
    return _read(folder)


def _small(folder: Path, seed: int) -> dict[str, Found]:
    """All parts in one process, which imports everything once."""
    _run(seed, folder, "start", *ARMS, "--small")
    return _read(folder)


def _run(seed: int, folder: Path, *parts: str) -> None:
    command = [sys.executable, __file__, str(seed), str(folder), *parts]
    threads = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    subprocess.run(command, env=os.environ | threads, stdout=sys.stderr, check=True)


def _read(folder: Path) -> dict[str, Found]:
    return {part: Found(**json.loads(_result(folder, part).read_text())) for part in ("start", *ARMS)}


def _result(folder: Path, part: str) -> Path:
    return folder / f"part-{part}" / "result.json"


# What runs in a process of its own


def _main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("seed", type=int)
    parser.add_argument("folder", type=Path)
    parser.add_argument("parts", nargs="+", choices=["start", *ARMS])
    parser.add_argument("--small", action="store_true")
    asked = parser.parse_args()
    from dreamgym_kit.recipes.train_then_deploy import QUICK, WholeWayPlan

    full = WholeWayPlan(seed=asked.seed, shipped=True, environments=150, steps=20)
    small = replace(QUICK, seed=asked.seed, environments=9, steps=1, repeats=6, held_out=6, tries=1)
    plan = small if asked.small else full
    for part in asked.parts:
        place = _result(asked.folder, part).parent
        shutil.rmtree(place, ignore_errors=True)  # what was broken off
        place.mkdir(parents=True)
        found = _start(asked.folder, plan) if part == "start" else _arm(part, asked.folder, plan)
        _result(asked.folder, part).write_text(json.dumps(found))


def _start(home: Path, plan: Any) -> dict[str, Any]:
    """Record, and try the package's policy."""
    from dreamgym_kit.adapters.stores.sqlite import SqliteStore
    from dreamgym_kit.recipes.desk.tasks import drawn_tasks
    from dreamgym_kit.recipes.nano.build import WEIGHTS
    from dreamgym_kit.recipes.train_then_deploy import record_work, settings_for

    settings = settings_for(home / "part-start", plan)
    (home / "recordings.db").unlink(missing_ok=True)
    store = SqliteStore(home / "recordings.db")
    record_work(drawn_tasks(plan.environments, seed=plan.seed), settings, store, plan, print)
    store.close()
    return _tried(WEIGHTS, plan, settings) | {"real_calls": 0, "steps": 0}


def _arm(arm: str, home: Path, plan: Any) -> dict[str, Any]:
    """Learn by one algorithm, then try what came of it."""
    from dreamgym_kit.adapters.stores.sqlite import SqliteStore
    from dreamgym_kit.recipes.desk.tasks import drawn_tasks
    from dreamgym_kit.recipes.nano.build import WEIGHTS
    from dreamgym_kit.recipes.train_then_deploy import learn, settings_for

    place = home / f"part-{arm}"
    settings = settings_for(place, plan).with_overrides({"train.algorithm": arm, **ARMS[arm]})
    store = SqliteStore(home / "recordings.db", read_only=True)
    learned = learn(WEIGHTS, drawn_tasks(plan.environments, seed=plan.seed), settings, store, place, print)
    found = _tried(learned.weights, plan, settings)
    return found | {"real_calls": learned.real, "steps": learned.steps, "alarm": learned.alarm}


if __name__ == "__main__":
    _main()
