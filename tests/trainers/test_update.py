"""An update is exactly what its loss says: held against plain PyTorch, row by row and without padding."""

import json
import math
import shutil
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from each_row import each_row

pytest.importorskip("trl", reason="the extra train is not installed", exc_type=ImportError)
import torch
from trainers.bare_loop import episode_mean_loss, furthest, mixed_batch, step_by_hand, told, weighed
from trainers.tiny_model import write_tiny_model

from dreamgym_kit.adapters.models.folders import load_model
from dreamgym_kit.adapters.trainers.options import GrpoOptions, LoraOptions
from dreamgym_kit.adapters.trainers.tensors import minibatches_of
from dreamgym_kit.adapters.trainers.trainer import TrlTrainer
from dreamgym_kit.errors import RunDirectoryError, TrainingStopped, UserError
from dreamgym_kit.turns import Batch, UpdateFacts

pytestmark = pytest.mark.slow  # importing trl alone takes seconds

RATE = 1e-3
EXACT = 1e-9  # in 64 bits: in 32 the last bit of a weight near 1 is 1.2e-7, and processors differ


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("base") / "model", scale=2.0)


def options(**changed: Any) -> GrpoOptions:
    return replace(GrpoOptions(learning_rate=RATE, warmup_steps=2), **changed)


def adam(model: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.95), weight_decay=0.0)


def at_step(optimizer: torch.optim.Optimizer, step: int) -> torch.optim.Optimizer:
    for group in optimizer.param_groups:
        group["lr"] = RATE * min(1.0, step / 2)
    return optimizer


def fitted(base: Path, folder: Path, wanted: GrpoOptions, steps: int = 2) -> tuple[Any, list[UpdateFacts]]:
    facts: list[UpdateFacts] = []
    trainer = TrlTrainer(base, folder, wanted)
    trainer.fit(mixed_batch, steps=steps, after=facts.append)
    trainer.write_weights(folder / "weights")
    return load_model(folder / "weights", dtype=wanted.dtype), facts


@each_row("micro_batches", [1, 4, 40])
def test_two_updates_equal_a_bare_loop_for_mixed_turns_forks_and_weights(
    base: Path, tmp_path: Path, micro_batches: int
) -> None:
    ours, facts = fitted(base, tmp_path, options(micro_batches=micro_batches, dtype="float64"))
    by_hand = load_model(base, dtype="float64")
    optimizer = adam(by_hand)
    for step in (1, 2):
        loss = episode_mean_loss(by_hand, mixed_batch(step))
        step_by_hand(by_hand, at_step(optimizer, step), loss)
        assert facts[step - 1].loss == pytest.approx(float(loss.detach()), abs=1e-6)
    assert furthest(load_model(base), ours) > RATE / 2
    assert furthest(by_hand, ours) <= EXACT


def test_the_facts_of_an_update_are_those_of_its_sampled_tokens(base: Path, tmp_path: Path) -> None:
    batch, model = mixed_batch(1), load_model(base)
    with torch.no_grad():
        seen = [(row, *told(model, row)) for row in batch.samples]
    own = [torch.tensor(row.mask, dtype=torch.bool) for row in batch.samples]
    gaps = torch.cat(
        [(logps - torch.tensor(row.logprobs))[mask] for (row, logps, _), mask in zip(seen, own, strict=True)]
    )
    entropies = torch.cat([entropy[mask] for (_, _, entropy), mask in zip(seen, own, strict=True)])
    wanted = torch.cat(
        [torch.full((int(mask.sum()),), row.advantage) for (row, _, _), mask in zip(seen, own, strict=True)]
    )
    clipped = ((gaps.exp() > 1.2) & (wanted > 0)) | ((gaps.exp() < 0.8) & (wanted < 0))
    _, (facts,) = fitted(base, tmp_path, options(), steps=1)
    assert facts.step == 1
    assert facts.logprob_gap == pytest.approx(float(gaps.abs().max()), abs=1e-5)
    assert facts.entropy == pytest.approx(float(entropies.mean()), abs=1e-5)
    assert facts.clipped == pytest.approx(float(clipped.float().mean()), abs=1e-6)
    assert facts.kl > 0
    assert facts.grad_norm > 0
    assert facts.cpu_seconds > 0


def test_samples_of_other_weights_have_no_gap(base: Path, tmp_path: Path) -> None:
    facts: list[UpdateFacts] = []
    TrlTrainer(base, tmp_path, options()).fit(
        lambda step: mixed_batch(step, version="step-000009"), steps=1, after=facts.append
    )
    assert math.isnan(facts[0].logprob_gap)


