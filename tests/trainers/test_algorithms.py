"""PPO, DPO and SFT on successes are exactly what their losses say; held against plain PyTorch."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from each_row import each_row

pytest.importorskip("trl", reason="the extra train is not installed", exc_type=ImportError)
import torch
from trainers.algorithms_by_hand import (
    pair_loss,
    paired_batch,
    rewarded_batch,
    success_batch,
    success_loss,
    value_head_loss,
)
from trainers.bare_loop import furthest, mixed_batch, step_by_hand
from trainers.tiny_model import write_tiny_model

from dreamgym_kit.adapters.models.folders import load_model
from dreamgym_kit.adapters.trainers.options import GrpoOptions, LoraOptions
from dreamgym_kit.adapters.trainers.tensors import minibatches_of, pieces_of_pairs
from dreamgym_kit.adapters.trainers.trainer import TrlTrainer
from dreamgym_kit.errors import UserError
from dreamgym_kit.turns import Batch, UpdateFacts

pytestmark = pytest.mark.slow  # importing trl alone takes seconds

RATE = 1e-3
EXACT = 2e-8  # of a parameter, in float64; norms compute in float32 all the same
SOURCES: dict[str, Callable[[int], Batch]] = {
    "ppo": rewarded_batch,
    "dpo": paired_batch,
    "sft": success_batch,
}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("base") / "model", scale=2.0)


def options(algorithm: str, **changed: Any) -> GrpoOptions:
    return replace(GrpoOptions(algorithm=algorithm, learning_rate=RATE, warmup_steps=1), **changed)


def exact(algorithm: str, **changed: Any) -> GrpoOptions:
    """In float64, where only a wrong formula shows."""
    return options(algorithm, dtype="float64", **changed)


def fitted(base: Path, folder: Path, wanted: GrpoOptions, steps: int = 2) -> tuple[Any, list[UpdateFacts]]:
    facts: list[UpdateFacts] = []
    trainer = TrlTrainer(base, folder, wanted)
    trainer.fit(SOURCES[wanted.algorithm], steps=steps, after=facts.append)
    trainer.write_weights(folder / "weights")
    return load_model(folder / "weights", dtype=wanted.dtype), facts


def adam(*groups: dict[str, Any]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(list(groups), lr=RATE, betas=(0.9, 0.95), weight_decay=0.0)


@each_row("micro_batches", [1, 3, 40])
def test_sft_is_the_mean_over_successes_of_their_mean_log_prob(
    base: Path, tmp_path: Path, micro_batches: int
) -> None:
    ours, facts = fitted(base, tmp_path, exact("sft", micro_batches=micro_batches))
    by_hand = load_model(base, dtype="float64")
    optimizer = adam({"params": list(by_hand.parameters())})
    for step in (1, 2):
        loss = success_loss(by_hand, success_batch(step))
        step_by_hand(by_hand, optimizer, loss)
        assert facts[step - 1].loss == pytest.approx(float(loss.detach()), abs=1e-9)
    assert facts[0].clipped == 0.0
    assert furthest(load_model(base), ours) > RATE / 2
    assert furthest(by_hand, ours) <= EXACT


@each_row("micro_batches", [1, 2, 40])
def test_dpo_holds_whole_episodes_of_sampled_tokens_against_each_other(
    base: Path, tmp_path: Path, micro_batches: int
) -> None:
    ours, facts = fitted(base, tmp_path, exact("dpo", micro_batches=micro_batches, dpo_beta=0.3), steps=3)
    start, by_hand = (load_model(base, dtype="float64") for _ in range(2))
    optimizer = adam({"params": list(by_hand.parameters())})
    for step in (1, 2, 3):
        loss = pair_loss(by_hand, start, paired_batch(step), beta=0.3)
        step_by_hand(by_hand, optimizer, loss)
        assert facts[step - 1].loss == pytest.approx(float(loss.detach()), abs=1e-9)
    assert facts[0].loss == pytest.approx(0.6931, abs=1e-4)
    assert facts[0].figures == {"margin": pytest.approx(0.0, abs=1e-6), "preferred": 0.0}
    assert facts[2].figures["margin"] != 0.0
    assert facts[0].clipped == 0.0
    assert furthest(by_hand, ours) <= EXACT


def by_hand_ppo(base: Path, wanted: GrpoOptions, steps: int) -> tuple[Any, Any, list[float]]:
    model, losses = load_model(base, dtype="float64"), []
    head = torch.nn.Linear(32, 1, dtype=torch.float64)
    torch.nn.init.zeros_(head.weight)
    torch.nn.init.constant_(head.bias, 2 / 6)  # two of the first batch's six episodes have a reward of 1
    both = torch.nn.ModuleList([model, head])
    optimizer = adam(
        {"params": list(model.parameters())}, {"params": list(head.parameters()), "lr": wanted.value_rate}
    )
    for step in range(1, steps + 1):
        loss = value_head_loss(
            model,
            head,
            rewarded_batch(step),
            discount=wanted.discount,
            decay=wanted.gae,
            weight=wanted.value_weight,
        )
        step_by_hand(both, optimizer, loss)
        losses.append(float(loss.detach()))
    return model, head, losses


@each_row(("micro_batches", "discount", "decay"), [(1, 1.0, 1.0), (3, 0.98, 0.9), (40, 1.0, 0.0)])
def test_ppo_learns_from_rewards_what_its_value_head_did_not_expect(
    base: Path, tmp_path: Path, micro_batches: int, discount: float, decay: float
) -> None:
    wanted = exact(
        "ppo", micro_batches=micro_batches, discount=discount, gae=decay, value_weight=0.5, value_rate=0.05
    )
    ours, facts = fitted(base, tmp_path, wanted, steps=3)
    by_hand, head, losses = by_hand_ppo(base, wanted, 3)
    assert furthest(load_model(base), ours) > RATE / 2
    assert furthest(by_hand, ours) <= EXACT
    told = [one.loss for one in facts]
    assert told == pytest.approx(losses, abs=EXACT)
    assert {"value_loss", "value_explains"} <= facts[2].figures.keys()
    kept = TrlTrainer(base, tmp_path, wanted)._trl._head.state_dict()
    assert float((kept["weight"] - head.state_dict()["weight"]).abs().max()) <= EXACT
    assert abs(float(kept["bias"]) - 2 / 6) > 0.01


@each_row("reward", [0.0, 1.0])
def test_where_all_episodes_came_to_the_same_what_values_told_is_not_blown_up(
    base: Path, tmp_path: Path, reward: float
) -> None:
    """Nothing stands out there: brought to deviation 1, the value head's own noise would be the lesson."""

    def alike_in_the_end(step: int) -> Batch:
        batch = rewarded_batch(step)
        rows = (replace(row, reward=reward) for row in batch.samples)
        return replace(batch, samples=tuple(rows)) if step == 2 else batch

    trainer = TrlTrainer(base, tmp_path, options("ppo", value_rate=1e-3))
    trainer.fit(alike_in_the_end, steps=2, after=lambda _: None)
    told = [tensors for made in trainer._trl._pieces for _, tensors in made]
    advantages = torch.cat([one["advantages"][one["sampled"]] for one in told])
    returns = torch.cat([one["returns"][one["sampled"]] for one in told])
    assert returns.tolist() == pytest.approx([reward] * len(returns), abs=1e-5)
    assert float((advantages - (reward - 2 / 6)).abs().max()) < 0.2  # values have hardly left the mean


