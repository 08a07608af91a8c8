"""What nano models are and how they are taught: plain settings, free of torch.

The defaults are what trials on the desk found to work: ids and names weigh four times as much as the
agent's other tokens (copying is what so small a model forgets first), what it is told counts a tenth, and
some rows are repetitions to be copied.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shape:
    """How large a nano model is."""

    width: int = 96
    layers: int = 3
    heads: int = 4
    kv_heads: int = 2
    head_width: int = 32
    inner: int = 192


@dataclass(frozen=True, slots=True)
class Schedule:
    """How a model is taught."""

    steps: int = 800
    rows: int = 32  # in a step
    rate: float = 2.5e-3  # learning rate at its height
    warm_up: int = 20  # steps
    final_rate: float = 0.05  # of `rate`, at the end of the linear decay


@dataclass(frozen=True, slots=True)
class Lessons(Schedule):
    """How a policy is taught."""

    steps: int = 2000
    rows: int = 10  # many small steps learn more than few large ones
    rate: float = 2e-3
    warm_up: int = 30
    seniors_first: float = 0.5  # of all steps: only work of seniors is read, then everybody's
    copied_weight: float = 4.0  # of ids and names that the agent says; its other tokens weigh 1
    deciding_weight: float = 3.0  # of the first token of each turn and of the tools it names
    told_weight: float = 0.1  # of what it is told
    repetitions: float = 0.15  # of all rows: sequences to be copied


@dataclass(frozen=True, slots=True)
class Progress:
    """One step, as it went."""

    step: int  # 1-based
    loss: float
    accuracy: float  # of the agent's tokens, the likeliest taken
    cpu_s: float  # since the beginning