def test_minibatches_are_steps_of_their_own_on_whole_episodes(base: Path, tmp_path: Path) -> None:
    ours, facts = fitted(base, tmp_path, options(minibatches=2, dtype="float64"))
    assert [one.step for one in facts] == [1, 2]
    by_hand = load_model(base, dtype="float64")
    optimizer = adam(by_hand)
    for step in (1, 2):
        batch = mixed_batch(step)
        parts = minibatches_of(batch, 2, seed=0)
        assert not {s.episode for s in parts[0]} & {s.episode for s in parts[1]}
        assert sorted(map(len, [{s.episode for s in part} for part in parts])) == [2, 3]
        for part in parts:
            episodes = len({sample.episode for sample in part})
            loss = episode_mean_loss(by_hand, replace(batch, samples=tuple(part))) * episodes * 2 / 5
            step_by_hand(by_hand, at_step(optimizer, step), loss)
    assert furthest(by_hand, ours) <= EXACT  # four steps


def test_a_divergence_from_the_start_weighs_every_episode_the_same(base: Path, tmp_path: Path) -> None:
    ours, _ = fitted(base, tmp_path, options(beta=0.5, dtype="float64"), steps=3)
    start, by_hand = (load_model(base, dtype="float64") for _ in range(2))
    optimizer = adam(by_hand)
    for step in (1, 2, 3):
        loss = episode_mean_loss(by_hand, mixed_batch(step), beta=0.5, start=start)
        step_by_hand(by_hand, at_step(optimizer, step), loss)
    assert furthest(by_hand, ours) <= EXACT


def by_rows(model: Any, batch: Batch, loss: str) -> Any:
    """TRL's losses that are no sums over tokens, on the whole batch at once."""
    found, weights = [], []
    for row in batch.samples:
        mask = torch.tensor(row.mask, dtype=torch.float32) * row.weight
        ratio = (told(model, row)[0] - torch.tensor(row.logprobs)).exp()
        losses = -torch.min(ratio * row.advantage, ratio.clamp(0.8, 1.2) * row.advantage)
        if loss == "gspo":
            whole = (((told(model, row)[0] - torch.tensor(row.logprobs)) * mask).sum() / mask.sum()).exp()
            losses = -torch.min(whole * row.advantage, whole.clamp(0.8, 1.2) * row.advantage).expand_as(mask)
        found.append((losses * mask).sum())
        weights.append(mask.sum())
    if loss in ("grpo", "gspo"):
        return torch.stack(
            [one / weight.clamp(min=1) for one, weight in zip(found, weights, strict=True)]
        ).mean()
    if loss == "bnpo":
        return torch.stack(found).sum() / torch.stack(weights).sum()
    return torch.stack(found).mean() / 512  # dr_grpo


@pytest.mark.parametrize("loss", ["grpo", "bnpo", "dr_grpo", "gspo"])
@pytest.mark.parametrize("micro_batches", [1, 3])
def test_losses_by_rows_do_not_depend_on_the_pieces_they_are_computed_in(
    base: Path, tmp_path: Path, loss: str, micro_batches: int
) -> None:
    wanted = options(loss=loss, micro_batches=micro_batches)
    ours, facts = fitted(base, tmp_path, wanted, steps=1)
    by_hand = load_model(base)
    by_hand_loss = by_rows(by_hand, mixed_batch(1), loss)
    step_by_hand(by_hand, at_step(adam(by_hand), 1), by_hand_loss)
    assert facts[0].loss == pytest.approx(float(by_hand_loss.detach()), rel=1e-4)
    assert furthest(by_hand, ours) <= 1e-5  # Adam makes 1e-6 of a gradient's last bit


@each_row("loss", ["cispo", "sapo", "vespo", "luspo"])
def test_every_other_loss_of_trl_changes_the_weights(base: Path, tmp_path: Path, loss: str) -> None:
    wanted = options(loss=loss, entropy=0.01)
    ours, facts = fitted(base, tmp_path, wanted, steps=1)
    assert math.isfinite(facts[0].loss)
    assert furthest(load_model(base), ours) > RATE / 4


