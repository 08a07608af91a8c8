"""What was better than expected, token by token: generalised advantage estimation (arXiv 1506.02438)."""

from collections.abc import Sequence


def generalised_advantages(
    values: Sequence[float], reward: float, *, discount: float = 1.0, decay: float = 1.0
) -> list[float]:
    """Say how much better each token of one sample turned out than its value had told.

    `d_t = r_t + discount * V_{t+1} - V_t`, `A_t = d_t + discount * decay * A_{t+1}`, with V = 0 after the
    last token and the whole reward given with it. With a decay of 1 (and no discount) `A_t = reward - V_t`,
    which any values leave unbiased; with 0 only the next value counts. `A_t + V_t` is what V should have
    told.

    Args:
        values: what was expected before each sampled token, shape [T], in units of reward.
        reward: of the episode, which every one of its samples ends with.
        discount: gamma, 0..1, a token.
        decay: lambda, 0..1, a token.

    Returns:
        Advantages, shape [T].
    """
    found = [0.0] * len(values)
    later, following = 0.0, 0.0  # A and V of the token after
    for place in range(len(values) - 1, -1, -1):
        given = reward if place == len(values) - 1 else 0.0
        surprise = given + discount * following - values[place]
        later = surprise + discount * decay * later
        found[place], following = later, values[place]
    return found
