"""A whole GRPO step through the unchanged graph, beside the least that it could cost: a part of `step_cost`.

On one side the kit's own loop: rollouts in the dream, batch, update by TRL, sync, attestation, the step's
records. On the other a loop without any framework: the same model plays the same worlds in lockstep, and bare
PyTorch learns from the same batch. Both take turns, a step each; the second's rollouts count for as many
tokens as the first's had. Checkpoints and evaluations are left out: the bare loop has none.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rollout_cost import SIBLINGS, Bare, Cost, Kit
from update_cost import bare_loop

from dreamgym_kit.turns import Batch, UpdateFacts

TASKS, ROUNDS = 16, 5


class NoWeights(Exception):
    """There is no trained model to measure with."""

    skips = True


@dataclass(frozen=True, slots=True)
class Step:
    """CPU seconds of one step, on both sides."""

    whole_s: float  # of the kit, all told
    rollouts: Cost
    update_s: float
    bare_rollouts: Cost
    bare_update_s: float

    @property
    def bare_s(self) -> float:
        """The bare loop's whole step, with as many tokens as the kit's."""
        return self.bare_rollouts.ms_a_token * self.rollouts.tokens / 1e3 + self.bare_update_s

    @property
    def rest_s(self) -> float:
        """Batch, sync, attestation and records."""
        return self.whole_s - self.rollouts.cpu_s - self.update_s


def step_costs(seed: int, *, rounds: int = ROUNDS, tasks: int = TASKS) -> list[tuple[str, float, str]]:
    """Figures for `step_cost`; raises `NoWeights` where the package has no trained model."""
    from dreamgym_kit.recipes.nano.build import WEIGHTS

    if not (WEIGHTS / "config.json").exists():
        raise NoWeights(f"{WEIGHTS} holds no model; build one with python -m dreamgym_kit.recipes.nano")
    steps = measured(WEIGHTS, seed, rounds=rounds, tasks=tasks)

    def middle(of: Callable[[Step], float]) -> float:
        return statistics.median(map(of, steps))

    return [
        ("langgraph_ratio", round(middle(lambda one: one.whole_s / one.bare_s), 3), "x frameworkless"),
        ("rollouts_ratio", round(middle(_rollouts_ratio), 3), "x frameworkless"),
        ("step_cpu", round(middle(lambda one: one.whole_s), 2), "s"),
        ("rollouts_cpu", round(middle(lambda one: one.rollouts.cpu_s), 2), "s"),
        ("rollouts_engine_cpu", round(middle(lambda one: one.rollouts.engine_s), 2), "s"),
        ("step_update_cpu", round(middle(lambda one: one.update_s), 2), "s"),
        ("rest_cpu", round(middle(lambda one: one.rest_s), 2), "s"),
        ("frameworkless_cpu", round(middle(lambda one: one.bare_s), 2), "s"),
        ("frameworkless_update_cpu", round(middle(lambda one: one.bare_update_s), 2), "s"),
    ]


def measured(model: Path, seed: int, *, rounds: int, tasks: int) -> list[Step]:
    """Steps with any nano model; the first, which warms everything up, is left out."""
    import torch

    from dreamgym_kit.adapters.trainers.options import GrpoOptions
    from dreamgym_kit.adapters.trainers.trainer import TrlTrainer
    from dreamgym_kit.rollout.stop import StopSwitch
    from dreamgym_kit.training.loop import TrainingLoop
    from dreamgym_kit.training.plan import TrainParts, TrainPlan

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name, Kit(model, Path(name), seed, tasks) as kit:
        folder = Path(name) / "training"
        folder.mkdir()
        options = GrpoOptions(save_every=rounds + 2)
        bare = Bare(model, kit.worlds)
        meter = _Meter(kit, bare, bare_loop(bare.model, options))
        trainer = _Metered(TrlTrainer(model, folder / "checkpoints", options), meter)
        wanted = replace(
            kit.settings.train,
            steps=rounds + 1,
            tasks_per_step=tasks,
            group_size=SIBLINGS,
            save_every=rounds + 2,
            seed=seed,
        )
        loop = TrainingLoop(
            TrainPlan(tasks=kit.tasks, train=wanted, alarms=kit.settings.alarms),
            TrainParts(collector=kit, trainer=trainer, policy=kit.policy),
            folder=folder,
            aside=kit.aside,
            events=meter,
            stop=StopSwitch(),
        )
        trained = loop.run()
    if trained.alarm is not None:
        raise trained.alarm
    return meter.steps[1:]


def _rollouts_ratio(step: Step) -> float:
    return step.rollouts.ms_a_token / step.bare_rollouts.ms_a_token


class _Meter:
    """Hears of each step's end, and makes the bare loop's step then."""

    def __init__(self, kit: Kit, bare: Bare, learn: Callable[[Batch], None]) -> None:
        self.steps: list[Step] = []
        self.batch: Batch | None = None
        self.update_s = 0.0
        self._kit, self._bare, self._learn = kit, bare, learn
        self._since = time.process_time()

    def emit(self, kind: str, **about: Any) -> None:
        if kind == "training_started":
            self._since = time.process_time()
        if kind != "step_finished" or self.batch is None:
            return
        whole = time.process_time() - self._since
        rollouts = self._bare.collect(about["step"])
        began = time.process_time()
        self._learn(self.batch)
        update = time.process_time() - began
        self.steps.append(Step(whole, self._kit.cost, self.update_s, rollouts, update))
        self._since = time.process_time()


class _Metered:
    """A trainer, and what its updates learned from and cost."""

    def __init__(self, trainer: Any, meter: _Meter) -> None:
        self._trainer, self._meter = trainer, meter

    def __getattr__(self, name: str) -> Any:
        return getattr(self._trainer, name)

    def fit(
        self, source: Callable[[int], Batch], *, steps: int, after: Callable[[UpdateFacts], None]
    ) -> None:
        """See `interfaces.Trainer.fit`."""

        def heard(step: int) -> Batch:
            self._meter.batch = source(step)
            return self._meter.batch

        def told(facts: UpdateFacts) -> None:
            self._meter.update_s = facts.cpu_seconds
            after(facts)

        self._trainer.fit(heard, steps=steps, after=told)
