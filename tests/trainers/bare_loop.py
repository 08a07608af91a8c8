"""What an update must come to, by hand: every row alone, without padding, in the plainest PyTorch."""

import random
from collections.abc import Sequence
from typing import Any

from dreamgym_kit.turns import Batch, Sample


def mixed_batch(step: int, *, seed: int = 0, episodes: int = 5, version: str | None = None) -> Batch:
    """Episodes of 1 to 4 samples (forks), each of 1 to 3 turns, prompts of several lengths, weights apart."""
    chance = random.Random(f"{seed}:{step}")
    rows: list[Sample] = []
    for episode in range(episodes):
        advantage = chance.gauss(0, 1)
        of_episode = []
        for fork in range(1 + episode % 4):
            start = chance.randint(3, 12)
            mask: list[int] = []
            for _ in range(chance.randint(1, 3)):
                mask += [1] * chance.randint(2, 6) + [0] * chance.randint(1, 4)
            of_episode.append(
                Sample(
                    episode=f"e{episode}",
                    ids=tuple(chance.randint(3, 42) for _ in range(start + len(mask))),
                    start=start,
                    mask=tuple(mask),
                    logprobs=tuple(-3.7 + chance.gauss(0, 0.2) if own else 0.0 for own in mask),
                    turns=(fork,),
                    versions=(version or f"step-{step - 1:06d}",),
                    advantage=advantage,
                )
            )
        rows += of_episode
    return Batch(step, tuple(weighed(rows)), {"success": 0.5})


def weighed(rows: Sequence[Sample]) -> list[Sample]:
    """Every episode the same: T / (E * n_e) for each of its tokens."""
    from dataclasses import replace

    of_episode: dict[str, int] = {}
    for row in rows:
        of_episode[row.episode] = of_episode.get(row.episode, 0) + row.trained
    total = sum(of_episode.values())
    return [replace(row, weight=total / (len(of_episode) * of_episode[row.episode])) for row in rows]


def told(model: Any, row: Sample) -> Any:
    """Log-probs of what follows the row's start, and their entropies."""
    import torch

    every = model(input_ids=torch.tensor([row.ids])).logits[0].log_softmax(-1)[row.start - 1 : -1]
    chosen = every.gather(1, torch.tensor(row.ids)[row.start :, None])[:, 0]
    return chosen, -(every.exp() * every).sum(-1)


def episode_mean_loss(
    model: Any, batch: Batch, *, clip: float = 0.2, beta: float = 0.0, start: Any = None
) -> Any:
    """The mean over episodes of the mean over their tokens of the clipped loss."""
    import torch

    per_episode: dict[str, list[Any]] = {}
    for row in batch.samples:
        logps, _ = told(model, row)
        ratio = (logps - torch.tensor(row.logprobs, dtype=logps.dtype)).exp()
        losses = -torch.min(ratio * row.advantage, ratio.clamp(1 - clip, 1 + clip) * row.advantage)
        if beta:
            with torch.no_grad():
                reference, _ = told(start, row)
            losses = losses + beta * ((reference - logps).exp() - (reference - logps) - 1) * ratio
        per_episode.setdefault(row.episode, []).append(losses[torch.tensor(row.mask, dtype=torch.bool)])
    return torch.stack([torch.cat(of).mean() for of in per_episode.values()]).mean()


def step_by_hand(model: Any, optimizer: Any, loss: Any, *, max_grad_norm: float = 1.0) -> None:
    """One optimiser step."""
    import torch

    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
    optimizer.step()


def furthest(one: Any, other: Any) -> float:
    """Largest difference of a parameter between two models."""
    theirs = dict(other.state_dict())
    return max(
        float((tensor.double() - theirs[name].double()).abs().max())
        for name, tensor in one.state_dict().items()
    )
