"""Who learns by which algorithm. Imported only where TRL is there."""

from dreamgym_kit.adapters.trainers.dpo import KitDpo
from dreamgym_kit.adapters.trainers.grpo import KitGrpo
from dreamgym_kit.adapters.trainers.ppo import KitPpo
from dreamgym_kit.adapters.trainers.successes import KitSft

_LEARNERS = {"grpo": KitGrpo, "ppo": KitPpo, "dpo": KitDpo, "sft": KitSft}


def learner_of(algorithm: str) -> type[KitGrpo]:
    """The trainer of an algorithm that `GrpoOptions.check` has let pass."""
    return _LEARNERS[algorithm]