def test_a_value_head_that_learns_alone_comes_to_expect_the_reward(base: Path, tmp_path: Path) -> None:
    facts: list[UpdateFacts] = []
    wanted = options("ppo", learning_rate=1e-6, value_weight=1.0, value_rate=0.05, max_grad_norm=1e3)
    TrlTrainer(base, tmp_path, wanted).fit(
        lambda step: replace(
            rewarded_batch(1),
            step=step,
            samples=tuple(
                replace(row, versions=(f"step-{step - 1:06d}",)) for row in rewarded_batch(1).samples
            ),
        ),
        steps=40,
        after=facts.append,
    )
    assert facts[-1].figures["value_loss"] < facts[0].figures["value_loss"] / 1.5
    assert facts[-1].figures["value_explains"] > 0.3 > facts[0].figures["value_explains"]


def test_the_value_head_is_in_nothing_that_is_served(base: Path, tmp_path: Path) -> None:
    from safetensors import safe_open

    for lora in (None, LoraOptions(4, 8)):
        place = tmp_path / str(lora is None)
        trainer = TrlTrainer(base, place, options("ppo", lora=lora))
        trainer.fit(rewarded_batch, steps=1, after=lambda _: None)
        trainer.write_weights(place / "weights")
        trainer.write_adapter(place / "adapter", base=str(base))
        names = set()
        for path in place.glob("*/*.safetensors"):
            with safe_open(path, "pt") as file:
                names |= {name for name in file.keys() if path.stem != "value_head"}  # noqa: SIM118
        assert names
        assert not [name for name in names if "value_head" in name]
        assert (place / "step-000001" / "value_head.safetensors").is_file()


