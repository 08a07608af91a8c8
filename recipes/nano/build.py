"""Builds a nano model from nothing: records, teaches, measures, and writes down how it was made.

One seed decides everything: which worlds are recorded, who works them, the first weights, the order of the
lessons and what is sampled in the measurement. Beside the weights stands `nano.json`: settings, seeds and
scores, and a model card that says the same in words. It is written last: where it is, the model is whole.

The defaults of `Lessons` are what trials on the desk found to work: ids and names weigh four times as much as
the agent's other tokens (copying is what so small a model forgets first), what it is told counts a tenth, and
some rows are repetitions to be copied.
"""

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dreamgym_kit.adapters.models.folders import require_extra, threads
from dreamgym_kit.errors import UserError
from dreamgym_kit.recipes.desk.cases import HELD_OUT_SEEDS, TRAIN_SEEDS
from dreamgym_kit.recipes.nano.episodes import Mix, record

Tell = Callable[[str], None]
MANIFEST = "nano.json"
WEIGHTS = Path(__file__).parent / "weights" / "policy"
"""The model directory that is shipped: the policy that training in the dream starts from."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How large a nano model is."""

    width: int = 96
    layers: int = 3
    heads: int = 4
    kv_heads: int = 2
    head_width: int = 32
    inner: int = 192


@dataclass(frozen=True, slots=True)
class Schedule:
    """How a model is taught."""

    steps: int = 800
    rows: int = 32  # in a step
    rate: float = 2.5e-3  # learning rate at its height
    warm_up: int = 20  # steps
    final_rate: float = 0.05  # of `rate`, at the end of the linear decay


@dataclass(frozen=True, slots=True)
class Lessons(Schedule):
    """How a policy is taught."""

    steps: int = 2000
    rows: int = 10  # many small steps learn more than few large ones
    rate: float = 2e-3
    warm_up: int = 30
    seniors_first: float = 0.5  # of all steps: only work of seniors is read, then everybody's
    copied_weight: float = 4.0  # of ids and names that the agent says; its other tokens weigh 1
    deciding_weight: float = 3.0  # of the first token of each turn and of the tools it names
    told_weight: float = 0.1  # of what it is told
    repetitions: float = 0.15  # of all rows: sequences to be copied


@dataclass(frozen=True, slots=True)
class Progress:
    """One step, as it went."""

    step: int  # 1-based
    loss: float
    accuracy: float  # of the agent's tokens, the likeliest taken
    cpu_s: float  # since the beginning


@dataclass(frozen=True, slots=True)
class BuildPlan:
    """What to build."""

    seed: int = 0
    episodes: int = 6000  # recorded
    mix: Mix = field(default_factory=Mix)
    shape: Shape = field(default_factory=Shape)
    lessons: Lessons = field(default_factory=Lessons)
    environments_per_family: int = 30  # held-out, to be measured on
    samplings: int = 4  # of each at temperature 1


def build(out: Path, plan: BuildPlan | None = None, *, tell: Tell | None = None) -> dict[str, Any]:
    """Build a model into `out`; gives what its manifest says.

    Raises:
        MissingExtra: the packages of the extra `train` are not installed.
        UserError: there is something at `out` already; then nothing was done.
    """
    check_can_build(out, "a nano model")
    from dreamgym_kit.adapters.models.local_network import Network
    from dreamgym_kit.recipes.nano.learn import learn
    from dreamgym_kit.recipes.nano.score import held_out_worlds, measure
    from dreamgym_kit.recipes.nano.start import new_model, save_model
    from dreamgym_kit.recipes.nano.tokens import Stream, build_tokenizer

    plan, say = plan or BuildPlan(), tell or (lambda _: None)
    with threads(1):
        began = time.process_time()
        stream = Stream(build_tokenizer())
        recorded = list(record(plan.episodes, seed=plan.seed, mix=plan.mix))
        record_s = time.process_time() - began
        solved = sum(worked.solved for worked in recorded) / len(recorded)
        say(f"recorded {len(recorded)} episodes, {solved:.0%} of them solved")
        model = new_model(stream.tokenizer, seed=plan.seed, shape=plan.shape)
        rows = [stream.row(worked) for worked in recorded]
        seniors = [row for row, worked in zip(rows, recorded, strict=True) if worked.habits.kind == "senior"]
        steps: list[Progress] = []
        report = reported(say, every=50, steps=steps)
        learn(model, stream, rows, first=seniors, lessons=plan.lessons, seed=plan.seed, tell=report)
        save_model(model, stream.tokenizer, out)
        network, environments = Network(model), held_out_worlds(plan.environments_per_family)
        scores = {
            "sampled": measure(network, stream, environments, samplings=plan.samplings, seed=plan.seed),
            "greedy": measure(network, stream, environments, temperature=0.0),
        }
        for name, score in scores.items():
            say(f"{name}: {score.solved:.1%} of {score.episodes} episodes in held-out worlds solved")
    end = steps[-50:]  # loss and accuracy are means over the last steps
    means = {name: sum(getattr(each, name) for each in end) / len(end) for name in ("loss", "accuracy")}
    facts = {
        "form": 1,
        "seed": plan.seed,
        "parameters": model.num_parameters(),
        "data": {
            "episodes": len(recorded),
            "solved": solved,
            "worlds": [TRAIN_SEEDS.start, TRAIN_SEEDS.stop - 1],
            "held_out_worlds": [HELD_OUT_SEEDS.start, HELD_OUT_SEEDS.stop - 1],
            "mix": asdict(plan.mix),
        },
        "shape": asdict(plan.shape),
        "lessons": asdict(plan.lessons),
        "measured": {"worlds_per_family": plan.environments_per_family, "samplings": plan.samplings},
        "scores": {name: asdict(score) for name, score in scores.items()},
        "training": {**asdict(steps[-1]), **means, "record_cpu_s": record_s},
        **made_with(out),
    }
    write_manifest(out, card(facts), MANIFEST, facts)
    return facts


