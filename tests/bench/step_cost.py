"""What a training step costs beside the least it could: the whole of it, and its update on its own."""

from update_cost import update_ratio
from whole_step import NoWeights, step_costs


def measure(seed: int) -> list[tuple[str, float, str]]:
    """Figures for the bench runner."""
    return [*step_costs(seed), *_figures(*update_ratio(seed))]


def quick(seed: int) -> list[tuple[str, float, str]]:
    """The same with fewer episodes."""
    try:
        whole = step_costs(seed, rounds=5, tasks=4)
    except NoWeights:
        whole = []
    return [*whole, *_figures(*update_ratio(seed, episodes=48, rounds=11))]


def _figures(ratio: float, seconds: float) -> list[tuple[str, float, str]]:
    return [("update_ratio", round(ratio, 3), "x bare"), ("update_cpu", round(seconds, 2), "s")]
