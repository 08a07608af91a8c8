"""What do a few real calls add to a dream? Five seeds of the desk's nano model, beside learning for real.

Over the parts of the bench `learns` (what is missing there is measured; see `parts`):
`real` is GRPO on the real tools at all its calls. What costs no real call is not short of time: `long` goes
on in the dream from where `dream` ended, as many steps again. Two arms have 6 % of the real arm's calls as a
hard budget: `s2r` goes on from the weights of `long`, through gate, canaries and stage `live`; `real_small`
is GRPO on the real tools from the start. All are tried on real held-out tasks. `real_calls`: most that an
`s2r` arm made, as a share of the real arm's; `real_calls_long`: those of `long`.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import learns
from learns import SEEDS, Found
from parts import kept

SHARE = 0.06
ARMS = ("long", "s2r", "real_small")
_ON = 1000  # added to a seed for the second half of the dream
_TABLE: list[str] = []


def measure(seed: int) -> list[tuple[str, float, str]]:
    """Figures for the bench runner."""
    return figures(range(seed, seed + SEEDS))


def quick(seed: int) -> list[tuple[str, float, str]]:
    """One seed in small: that the way is gone to its end, inside its budget."""
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch) / f"seed-{seed}"
        learns._part(Path(scratch), seed, "start", small=True)
        model = (home / "model.txt").read_text()
        found = _arm_of(Path(scratch), seed, "s2r", model, budget=60, small=True)
    return [("real_calls", found.real_calls, "calls"), ("steps", found.steps, "steps")]


def table() -> str:
    """Seed by seed."""
    head = "| seed | start | dream | real | longer dream | S2R | real, few calls | calls of S2R | stopped |"
    return "\n".join([head, "| --- | --- | --- | --- | --- | --- | --- | --- | --- |", *_TABLE])


def figures(seeds: Sequence[int]) -> list[tuple[str, float, str]]:
    """The figures over these seeds."""
    _TABLE.clear()
    with kept("learns") as folder:
        found = {seed: _seed(folder, seed) for seed in seeds}
    arms = ("real", *ARMS)
    means = {part: sum(parts[part].share for parts in found.values()) / len(found) for part in arms}
    share = max(parts["s2r"].real_calls / parts["real"].real_calls for parts in found.values())
    return [
        ("s2r", means["s2r"], "of held-out tasks"),
        ("real", means["real"], "of held-out tasks"),
        ("real_small", means["real_small"], "of held-out tasks"),
        ("long", means["long"], "of held-out tasks"),
        ("real_calls_long", sum(parts["long"].real_calls for parts in found.values()), "calls"),
        ("ratio_at_6_percent", means["s2r"] / means["real"], "of the real arm's success"),
        ("ratio_at_equal_calls", means["s2r"] / means["real_small"], "of the small real arm's success"),
        ("real_calls", share, "of the real arm's calls, at most"),
    ]


def _seed(folder: Path, seed: int) -> dict[str, Found]:
    parts = {part: learns._part(folder, seed, part, small=False) for part in ("start", "dream", "real")}
    home = folder / f"seed-{seed}"
    start = (home / "model.txt").read_text()
    budget = int(SHARE * parts["real"].real_calls)
    dreamt = str(_weights_of(learns._place(home, "dream")))
    parts["long"] = _arm_of(folder, seed, "long", dreamt, budget=0, small=False)
    dreamt = str(_weights_of(learns._place(home, "long")))
    parts["s2r"] = _arm_of(folder, seed, "s2r", dreamt, budget=budget, small=False)
    parts["real_small"] = _arm_of(folder, seed, "real_small", start, budget=budget, small=False)
    shares = " | ".join(f"{parts[part].share:.3f}" for part in ("start", "dream", "real", *ARMS))
    _TABLE.append(f"| {seed} | {shares} | {parts['s2r'].real_calls} | {parts['s2r'].alarm} |")
    return parts


def _weights_of(arm: Path) -> Path:
    """The last weights that a training of `learns` left."""
    return max((arm / "training" / "weights").glob("step-*"))


def _arm_of(folder: Path, seed: int, arm: str, model: str, *, budget: int, small: bool) -> Found:
    """Run an arm in its own process, or take what it found before."""
    result = learns._place(folder / f"seed-{seed}", arm) / "result.json"
    if not result.exists():
        command = [sys.executable, __file__, arm, str(seed), str(folder), model, str(budget)]
        threads = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        more = ["--small"] if small else []
        subprocess.run([*command, *more], env=os.environ | threads, stdout=sys.stderr, check=True)
    return Found(**json.loads(result.read_text()))


# What runs in a process of its own


def _main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("arm", choices=ARMS)
    parser.add_argument("seed", type=int)
    parser.add_argument("folder", type=Path)
    parser.add_argument("model")
    parser.add_argument("budget", type=int)
    parser.add_argument("--small", action="store_true")
    asked = parser.parse_args()
    from dreamgym_kit.recipes.train_then_deploy import QUICK, WholeWayPlan, settings_for

    plan = replace(QUICK if asked.small else WholeWayPlan(), seed=asked.seed)
    place = learns._place(asked.folder / f"seed-{asked.seed}", asked.arm)
    shutil.rmtree(place, ignore_errors=True)  # what was broken off
    place.mkdir(parents=True)
    settings = settings_for(place, plan)
    if asked.arm == "long":
        found = _dreamt_on(Path(asked.model), place, plan, settings)
    else:
        settings = _settings(settings, asked.model, asked.budget, small=asked.small)
        found = _went(asked.arm, place, plan, settings)
    (place / "result.json").write_text(json.dumps(found))


def _dreamt_on(model: Path, place: Path, plan: Any, settings: Any) -> dict[str, Any]:
    """As many steps in the dream again, on other draws of tasks and tokens."""
    from dreamgym_kit.adapters.stores.sqlite import SqliteStore
    from dreamgym_kit.recipes.desk.tasks import drawn_tasks
    from dreamgym_kit.recipes.train_then_deploy import learn

    more = settings.with_overrides({"train.seed": plan.seed + _ON, "simulate.seed": plan.seed + _ON})
    store = SqliteStore(place.parent / "recordings.db", read_only=True)
    learned = learn(model, drawn_tasks(plan.environments, seed=plan.seed), more, store, place, print)
    store.close()
    return learns._tried(learned.weights, plan, settings) | {
        "real_calls": learned.real,
        "steps": learned.steps,
        "alarm": learned.alarm,
    }


def _settings(settings: Any, model: str, budget: int, *, small: bool) -> Any:
    """Small steps, since there are few calls: more of them, and each over fewer tasks."""
    few = 3 if small else 8
    return settings.with_overrides(
        {
            "policy.model": model,
            "train.steps": 50,
            "train.tasks_per_step": few,
            "train.group_size": few,
            "train.lr": 1e-4,
            "train.save_every": 1,
            "s2r.stage": "live",
            "s2r.max_calls": budget,
            "s2r.rate": 0.0,
            "s2r.auto_approve": ("refund_payment", "send_mail", "delete_customer"),
            "s2r.preflight_pass_rate_low": 0.0 if small else 0.3,
            "s2r.preflight_coverage": 0.0 if small else 0.8,
            "s2r.canary_low": 0.0 if small else 0.5,
            "s2r.preflight_repeats": 1,
        }
    )


def _went(arm: str, place: Path, plan: Any, settings: Any) -> dict[str, Any]:
    """Go on from the model by real calls, then try what came of it."""
    from dreamgym_kit.adapters.langgraph.run.request import S2rRequest
    from dreamgym_kit.adapters.langgraph.s2r.s2r_run import run_s2r
    from dreamgym_kit.recipes.desk.environment import times_opened
    from dreamgym_kit.recipes.desk.tasks import drawn_tasks
    from dreamgym_kit.recipes.train_then_deploy import GRAPH
    from dreamgym_kit.rollout.events import NoEvents
    from dreamgym_kit.types import Split

    learn = drawn_tasks(plan.environments, seed=plan.seed)
    # The gate is one of the dream: its tasks' worlds were recorded. Nothing more is learned from them.
    gate = [replace(task, split=Split.HELD_OUT) for task in learn[: min(len(learn) // 3, 45)]]
    learn = learn[len(gate) :]
    store = _copied(place.parent / "recordings.db", place / "recordings.db")
    if arm == "real_small":  # the same way on real calls, from the start: no gate is asked to agree
        settings = settings.with_overrides({"s2r.preflight_pass_rate_low": 0.0})
    before = times_opened()
    result = run_s2r(
        S2rRequest(
            graph=GRAPH, tasks=learn, held_out=gate, settings=settings, store=store, directory=place / "run"
        ),
        events=NoEvents(),
    )
    opened = times_opened() - before
    store.close()
    if not opened >= result.real_calls:
        raise AssertionError(f"{result.real_calls} real calls were counted, and the desk saw {opened}")
    model = result.weights or Path(settings.policy.model)
    return learns._tried(model, plan, settings) | {
        "real_calls": result.real_calls,
        "steps": len(result.training.trained.steps) if result.training is not None else 0,
        "alarm": "" if result.stopped is None else f"{result.stopped.why}: {result.stopped.text}",
    }


def _copied(recordings: Path, to: Path) -> Any:
    """The recordings of `learns` stay as they are: an arm adds its real calls to a copy."""
    from dreamgym_kit.adapters.stores.sqlite import SqliteStore

    for file in recordings.parent.glob(f"{recordings.name}*"):
        shutil.copy(file, to.with_name(file.name))
    return SqliteStore(to)


if __name__ == "__main__":
    _main()