@pytest.mark.parametrize("lora", [None, LoraOptions(4, 8)])
@pytest.mark.parametrize("algorithm", sorted(SOURCES))
def test_each_algorithm_that_goes_on_from_a_checkpoint_is_the_unbroken_one(
    base: Path, tmp_path: Path, algorithm: str, lora: LoraOptions | None
) -> None:
    wanted = options(algorithm, lora=lora, minibatches=2, micro_batches=2)
    whole, facts = fitted(base, tmp_path / "whole", wanted, steps=4)
    fitted(base, tmp_path / "legs", wanted, steps=2)
    shutil.rmtree(tmp_path / "legs" / "weights")
    legs, rest = fitted(base, tmp_path / "legs", wanted, steps=4)
    assert [one.step for one in rest] == [3, 4]
    assert [one.loss for one in facts[2:]] == [one.loss for one in rest]
    assert furthest(whole, legs) == 0.0


@each_row("algorithm", sorted(SOURCES))
def test_the_head_that_gpus_use_comes_to_the_same_in_each_algorithm(
    base: Path, tmp_path: Path, algorithm: str
) -> None:
    plain, _ = fitted(base, tmp_path / "plain", options(algorithm))
    trainer = TrlTrainer(base, tmp_path / "tiled", options(algorithm))
    trainer._trl.plain_head = False
    trainer.fit(SOURCES[algorithm], steps=2, after=lambda _: None)
    trainer.write_weights(tmp_path / "tiled" / "weights")
    assert furthest(plain, load_model(tmp_path / "tiled" / "weights")) <= 1e-5


def test_a_checkpoint_of_another_algorithm_is_refused(base: Path, tmp_path: Path) -> None:
    TrlTrainer(base, tmp_path, options("sft")).fit(success_batch, steps=1, after=lambda _: None)
    with pytest.raises(UserError, match="was made with algorithm = sft, this training has ppo"):
        TrlTrainer(base, tmp_path, options("ppo"))


def test_a_pair_is_never_parted() -> None:
    batch = paired_batch(1, episodes=14)
    for part in minibatches_of(batch, 3, seed=0):
        for rank in range(2):
            for piece in pieces_of_pairs(part, 2, rank=rank, ranks=2):
                names = {row.pair for row in piece}
                assert sorted(row.ids for row in piece) == sorted(
                    row.ids for row in batch.samples if row.pair in names
                )
    shared = [
        row.pair
        for rank in range(2)
        for piece in pieces_of_pairs(batch.samples, 2, rank=rank, ranks=2)
        for row in piece
    ]
    assert sorted(shared) == sorted(row.pair for row in batch.samples)


@each_row(
    ("changed", "said"),
    [
        ({"algorithm": "a2c"}, "algorithm 'a2c' is not in what can be trained with"),
        ({"algorithm": "ppo", "loss": "grpo"}, '[train]: loss "grpo" is of "grpo"; "ppo" takes cispo, dapo'),
        (
            {"algorithm": "dpo", "loss": "cispo"},
            '[train]: loss is of "grpo" and "ppo"; "dpo" has a loss of its own',
        ),
        (
            {"algorithm": "sft", "beta": 0.1},
            '[train]: beta is of "grpo" and "ppo"; "sft" has a loss of its own',
        ),
        ({"gae": 1.5}, "[train]: gae is 1.5; it must lie between 0 and 1."),
    ],
)
def test_what_an_algorithm_would_pass_over_is_refused(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError) as refused:
        replace(GrpoOptions(), **changed).check()
    assert said in str(refused.value)


def test_grpo_is_what_it_was(base: Path, tmp_path: Path) -> None:
    """A batch of advantages is learned from as ever, whatever else a sample may hold."""
    trainer = TrlTrainer(base, tmp_path / "a", options("grpo"))
    trainer.fit(mixed_batch, steps=1, after=lambda _: None)
    other = TrlTrainer(base, tmp_path / "b", options("grpo"))
    other.fit(
        lambda step: replace(
            mixed_batch(step),
            samples=tuple(replace(row, reward=9.0) for row in mixed_batch(step).samples),
        ),
        steps=1,
        after=lambda _: None,
    )
    ids = [list(row.ids) for row in mixed_batch(1).samples]
    assert trainer.score(ids) == other.score(ids)
