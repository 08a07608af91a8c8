"""What a step of GRPO with LoRA takes on one GPU, by phase: a model of a billion parameters in this process.

The model is the nano policy, grown (`grown`), so that episodes, rewards and groups are those of a policy that
solves half of its tasks. It learns in the dream of the desk as `train` does it, in float32. `generation` is
the part of the rollouts in which the engine reads prompts and samples. What was trained is then exported; the
adapter, put on the start by PEFT, must score tokens as the merged weights do. `update_fp32` and `update_bf16`
are of updates alone, on synthetic episodes as long as the desk's, in 32 bits and in 16.
"""

import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from grown import write_grown

from dreamgym_kit.recipes.nano.build import Shape
from dreamgym_kit.training.records import StepRecord, read_steps
from dreamgym_kit.turns import Batch, Sample

LARGE = Shape(width=2048, layers=28, heads=16, kv_heads=8, head_width=128, inner=6144)  # Qwen3-1.7B's
SMALL = Shape(width=128, layers=4, heads=6, kv_heads=3, head_width=64, inner=256)
RANK, RATE, STEPS, TASKS, UPDATES = 16, 1e-5, 5, 16, 4
PHASES = ("waited", "update", "sync", "attest", "checkpoint")  # waited: for the rollouts, mostly
EPISODES = 128  # of a synthetic batch
SHARES = ("rollouts", "generation", "update", "sync")


class NoGpu(Exception):
    """There is no GPU to measure on."""

    skips = True


def measure(seed: int) -> list[tuple[str, float, str]]:
    """Figures for the bench runner."""
    import torch

    if not torch.cuda.is_available():
        raise NoGpu("torch finds no GPU here")
    return figures(seed, LARGE, steps=STEPS, tasks=TASKS)


def quick(seed: int) -> list[tuple[str, float, str]]:
    """The same with a small model, on a GPU or a CPU."""
    return figures(seed, SMALL, steps=2, tasks=4)


