"""What choosing tasks is worth: on the real desk, and against tasks that nobody can do.

On the desk: from the package's nano model GRPO learns twice in the same dream with as many episodes, once
with tasks in turn (`in_turn`) and once with the curriculum (`chosen`), which chooses among the same tasks and
others that it makes by rules in the same recorded desks; both are tried on the real tools, on
held-out tasks. `gain_points` is the difference of their success. Each part runs in its own process and keeps
what it found (see `parts`). Full size takes about 7 CPU minutes a seed.

Against impossible tasks: one task in ten cannot be done, no mark tells which, and the judge is wrong in one
verdict of twenty. The curriculum is the real one; the policy is a number for each family of tasks, which
grows with every group that is learned from. `impossible_share` is their share of the groups that are learned
from; `impossible_in_turn` is the same where tasks go in turn and every group with spread is learned from.
"""

import argparse
import asyncio
import json
import math
import os
import random
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parts import kept

SEEDS = 5
ARMS = ("in_turn", "chosen")

GIVEN, IMPOSSIBLE, FAMILIES = 270, 30, 9  # tasks of the policy that is a number
STEPS, PER_STEP, SIBLINGS = 40, 16, 8
WRONG = 0.05  # of the verdicts


def measure(seed: int) -> list[tuple[str, float, str]]:
    """Figures for the bench runner."""
    return [*gains(range(seed, seed + SEEDS)), *impossible(range(seed, seed + SEEDS))]


def quick(seed: int) -> list[tuple[str, float, str]]:
    """The part without a model, once."""
    return impossible([seed])


_TABLE: list[str] = []


def table() -> str:
    """Seed by seed."""
    head = "| seed | start | in turn | chosen | gain (95 %) | dead groups in turn | chosen |"
    return "\n".join([head, "| --- | --- | --- | --- | --- | --- | --- |", *_TABLE])


# On the desk


@dataclass(frozen=True, slots=True)
class Found:
    """What one part of one seed came to, on the real tools."""

    outcomes: Mapping[str, Sequence[int]]  # by task: successes, failures, inconclusive
    episodes: int = 0  # that it learned from
    dead: float = 0.0  # share of its groups
    real_calls: int = 0  # while it learned
    alarm: str = ""

    @property
    def share(self) -> float:
        """pass@1."""
        decided = [counts for counts in self.outcomes.values() if counts[0] + counts[1]]
        return sum(one[0] / (one[0] + one[1]) for one in decided) / len(decided)


def gains(seeds: Sequence[int]) -> list[tuple[str, float, str]]:
    """The figures of the desk over these seeds."""
    from learns import change_of

    found = {seed: _seed_measured(seed) for seed in seeds}
    _TABLE.clear()
    for seed, parts in found.items():
        change, low, high = change_of(parts["in_turn"], parts["chosen"])
        shares = " | ".join(f"{parts[part].share:.3f}" for part in ("start", *ARMS))
        dead = " | ".join(f"{parts[arm].dead:.2f}" for arm in ARMS)
        interval = f"{100 * change:+.1f} ({100 * low:+.1f} to {100 * high:+.1f})"
        _TABLE.append(f"| {seed} | {shares} | {interval} | {dead} |")
    means = {part: sum(one[part].share for one in found.values()) / len(found) for part in ("start", *ARMS)}
    episodes = {arm: sum(one[arm].episodes for one in found.values()) for arm in ARMS}
    return [
        ("start", means["start"], "of held-out tasks"),
        ("in_turn", means["in_turn"], "of held-out tasks"),
        ("chosen", means["chosen"], "of held-out tasks"),
        ("gain_points", 100 * (means["chosen"] - means["in_turn"]), "points"),
        ("episodes_ratio", episodes["chosen"] / episodes["in_turn"], "of the episodes in turn"),
        ("real_calls", sum(one[arm].real_calls for one in found.values() for arm in ARMS), "calls"),
    ]


