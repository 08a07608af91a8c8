"""What a training step costs beside the least it could: its episodes without a framework, its update bare."""

from rollout_cost import NoWeights, rollout_costs
from update_cost import update_ratio


def measure(seed: int) -> list[tuple[str, float, str]]:
    """Figures for the bench runner."""
    return [*rollout_costs(seed), *_figures(*update_ratio(seed))]


def quick(seed: int) -> list[tuple[str, float, str]]:
    """The same with fewer episodes and steps."""
    try:
        rollouts = rollout_costs(seed, rounds=1, tasks=4)
    except NoWeights:
        rollouts = []
    return [*rollouts, *_figures(*update_ratio(seed, episodes=48, rounds=5))]


def _figures(ratio: float, seconds: float) -> list[tuple[str, float, str]]:
    return [("update_ratio", round(ratio, 3), "x bare"), ("update_cpu", round(seconds, 2), "s")]