def figures(seed: int, shape: Shape, *, steps: int, tasks: int) -> list[tuple[str, float, str]]:
    """Of a model of this shape."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        parameters = write_grown(folder / "start", shape, seed=seed, device=device)
        with _engine_metered() as engine:
            trained = _trained(folder, seed, steps, tasks)
        memory = _most_memory()
        adapter = _adapter_gap(trained, folder, device)
        updates = {dtype: _update(trained.weights, folder / dtype, dtype, seed) for dtype in _DTYPES}
    _TABLE[:] = [_line(step) for step in trained.steps]
    return [
        ("parameters", round(parameters / 1e6), "million"),
        *phases(trained.steps, engine.seconds),
        ("sampling_rate", round(engine.tokens / engine.seconds), "tokens/s"),
        ("memory", round(memory, 1), "GiB"),
        ("success_first", round(trained.steps[0].success or 0.0, 3), "of decided episodes"),
        ("real_calls", trained.real_calls, "calls"),
        ("logprob_gap", max(step.logprob_gap or 0.0 for step in trained.steps), "nats"),
        ("canary_gap", max(step.canary_gap or 0.0 for step in trained.steps), "nats"),
        ("adapter_gap", adapter, "nats"),
        *((f"update_{short}", round(updates[dtype]), "tokens/s") for dtype, short in _DTYPES.items()),
    ]


_TABLE: list[str] = []


def table() -> str:
    """Step by step."""
    head = f"| step | passed | conclusive | rollouts (s) | {' | '.join(f'{phase} (s)' for phase in PHASES)} |"
    return "\n".join([head, "| --- " * (4 + len(PHASES)) + "|", *_TABLE])


def _line(step: StepRecord) -> str:
    seconds = (f"{step.seconds.get(phase, 0.0):.2f}" for phase in ("rollouts", *PHASES))
    return f"| {step.step} | {step.facts.success} | {step.facts.decided} | {' | '.join(seconds)} |"


def phases(steps: Sequence[StepRecord], engine_s: float) -> list[tuple[str, float, str]]:
    """Seconds by phase, medians over the steps after the first; `engine_s`: of all their rollouts."""

    def middle(of: Callable[[StepRecord], float]) -> float:
        return statistics.median(map(of, steps[1:]))

    seconds = {phase: middle(lambda step, phase=phase: step.seconds.get(phase, 0.0)) for phase in PHASES}
    whole = middle(lambda step: sum(step.seconds.get(phase, 0.0) for phase in PHASES))
    rollouts = middle(lambda step: step.seconds["rollouts"])
    generation = rollouts * engine_s / sum(step.seconds["rollouts"] for step in steps)
    shares = {"rollouts": rollouts, "generation": generation, **seconds}
    return [
        ("step_s", round(whole, 2), "s"),
        *((f"{phase}_s", round(median, 2), "s") for phase, median in seconds.items()),
        *((f"{name}_share", round(shares[name] / whole, 3), "of a step") for name in SHARES),
    ]


_DTYPES = {"float32": "fp32", "bfloat16": "bf16"}


@dataclass(frozen=True, slots=True)
class _Trained:
    """What came of the training."""

    directory: Path
    weights: Path
    steps: list[StepRecord]
    real_calls: int
    settings: Any


def _trained(folder: Path, seed: int, steps: int, tasks: int) -> _Trained:
    from dreamgym_kit.adapters.langgraph.run.api import record
    from dreamgym_kit.adapters.stores.memory import MemoryStore
    from dreamgym_kit.recipes.desk.graph import graph
    from dreamgym_kit.recipes.desk.tasks import drawn_tasks
    from dreamgym_kit.recipes.train_then_deploy import WholeWayPlan, learn, settings_for

    plan = WholeWayPlan(seed=seed, steps=steps, per_step=tasks, rate=RATE, lora=RANK)
    settings = settings_for(folder, plan).with_overrides({"train.save_every": 1})
    drawn, store = drawn_tasks(tasks * steps, seed=seed), MemoryStore()
    record(graph("scripted:mixed"), drawn, settings=settings, buffer=store, repeats=4)
    result = learn(folder / "start", drawn, settings, store, folder, lambda _: None)
    if result.alarm:
        raise RuntimeError(f"an alarm ended the training: {result.alarm}")
    return _Trained(result.directory, result.weights, read_steps(result.directory), result.real, settings)


def _adapter_gap(trained: _Trained, folder: Path, device: str) -> float:
    """The largest difference between merged weights and the adapter that PEFT puts on the start."""
    from peft import PeftModel

    from dreamgym_kit.adapters.langgraph.training.train import CHECKPOINTS, grpo_options
    from dreamgym_kit.adapters.models.folders import calm, load_model
    from dreamgym_kit.adapters.trainers.tensors import score
    from dreamgym_kit.adapters.trainers.trainer import TrlTrainer

    start = folder / "start"
    trainer = TrlTrainer(start, trained.directory / CHECKPOINTS, grpo_options(trained.settings))
    whole, adapter = folder / "exported" / "merged", folder / "exported" / "adapter"
    trainer.write_weights(whole)
    trainer.write_adapter(adapter, base=str(start))
    ids = [sample.ids for sample in synthetic_batch(1, 0, 16).samples]
    bare = load_model(start).to(device)
    before = score(bare, ids)
    with calm():
        adapted = score(PeftModel.from_pretrained(bare, adapter).eval(), ids)
    merged = score(load_model(whole).to(device), ids)
    served = score(load_model(trained.weights).to(device), ids)
    if _furthest(before, merged) == 0:
        raise RuntimeError("nothing was learned")
    return max(_furthest(adapted, merged), _furthest(served, merged))


def synthetic_batch(step: int, seed: int, episodes: int = EPISODES) -> Batch:
    """Episodes of 60 to 220 tokens, half of them sampled, one in eight in two samples."""
    chance = random.Random(f"{seed}:{step}")
    rows: list[Sample] = []
    for episode in range(episodes):
        for _ in range(2 if chance.random() < 1 / 8 else 1):
            start, mask = chance.randint(12, 30), [1] * 8
            while len(mask) < chance.randint(48, 190):
                mask += [0] * chance.randint(6, 20) + [1] * chance.randint(8, 22)
            rows.append(
                Sample(
                    episode=f"e{episode}",
                    ids=tuple(chance.randint(3, 700) for _ in range(start + len(mask))),
                    start=start,
                    mask=tuple(mask),
                    logprobs=tuple(-6.5 * own for own in mask),
                    turns=(0,),
                    versions=(f"step-{step - 1:06d}",),
                    advantage=chance.gauss(0, 1),
                )
            )
    of: dict[str, int] = {}
    for row in rows:
        of[row.episode] = of.get(row.episode, 0) + row.trained
    total = sum(of.values())
    weighed = (replace(row, weight=total / (len(of) * of[row.episode])) for row in rows)
    return Batch(step, tuple(weighed))


def _furthest(some: list[list[float]], others: list[list[float]]) -> float:
    pairs = zip(some, others, strict=True)
    return max(abs(a - b) for one, other in pairs for a, b in zip(one, other, strict=True))


def _update(model: Path, folder: Path, dtype: str, seed: int) -> float:
    """Tokens a second of updates, prompts and answers alike; the first, which warms up, is left out."""
    from dreamgym_kit.adapters.trainers.options import GrpoOptions, LoraOptions
    from dreamgym_kit.adapters.trainers.trainer import TrlTrainer
    from dreamgym_kit.turns import UpdateFacts

    options = GrpoOptions(
        dtype=dtype, lora=LoraOptions(RANK, 2 * RANK), learning_rate=RATE, save_every=UPDATES + 1
    )
    heard: list[UpdateFacts] = []
    tokens: list[int] = []

    def source(step: int) -> Any:
        batch = synthetic_batch(step, seed)
        tokens.append(sum(len(sample.ids) for sample in batch.samples))
        return batch

    trainer = TrlTrainer(model, folder, options)
    trainer.fit(source, steps=UPDATES, after=heard.append)
    return sum(tokens[1:]) / sum(facts.seconds for facts in heard[1:])


def _most_memory() -> float:
    """GiB that torch held of the GPU at most; 0 without one."""
    import torch

    return torch.cuda.max_memory_allocated() / 2**30 if torch.cuda.is_available() else 0.0


@dataclass
class _Engine:
    """What the engine's batches took."""

    seconds: float = 0.0
    tokens: int = 0


@contextmanager
def _engine_metered() -> Iterator[_Engine]:
    """Wall time in which batches read and sample; each step ends with its tokens on the CPU."""
    from dreamgym_kit.adapters.models.local_batch import RunningBatch

    spent, join, step = _Engine(), RunningBatch.join, RunningBatch.step

    def timed(work: Callable[..., Any]) -> Callable[..., Any]:
        def run(batch: Any, *given: Any) -> Any:
            spent.tokens += len(batch.asks) if work is step else 0
            began = time.perf_counter()
            try:
                return work(batch, *given)
            finally:
                spent.seconds += time.perf_counter() - began

        return run

    RunningBatch.join, RunningBatch.step = timed(join), timed(step)  # type: ignore[method-assign]
    try:
        yield spent
    finally:
        RunningBatch.join, RunningBatch.step = join, step  # type: ignore[method-assign]