def test_an_adapter_is_merged_into_what_is_written_and_leaves_the_model_as_it_is(
    base: Path, tmp_path: Path
) -> None:
    trainer = TrlTrainer(base, tmp_path / "run", options(lora=LoraOptions(4, 8), beta=0.1))
    trainer.fit(mixed_batch, steps=3, after=lambda _: None)
    ids = [list(sample.ids) for sample in mixed_batch(9).samples]
    scored = trainer.score(ids)
    trainer.write_weights(tmp_path / "weights")
    assert trainer.score(ids) == scored
    served = TrlTrainer(tmp_path / "weights", tmp_path / "other", options()).score(ids)
    pairs = [pair for both in zip(scored, served, strict=True) for pair in zip(*both, strict=True)]
    assert max(abs(one - other) for one, other in pairs) < 1e-5
    before = TrlTrainer(base, tmp_path / "third", options()).score(ids)
    assert max(abs(a - b) for a, b in zip(before[0], scored[0], strict=True)) > 1e-4


def test_a_model_with_dropout_is_trained_without_it(base: Path, tmp_path: Path) -> None:
    dropping = tmp_path / "dropping"
    shutil.copytree(base, dropping)
    config = json.loads((base / "config.json").read_text())
    (dropping / "config.json").write_text(json.dumps(config | {"attention_dropout": 0.5}))
    ours, facts = fitted(dropping, tmp_path / "run", options())
    plain, wanted = fitted(base, tmp_path / "plain", options())
    assert [one.loss for one in facts] == [one.loss for one in wanted]
    assert furthest(plain, ours) == 0.0


def test_the_head_that_gpus_use_comes_to_the_same_weights(base: Path, tmp_path: Path) -> None:
    exact = options(beta=0.1, dtype="float64")
    plain, facts = fitted(base, tmp_path / "plain", exact)
    trainer = TrlTrainer(base, tmp_path / "tiled", exact)
    assert trainer._trl.plain_head
    trainer._trl.plain_head = False
    heard: list[UpdateFacts] = []
    trainer.fit(mixed_batch, steps=2, after=heard.append)
    trainer.write_weights(tmp_path / "weights")
    assert furthest(plain, load_model(tmp_path / "weights", dtype="float64")) <= 1e-6
    for one, other in zip(facts, heard, strict=True):
        assert one.entropy == pytest.approx(other.entropy, abs=1e-5)
        assert one.logprob_gap == pytest.approx(other.logprob_gap, abs=1e-5)
        assert one.clipped == other.clipped


@pytest.mark.parametrize("lora", [None, LoraOptions(4, 8)])
def test_a_tied_head_is_written_once_and_goes_on_as_it_was(
    tmp_path: Path, lora: LoraOptions | None, capfd: pytest.CaptureFixture[str]
) -> None:
    tied = write_tiny_model(tmp_path / "tied", scale=2.0, tied=True)
    wanted = options(lora=lora)
    whole = TrlTrainer(tied, tmp_path / "whole", wanted)
    whole.fit(mixed_batch, steps=3, after=lambda _: None)
    TrlTrainer(tied, tmp_path / "legs", wanted).fit(mixed_batch, steps=2, after=lambda _: None)
    again = TrlTrainer(tied, tmp_path / "legs", wanted)
    again.fit(mixed_batch, steps=3, after=lambda _: None)
    ids = [list(sample.ids) for sample in mixed_batch(9).samples]
    assert again.score(ids) == whole.score(ids)
    again.write_weights(tmp_path / "weights")
    served = TrlTrainer(tmp_path / "weights", tmp_path / "other", options()).score(ids)
    assert served[0] == pytest.approx(whole.score(ids)[0], abs=1e-5)
    size = (tmp_path / "weights" / "model.safetensors").stat().st_size
    assert abs(size - (tied / "model.safetensors").stat().st_size) < 2000
    assert capfd.readouterr() == ("", "")  # nothing is said over the progress


def test_scores_are_log_probs_of_each_row_alone(base: Path, tmp_path: Path) -> None:
    rows = [list(sample.ids) for sample in mixed_batch(4).samples] + [[5], [7, 9]]
    scored = TrlTrainer(base, tmp_path, options()).score(rows)
    assert [len(one) for one in scored] == [len(row) - 1 for row in rows]
    model = load_model(base)
    for row, one in zip(rows, scored, strict=True):
        with torch.no_grad():
            every = model(input_ids=torch.tensor([row])).logits[0].log_softmax(-1)
        alone = [float(every[place - 1, row[place]]) for place in range(1, len(row))]
        assert one == pytest.approx(alone, abs=1e-5)


