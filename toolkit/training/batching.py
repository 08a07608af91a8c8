"""From a step's groups to its batch: who is learned from, with what advantage, and with what weight.

Only decided episodes are compared (an inconclusive one is neither good nor bad); a group that is left with
fewer than two of them, or whose rewards are all equal, has nothing to compare and is counted. What an
algorithm makes of a group is said in `samples`. Every episode that is learned from weighs the same in the
loss, however many tokens and samples it has: each of its tokens gets `T / (E * n)`, with T tokens and E
episodes in the batch and n tokens of its own.
"""

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import exp, fsum, isfinite

from dreamgym_kit.codec import IF_SET
from dreamgym_kit.errors import TrainingStopped
from dreamgym_kit.interfaces import Group
from dreamgym_kit.training.samples import GRPO, Judged, dead, lessons_of, merge
from dreamgym_kit.turns import Batch, Sample
from dreamgym_kit.types import Episode, Source, Verdict

_PREFIX = "step-"  # of the names of weights
AGREE, DISAGREE = "judges_agree", "judges_disagree"  # what an episode counts where two judged it


@dataclass(frozen=True, slots=True)
class StepFacts:
    """What a step's episodes came to, before anything is learned from them."""

    groups: int = 0
    dead: int = 0  # groups whose decided rewards are all equal
    small: int = 0  # groups with fewer than two decided episodes
    left_out: int = 0  # groups that would teach, and that the curriculum leaves out
    episodes: int = 0
    inconclusive: int = 0
    success: int = 0
    reward: float | None = None  # mean over decided episodes; None: none was decided
    judged_twice: int = 0  # episodes that checker and model judged
    disagreed: int = 0  # of these
    judge_success: int = 0  # of these, by the model's word
    checker_success: int = 0  # of these, by the checker's
    calls: int = 0  # tool calls
    imagined: int = field(default=0, metadata=IF_SET)  # decided episodes that rest on imagined answers
    turns: int = 0  # model calls that the policy answered
    unfit: Mapping[str, int] = field(default_factory=dict)  # why -> turns that must not be trained on
    forks: int = 0  # turns that did not extend the one before
    samples: int = 0  # in the batch
    tokens: int = 0  # trained on

    @property
    def decided(self) -> int:
        """Episodes that were judged."""
        return self.episodes - self.inconclusive

    @property
    def share(self) -> float | None:
        """0..1 of the decided episodes that succeeded; None: none was decided."""
        return self.success / self.decided if self.decided else None


def batch_of(
    step: int,
    groups: Sequence[Group],
    *,
    algorithm: str = GRPO,
    pairs: int = 1,
    left_out: Container[str] = (),
) -> tuple[Batch, StepFacts]:
    """Give what a step learns from, and what its episodes came to; no samples where nothing can be learned.

    `pairs`: of one group at most, where it learns from pairs. `left_out`: tasks whose groups are counted and
    not learned from.

    Raises:
        TrainingStopped: a reward is no finite number.
    """
    facts, unfit, turns, forks = _facts(step, groups), Counter[str](), 0, 0
    rows: list[list[Sample]] = []
    for place, group in enumerate(groups):
        decided: list[Judged] = []
        for rollout in group.rollouts:
            samples, left_behind = merge(rollout.turns)
            unfit, turns = unfit + left_behind, turns + len(rollout.turns)
            forks += max(0, len(samples) - 1)
            if rollout.episode.verdict.conclusive:
                passed = rollout.episode.verdict is Verdict.PASSED
                trained = [sample for sample in samples if sample.trained]
                decided.append(Judged(reward_of(rollout.episode), passed, trained))
        rewards = [judged.reward for judged in decided]
        if len(rewards) < 2:
            facts = replace(facts, small=facts.small + 1)
        elif dead(rewards):
            facts = replace(facts, dead=facts.dead + 1)
        taught = lessons_of(algorithm, f"{place}:{group.task}", decided, pairs=pairs)
        if taught and group.task in left_out:
            facts = replace(facts, left_out=facts.left_out + 1)
        else:
            rows += taught
    learned = _weighed(rows)
    facts = replace(
        facts,
        turns=turns,
        unfit=dict(unfit),
        forks=forks,
        samples=len(learned),
        tokens=sum(sample.trained for sample in learned),
    )
    return Batch(step=step, samples=learned, facts=_for_logs(facts)), facts


