"""How a nano experience model is taught: plain settings, free of torch."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Course:
    """How a model is taught."""

    steps: int = 800
    rows: int = 32  # in a step
    rate: float = 2.5e-3  # learning rate at its height
    warm_up: int = 20  # steps
    final_rate: float = 0.05  # of `rate`, at the end of the linear decay
