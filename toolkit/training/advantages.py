"""How much better an episode did than its siblings: the signal of GRPO (arXiv 2402.03300)."""

from collections.abc import Sequence
from math import fsum, isfinite, sqrt


def group_advantages(rewards: Sequence[float], *, epsilon: float = 1e-4) -> list[float]:
    """Say how much better each episode did than its siblings.

    `A_i = (r_i - mean(r)) / (std(r) + epsilon)`, population std (GRPO, arXiv 2402.03300).

    Args:
        rewards: one finite reward per episode of one group, shape [G], G >= 2.
        epsilon: in reward units; a group whose rewards barely differ gets barely any signal.

    Returns:
        Advantages, shape [G], no unit, in the order given, summing to zero. All zero when
        the rewards are equal: a dead group teaches nothing, and the caller counts it.

    Raises:
        ValueError: fewer than two rewards (an episode has no siblings to be compared with), or one that
            is no finite number.
    """
    if len(rewards) < 2:
        raise ValueError("an advantage needs siblings: two rewards or more")
    if not all(isfinite(reward) for reward in rewards):
        raise ValueError("a reward is a finite number")
    if dead(rewards):
        return [0.0] * len(rewards)
    mean = fsum(rewards) / len(rewards)
    std = sqrt(fsum((reward - mean) ** 2 for reward in rewards) / len(rewards))
    return [(reward - mean) / (std + epsilon) for reward in rewards]


def dead(rewards: Sequence[float]) -> bool:
    """Whether a group has no spread: all did equally well, so none shows the others anything."""
    return min(rewards) == max(rewards)