def reward_of(episode: Episode) -> float:
    """What a decided episode is worth: its reward where it has one, else 1 for success."""
    if episode.reward is not None:
        return episode.reward
    return float(episode.verdict is Verdict.PASSED)


def _weighed(episodes: Sequence[Sequence[Sample]]) -> tuple[Sample, ...]:
    """The samples of each episode with the weight that makes episodes count alike."""
    tokens = [sum(sample.trained for sample in samples) for samples in episodes]
    total = sum(tokens)
    return tuple(
        replace(sample, weight=total / (len(episodes) * own))
        for samples, own in zip(episodes, tokens, strict=True)
        for sample in samples
    )


def _facts(step: int, groups: Iterable[Group]) -> StepFacts:
    groups = list(groups)
    episodes = [rollout.episode for group in groups for rollout in group.rollouts]
    decided = [episode for episode in episodes if episode.verdict.conclusive]
    rewards = [reward_of(episode) for episode in decided]
    for episode, reward in zip(decided, rewards, strict=True):
        if not isfinite(reward):
            raise TrainingStopped("not_finite", f"the reward of {episode.id} is {reward}", step=step)
    twice = [episode for episode in decided if episode.counts.get(AGREE) or episode.counts.get(DISAGREE)]
    disagreed = {episode.id for episode in twice if episode.counts.get(DISAGREE)}
    won = [episode for episode in twice if episode.verdict is Verdict.PASSED]
    return StepFacts(
        groups=len(groups),
        episodes=len(episodes),
        inconclusive=len(episodes) - len(decided),
        success=sum(episode.verdict is Verdict.PASSED for episode in decided),
        reward=fsum(rewards) / len(rewards) if rewards else None,
        judged_twice=len(twice),
        disagreed=len(disagreed),
        judge_success=sum((judged.verdict is Verdict.PASSED) != (judged.id in disagreed) for judged in twice),
        checker_success=len(won),
        calls=sum(len(episode.transitions) for episode in episodes),
        imagined=sum(
            any(step.answer.source is Source.IMAGINED for step in episode.transitions) for episode in decided
        ),
    )


def _for_logs(facts: StepFacts) -> dict[str, float]:
    """What any logger of the trainer should show beside its own figures."""
    logged = {
        "dream_reward": facts.reward,
        "inconclusive": float(facts.inconclusive),
        "dead_groups": float(facts.dead),
        "forks": float(facts.forks),
        "unfit_turns": float(sum(facts.unfit.values())),
        "tokens": float(facts.tokens),
        "dream_success": facts.share,
    }
    return {name: value for name, value in logged.items() if value is not None}


def version_of(step: int) -> str:
    """How the weights after `step` updates are called."""
    return f"{_PREFIX}{step:06d}"


def staleness_of(batch: Batch) -> int:
    """Updates between the oldest weights that sampled the batch and those that it changes; 0: none."""
    steps = [
        int(version.removeprefix(_PREFIX))
        for sample in batch.samples
        for version in sample.versions
        if version.startswith(_PREFIX)
    ]
    return max(0, batch.step - 1 - min(steps)) if steps else 0


def corrected(batch: Batch, now: Sequence[Sequence[float]]) -> Batch:
    """The batch with each sample weighed by how likely the policy would still sample it.

    One update behind, the sampler's log-probs are the denominator of PPO's ratio, and its clip bounds what an
    old sample can do. Further behind, a sample is weighed down by the truncated importance weight
    min(1, pi_now / pi_sampled), as the geometric mean over its tokens (the product over a whole episode would
    be 0 or enormous): IMPALA, arXiv 1802.01561, for the truncation; GSPO, arXiv 2507.18071, for the mean.

    Args:
        batch: sampled more than one update ago.
        now: natural log-prob of each id after the first, by the weights that it will change; a row a sample.
    """
    samples = tuple(
        replace(sample, weight=sample.weight * _truncated(sample, row))
        for sample, row in zip(batch.samples, now, strict=True)
    )
    return replace(batch, samples=samples)


def _truncated(sample: Sample, now: Sequence[float]) -> float:
    """`now[i]` is the log-prob of `ids[i + 1]`."""
    moved = [
        now[sample.start + place - 1] - sampled
        for place, (sampled, own) in enumerate(zip(sample.logprobs, sample.mask, strict=True))
        if own
    ]
    return min(1.0, exp(fsum(moved) / len(moved))) if moved else 1.0
