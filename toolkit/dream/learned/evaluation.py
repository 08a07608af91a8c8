"""Tries a learned model on recorded calls that it has not seen, beside what mined rules say of them.

Each call is asked in the state that the true answers before it led to, so a mistake is counted once. What
comes out calibrates the model's support and is what a person compares.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from dreamgym_kit.dream.learned.deciding import Decided
from dreamgym_kit.dream.learned.experience import LearnedExperience
from dreamgym_kit.dream.state.dreaming import Knowledge, Told, consider, follow
from dreamgym_kit.dream.state.history import OFF_RECORD, Recording, Step
from dreamgym_kit.dream.state.support import Calibration, Trial, calibrate
from dreamgym_kit.dream.state.values import spell
from dreamgym_kit.dream.state.views import State
from dreamgym_kit.dream.state.worlds import start


@dataclass(frozen=True, slots=True)
class Tried:
    """One recorded call, and what the two would have answered.

    Attributes:
        step: the call and its true answer.
        mined: the best that recordings and rules say, whatever its support; None where they say nothing.
        made: what the model decided, whatever its support; None where that came to nothing.
    """

    step: Step
    mined: Told | None
    made: Decided | None

    @property
    def mined_exact(self) -> bool:
        """Whether the mined answer is the true one."""
        return self.mined is not None and spell(self.mined.seen) == spell(self.step.seen)

    @property
    def made_exact(self) -> bool:
        """Whether the model's answer is the true one."""
        return self.made is not None and spell(self.made.seen) == spell(self.step.seen)


async def tried(
    model: LearnedExperience,
    knowledge: Knowledge,
    episodes: Iterable[Recording],
    *,
    unseen: bool = False,
) -> list[Tried]:
    """Ask every call of these episodes, in symbols for made-up ids; `unseen`: their worlds are unknown."""
    tries: list[Tried] = []
    for episode in episodes:
        state = (
            State({}, OFF_RECORD)
            if unseen
            else start(knowledge.pool, knowledge.models, episode.world, without=episode.id)
        )
        for step in episode.steps:
            options, _ = consider(knowledge, state, episode.world, step.tool, step.args)
            made = await model.decide(knowledge, state, step.tool, step.args, episode.world)
            tries.append(Tried(step, options[0] if options else None, made))
            state = follow(knowledge, state, step)
    return tries


def calibrated(tries: Iterable[Tried]) -> Calibration:
    """What a decision's probability is worth, by tool and by whether it says that the call went well."""
    return calibrate(
        [
            Trial(trial.step.tool, trial.made.basis, trial.made.probability, trial.made_exact)
            for trial in tries
            if trial.made is not None
        ]
    )