def _seed_measured(seed: int) -> dict[str, Found]:
    with kept("curriculum") as folder:
        return {part: _part(folder, seed, part) for part in ("start", *ARMS)}


def _part(folder: Path, seed: int, part: str) -> Found:
    result = folder / f"seed-{seed}" / part / "result.json"
    if not result.exists():
        command = [sys.executable, __file__, part, str(seed), str(folder)]
        threads = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        subprocess.run(command, env=os.environ | threads, stdout=sys.stderr, check=True)
    return Found(**json.loads(result.read_text()))


def _main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=["start", *ARMS])
    parser.add_argument("seed", type=int)
    parser.add_argument("folder", type=Path)
    asked = parser.parse_args()
    from dreamgym_kit.recipes.train_then_deploy import WholeWayPlan, settings_for

    plan = WholeWayPlan(seed=asked.seed, environments=72, shipped=True, steps=20, per_step=12, rate=2e-4)
    home = asked.folder / f"seed-{asked.seed}"
    place = home / asked.part
    place.mkdir(parents=True, exist_ok=True)
    settings = settings_for(place, plan).with_overrides(
        {"alarms.max_kl": 5.0}
    )  # both arms make all their steps
    found = _start(home, plan, settings) if asked.part == "start" else _arm(asked.part, home, plan, settings)
    (place / "result.json").write_text(json.dumps(found))


def _start(home: Path, plan: Any, settings: Any) -> dict[str, Any]:
    """Record the work that both dreams answer from, and try the model that both begin with."""
    from learns import _tried

    from dreamgym_kit.adapters.stores.sqlite import SqliteStore
    from dreamgym_kit.recipes.desk.tasks import drawn_tasks
    from dreamgym_kit.recipes.nano.build import WEIGHTS
    from dreamgym_kit.recipes.train_then_deploy import record_work

    store = SqliteStore(home / "recordings.db")
    record_work(drawn_tasks(plan.environments, seed=plan.seed), settings, store, plan, print)
    store.close()
    return _tried(WEIGHTS, plan, settings)


_CHOSEN = {
    "curriculum.enabled": True,
    "curriculum.task_generator": "dreamgym_kit.recipes.desk.tasks:like",
}


def _arm(part: str, home: Path, plan: Any, settings: Any) -> dict[str, Any]:
    """Learn in one of the two ways, then try what came of it."""
    from learns import _tried

    from dreamgym_kit.adapters.stores.sqlite import SqliteStore
    from dreamgym_kit.recipes.desk.tasks import drawn_tasks
    from dreamgym_kit.recipes.nano.build import WEIGHTS
    from dreamgym_kit.recipes.train_then_deploy import learn
    from dreamgym_kit.training.records import read_steps

    asked = settings.with_overrides(_CHOSEN if part == "chosen" else {})
    store = SqliteStore(home / "recordings.db", read_only=True)
    tasks = drawn_tasks(plan.environments, seed=plan.seed)
    learned = learn(WEIGHTS, tasks, asked, store, home / part, print)
    facts = [step.facts for step in read_steps(learned.directory)]
    return _tried(learned.weights, plan, settings) | {
        "episodes": sum(one.episodes for one in facts),
        "dead": sum(one.dead for one in facts) / max(1, sum(one.groups for one in facts)),
        "real_calls": learned.real,
        "alarm": learned.alarm,
    }


# Against tasks that nobody can do


@dataclass(frozen=True, slots=True)
class Counted:
    """Groups of one trial."""

    drawn: int = 0
    learned: int = 0
    impossible_drawn: int = 0
    impossible_learned: int = 0

    def __add__(self, other: "Counted") -> "Counted":
        return Counted(
            self.drawn + other.drawn,
            self.learned + other.learned,
            self.impossible_drawn + other.impossible_drawn,
            self.impossible_learned + other.impossible_learned,
        )


