"""What PPO, DPO and SFT on successes must come to, by hand: row by row, in the plainest PyTorch."""

from dataclasses import replace
from typing import Any

from trainers.bare_loop import mixed_batch, told

from dreamgym_kit.turns import Batch, Sample


def rewarded_batch(step: int, *, episodes: int = 6) -> Batch:
    """What PPO learns from: a reward an episode, no advantages."""
    batch = mixed_batch(step, episodes=episodes)
    rows = [replace(row, advantage=0.0, reward=float(int(row.episode[1:]) % 3 == 0)) for row in batch.samples]
    return replace(batch, samples=tuple(rows))


def paired_batch(step: int, *, episodes: int = 6) -> Batch:
    """What DPO learns from: e0 better than e1, e2 than e3, ...; each with its forks."""
    batch = mixed_batch(step, episodes=episodes)
    rows = [
        replace(row, pair=f"p{int(row.episode[1:]) // 2}", advantage=1.0 - 2 * (int(row.episode[1:]) % 2))
        for row in batch.samples
    ]
    return replace(batch, samples=tuple(rows))


def success_batch(step: int) -> Batch:
    """What SFT learns from."""
    batch = mixed_batch(step)
    return replace(batch, samples=tuple(replace(row, advantage=0.0) for row in batch.samples))


def by_episode(batch: Batch, found: list[Any]) -> Any:
    """The mean over episodes of the mean over their sampled tokens; `found`: a tensor a row."""
    import torch

    episodes: dict[str, list[Any]] = {}
    for row, values in zip(batch.samples, found, strict=True):
        episodes.setdefault(row.episode, []).append(values[torch.tensor(row.mask, dtype=torch.bool)])
    return torch.stack([torch.cat(of).mean() for of in episodes.values()]).mean()


def success_loss(model: Any, batch: Batch) -> Any:
    return by_episode(batch, [-told(model, row)[0] for row in batch.samples])


def pair_loss(model: Any, start: Any, batch: Batch, *, beta: float) -> Any:
    import torch

    sides: dict[tuple[str, float], Any] = {}
    for row in batch.samples:
        own = torch.tensor(row.mask, dtype=torch.bool)
        with torch.no_grad():
            before = told(start, row)[0]
        moved = (told(model, row)[0] - before)[own].sum()
        side = (row.pair, row.advantage)
        sides[side] = sides[side] + moved if side in sides else moved
    pairs = sorted({pair for pair, _ in sides})
    margins = [beta * (sides[pair, 1.0] - sides[pair, -1.0]) for pair in pairs]
    return torch.stack([-torch.log(1 / (1 + torch.exp(-margin))) for margin in margins]).mean()


def values_of(model: Any, head: Any, row: Sample) -> Any:
    """What is expected before each token after the row's start."""
    import torch

    hidden = model.model(input_ids=torch.tensor([row.ids])).last_hidden_state[0]
    return head(hidden[row.start - 1 : -1])[:, 0]


def advantages_of(values: list[float], reward: float, discount: float, decay: float) -> list[float]:
    """The sum over later tokens of (discount * decay)^k times the surprise there."""
    rewards = [0.0] * (len(values) - 1) + [reward]
    after = [*values[1:], 0.0]
    surprises = [r + discount * v2 - v for r, v, v2 in zip(rewards, values, after, strict=True)]
    return [
        sum((discount * decay) ** (later - place) * surprises[later] for later in range(place, len(values)))
        for place in range(len(values))
    ]


def value_head_loss(
    model: Any, head: Any, batch: Batch, *, discount: float, decay: float, weight: float
) -> Any:
    """PPO's clipped loss with whitened advantages, and the squared error of the values."""
    import torch

    advantages, returns = [], []
    with torch.no_grad():
        for row in batch.samples:
            own = torch.tensor(row.mask, dtype=torch.bool)
            values = values_of(model, head, row)
            better = torch.zeros_like(values)
            better[own] = torch.tensor(
                advantages_of(values[own].tolist(), row.reward, discount, decay), dtype=values.dtype
            )
            advantages.append(better)
            returns.append(better + values)
        mean = by_episode(batch, advantages)
        deviation = (by_episode(batch, [one**2 for one in advantages]) - mean**2).sqrt()
    found = []
    for row, better, wanted in zip(batch.samples, advantages, returns, strict=True):
        better = (better - mean) / (deviation + 1e-4)
        ratio = (told(model, row)[0] - torch.tensor(row.logprobs, dtype=better.dtype)).exp()
        losses = -torch.min(ratio * better, ratio.clamp(0.8, 1.2) * better)
        found.append(losses + weight / 2 * (values_of(model, head, row) - wanted) ** 2)
    return by_episode(batch, found)
