"""What each algorithm learns from: which episodes of a group, and what their samples are told.

    grpo  all decided siblings of a group whose rewards differ: how much better each did than the others
    ppo   every decided episode: its reward; what was to be expected of it is told by the value head
    dpo   pairs of siblings, the better one and the worse one: the best with the worst, the second best with
          the second worst, ...
    sft   the episodes that succeeded: do it again

Inconclusive episodes are in none of them. How the weights follow from it is the trainer's.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dreamgym_kit.training.advantages import dead, group_advantages
from dreamgym_kit.turns import Sample

GRPO, PPO, DPO, SFT = "grpo", "ppo", "dpo", "sft"
COMPARED = frozenset({GRPO, DPO})
"""Algorithms to which an episode says something only beside its siblings."""
BY_RATIO = frozenset({GRPO, PPO})
"""Algorithms that weigh a sample by how likely the policy still is to sample it."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A decided episode and what of it can be learned from."""

    reward: float
    success: bool
    samples: Sequence[Sample]  # with sampled tokens; none: it is only compared with


def lessons_of(
    algorithm: str, group: str, decided: Sequence[Judged], *, pairs: int = 1
) -> list[list[Sample]]:
    """The samples to learn from, episode by episode; none where a group teaches this algorithm nothing.

    Args:
        algorithm: one of those above.
        group: names the group; a pair is named after it.
        decided: the group's decided episodes, in their order.
        pairs: "dpo": most pairs of one group.
    """
    if algorithm == PPO:
        told = [[replace(row, reward=one.reward) for row in one.samples] for one in decided]
    elif algorithm == SFT:
        told = [list(one.samples) for one in decided if one.success]
    elif len(decided) < 2 or dead([one.reward for one in decided]):
        return []
    elif algorithm == DPO:
        told = _paired(group, [one for one in decided if one.samples], pairs)
    else:
        advantages = group_advantages([one.reward for one in decided])
        told = [
            [replace(row, advantage=advantage) for row in one.samples]
            for advantage, one in zip(advantages, decided, strict=True)
        ]
    return [samples for samples in told if samples]


def _paired(group: str, decided: Sequence[Judged], most: int) -> list[list[Sample]]:
    """The better episode of each pair, then the worse one; advantages of 1 and -1 say which is which."""
    ranked = sorted(decided, key=lambda one: -one.reward)  # equal ones stay in their order
    told: list[list[Sample]] = []
    for number in range(min(most, len(ranked) // 2)):
        better, worse = ranked[number], ranked[-1 - number]
        if better.reward <= worse.reward:
            break
        for one, side in ((better, 1.0), (worse, -1.0)):
            told.append([replace(row, pair=f"{group}#{number}", advantage=side) for row in one.samples])
    return told