def impossible(seeds: Sequence[int]) -> list[tuple[str, float, str]]:
    """How many of the groups are of impossible tasks, chosen and in turn."""
    chosen, in_turn = Counted(), Counted()
    for seed in seeds:
        chosen, in_turn = chosen + trial(seed, chooses=True), in_turn + trial(seed, chooses=False)
    return [
        ("impossible_share", chosen.impossible_learned / chosen.learned, "of the groups learned from"),
        ("impossible_drawn", chosen.impossible_drawn / chosen.drawn, "of the groups drawn"),
        ("impossible_in_turn", in_turn.impossible_learned / in_turn.learned, "of the groups learned from"),
        ("learned_chosen", chosen.learned / chosen.drawn, "of the groups drawn"),
        ("learned_in_turn", in_turn.learned / in_turn.drawn, "of the groups drawn"),
    ]


def trial(seed: int, *, chooses: bool) -> Counted:
    """One training of a policy that is a number for each family."""
    from dreamgym_kit.training.plan import InTurn

    dice = random.Random(f"impossible {seed}")
    tasks, rate, learn = _policy(dice)
    chooser = _curriculum(tasks, seed) if chooses else InTurn(tasks, PER_STEP, seed)
    counted = Counted()
    for step in range(1, STEPS + 1):
        drawn = asyncio.run(chooser.tasks(step, 1))
        groups = [_group(task, rate(task), dice) for task in drawn]
        left = chooser.saw(step, groups)
        for task, group in zip(drawn, groups, strict=True):
            spread = len({one.episode.verdict for one in group.rollouts}) > 1
            learned = spread and task.id not in left
            hopeless = rate(task) == 0
            if learned:
                learn(task)
            counted += Counted(1, learned, hopeless, hopeless and learned)
    return counted


def _policy(dice: random.Random) -> tuple[list[Any], Any, Any]:
    """Tasks; how often the policy does one; and what a group of one teaches its family."""
    from dreamgym_kit.types import Task

    skill = [dice.gauss(0.3, 1.2) for _ in range(FAMILIES)]
    hard = {f"t{place}": dice.gauss(0, 1.5) if place < GIVEN else None for place in range(GIVEN + IMPOSSIBLE)}
    tasks = [
        Task(name, {"messages": name}, meta={"family": place % FAMILIES}) for place, name in enumerate(hard)
    ]
    dice.shuffle(tasks)

    def rate(task: Task) -> float:
        against = hard[task.id]
        return 0.0 if against is None else 1 / (1 + math.exp(against - skill[int(str(task.meta["family"]))]))

    def learn(task: Task) -> None:
        skill[int(str(task.meta["family"]))] += 0.3 * rate(task) * (1 - rate(task))

    return tasks, rate, learn


def _curriculum(tasks: Sequence[Any], seed: int) -> Any:
    from dreamgym_kit.curriculum.curriculum import Curriculum, CurriculumPlan
    from dreamgym_kit.curriculum.task_sampler import Clusters
    from dreamgym_kit.settings.schema import CurriculumSettings

    return Curriculum(
        CurriculumPlan(
            tasks=tasks,
            settings=CurriculumSettings(enabled=True, judge_error=WRONG),
            per_step=PER_STEP,
            seed=seed,
            error=lambda _: WRONG,
            clusters=Clusters("family", None),
        )
    )


def _group(task: Any, rate: float, dice: random.Random) -> Any:
    """Siblings under a judge that is wrong now and then."""
    from dreamgym_kit.interfaces import Group, Rollout
    from dreamgym_kit.types import Episode, Verdict

    def verdict() -> Verdict:
        good, wrong = dice.random() < rate, dice.random() < WRONG
        return Verdict.PASSED if good != wrong else Verdict.FAILED

    return Group(
        task.id,
        tuple(
            Rollout(
                Episode(f"{task.id}.{place}", task.id, place, task.environment, verdict(), "by the trial")
            )
            for place in range(1, SIBLINGS + 1)
        ),
    )


if __name__ == "__main__":
    _main()