def check_can_build(out: Path, needed_by: str) -> None:
    """Raise MissingExtra without the packages of the extra `train`, UserError where something is at `out`."""
    require_extra(needed_by)
    if out.exists():
        raise UserError(f"{out}: is there already; name another directory, or delete it first")


def reported(say: Tell, *, every: int, steps: list[Progress] | None = None) -> Callable[[Progress], None]:
    """What hears of each step: tells of some, and appends all to `steps`."""

    def report(progress: Progress) -> None:
        if steps is not None:
            steps.append(progress)
        if progress.step % every == 0:
            say(f"step {progress.step}: loss {progress.loss:.3f}, {progress.accuracy:.1%} foretold")

    return report


def made_with(out: Path) -> dict[str, Any]:
    """Versions of the packages, and the digest of the weights that were written."""
    return {
        "made_with": {name: version(name) for name in ("torch", "transformers", "tokenizers")},
        "weights_sha256": hashlib.sha256((out / "model.safetensors").read_bytes()).hexdigest(),
    }


def write_manifest(out: Path, readme: str, name: str, facts: Mapping[str, Any]) -> None:
    """Write the card and, last, the manifest: where it is, the model is whole."""
    (out / "README.md").write_text(readme, encoding="utf-8")
    (out / name).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


_HEAD = """\
---
license: apache-2.0
library_name: transformers
tags: [dreamgym-kit, tool-use, from-scratch]
---

# A nano policy for the support desk

{parameters:,} parameters, a Qwen3 architecture, trained from nothing on {episodes:,} recorded episodes of
dreamgym-kit's support desk (seed {seed}). It exists to show, within minutes on a processor, that training in
the dream changes how an agent works. It knows fifteen tools, nine kinds of request and nothing else: neither
English nor your desk. It is no assistant.

It learned from colleagues of every sort: {senior:.0%} work right, {junior:.0%} have habits that skip checks,
the rest slip now and then; {solved:.0%} of their work ended well. For the first {first:.0%} of its lessons it
read seniors only, then everybody. So it often knows better than it does, and has room to improve, on purpose.

## How it does

Solved in worlds that nothing was recorded or trained on, on the desk's real tools, judged by its books:

| family | sampled (temperature 1) | greedy |
| --- | --- | --- |
"""

_USE = """
## Use

    from transformers import AutoModelForCausalLM, AutoTokenizer

Its chat template renders neither system prompt nor tool schemas: both were learned. Calls are written as
Hermes writes them (`<tool_call>`). Sample at temperature 1 for training.

## How it was made

    python -m dreamgym_kit.recipes.nano build OUT --seed {seed}

Settings, seeds, scores and versions stand in `nano.json`.
"""


def card(facts: Mapping[str, Any]) -> str:
    """Write the card of a model with this manifest."""
    data, scores = facts["data"], facts["scores"]
    sampled, greedy = scores["sampled"], scores["greedy"]
    head = _HEAD.format(
        parameters=facts["parameters"],
        episodes=data["episodes"],
        seed=facts["seed"],
        senior=data["mix"]["senior"],
        junior=data["mix"]["junior"],
        solved=data["solved"],
        first=facts["lessons"]["seniors_first"],
    )
    rows = [
        f"| {family} | {share:.0%} | {greedy['by_family'][family]:.0%} |\n"
        for family, share in sampled["by_family"].items()
    ]
    rows.append(f"| all | **{sampled['solved']:.1%}** | {greedy['solved']:.1%} |\n")
    rows.append("\nWhy episodes fail (share of all, sampled):\n\n| why | share |\n| --- | --- |\n")
    rows += [f"| {kind} | {share:.1%} |\n" for kind, share in sampled["failures"].items()]
    return head + "".join(rows) + _USE.format(seed=facts["seed"])