def test_a_loss_that_is_not_finite_stops_before_the_weights_take_it(base: Path, tmp_path: Path) -> None:
    def source(step: int) -> Batch:
        batch = mixed_batch(step)
        if step < 2:
            return batch
        rows = list(batch.samples)
        rows[0] = replace(rows[0], advantage=math.nan)
        return replace(batch, samples=tuple(rows))

    heard: list[UpdateFacts] = []
    trainer = TrlTrainer(base, tmp_path / "run", options())
    with pytest.raises(TrainingStopped) as stopped:
        trainer.fit(source, steps=4, after=heard.append)
    assert (stopped.value.alarm, stopped.value.step) == ("not_finite", 2)
    assert str(stopped.value) == "step 2: not_finite: the loss is nan"
    assert [one.step for one in heard] == [1]
    assert trainer.step == 1
    fresh = TrlTrainer(base, tmp_path / "fresh", options())
    fresh.fit(mixed_batch, steps=1, after=lambda _: None)
    ids = [list(sample.ids) for sample in mixed_batch(9).samples]
    assert trainer.score(ids) == fresh.score(ids)


def test_tokens_that_are_not_the_models_are_named(base: Path, tmp_path: Path) -> None:
    batch = mixed_batch(1)
    strange = replace(batch.samples[0], ids=(99, *batch.samples[0].ids[1:]))
    with pytest.raises(ValueError, match=r"step 1: a sample of e0 with the token 99, but the model has 48"):
        TrlTrainer(base, tmp_path, options()).fit(
            lambda _: Batch(1, tuple(weighed([strange]))), steps=1, after=lambda _: None
        )


@each_row(
    ("changed", "said"),
    [
        ({"loss": "dapoo"}, "[train]: loss 'dapoo' is not in what can be trained with; did you mean 'dapo'?"),
        ({"micro_batches": 0}, "[train]: micro_batches is 0; it must be at least 1."),
        ({"temperature": 0.0}, "[train]: temperature is 0.0; it must be above 0."),
    ],
)
def test_options_that_trl_would_refuse_late_are_refused_at_once(
    tmp_path: Path, changed: dict[str, Any], said: str
) -> None:
    with pytest.raises(UserError) as refused:
        TrlTrainer(tmp_path, tmp_path, options(**changed))
    assert str(refused.value) == said


def test_logs_for_tensorboard_hold_the_losses_and_the_facts_of_the_batch(base: Path, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    before = set(threading.enumerate())
    trainer = TrlTrainer(base, tmp_path / "run", options(report_to=("tensorboard",)), logs=tmp_path / "logs")
    # the writer's thread begins in `fit`, around which a training lets the trainer write beside its dreams
    assert set(threading.enumerate()) <= before
    trainer.fit(mixed_batch, steps=2, after=lambda _: None)
    read = EventAccumulator(str(tmp_path / "logs")).Reload()
    assert {"train/loss", "train/grad_norm", "train/entropy", "train/success"} <= set(read.Tags()["scalars"])
    assert [one.step for one in read.Scalars("train/loss")] == [1, 2]


@each_row(
    ("changed", "said"),
    [
        ({"report_to": ("tensorbord",)}, "tensorbord is not supported"),
        ({"optimizer": "adamv"}, "adamv is not a valid OptimizerNames"),
        (
            {"lora": LoraOptions(targets=("lm_head",))},
            "Applying a PEFT adapter to `lm_head` is not supported",
        ),
        ({"lora": LoraOptions(targets=("nope",))}, "not found in the base model"),
    ],
)
def test_what_only_the_packages_know_to_be_wrong_is_said_without_a_traceback(
    base: Path, tmp_path: Path, changed: dict[str, Any], said: str
) -> None:
    with pytest.raises(UserError) as refused:
        TrlTrainer(base, tmp_path, options(**changed))
    assert str(refused.value).startswith("[train]: cannot be trained like this: ")
    assert said in str(refused.value)


def test_a_checkpoint_that_cannot_be_written_ends_the_training_with_the_one_before(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = TrlTrainer(base, tmp_path, options())
    trainer.fit(mixed_batch, steps=1, after=lambda _: None)

    def full(*_: object, **__: object) -> None:
        raise RuntimeError("PytorchStreamWriter failed writing file")  # as torch says that a disk is full

    with monkeypatch.context() as patched:
        patched.setattr(torch, "save", full)
        with pytest.raises(RunDirectoryError, match=r"the checkpoint of step 2 cannot be written \(Pytorch"):
            trainer.fit(mixed_batch, steps=3, after=lambda _: None)
    assert trainer.step == 1
    trainer.fit(mixed_batch, steps=3, after=lambda _: None)
    assert trainer.step == 3
