"""What a training step costs beside the least it could: the update against a bare PyTorch loop."""

from update_cost import update_ratio


def measure(seed: int) -> list[tuple[str, float, str]]:
    """Figures for the bench runner."""
    return _figures(*update_ratio(seed))


def quick(seed: int) -> list[tuple[str, float, str]]:
    """The same with fewer episodes and steps."""
    return _figures(*update_ratio(seed, episodes=48, rounds=5))


def _figures(ratio: float, seconds: float) -> list[tuple[str, float, str]]:
    return [("update_ratio", round(ratio, 3), "x bare"), ("update_cpu", round(seconds, 2), "s")]
