"""From what a policy said in its turns to the rows that a trainer learns from.

A turn whose prompt begins with all of an earlier one, its answer included, goes on in that one's sample;
any other begins a sample of its own (a fork: the history was rewritten, tokenised otherwise, or two nodes
asked side by side). Token ids and log-probs are the sampler's, untouched. A turn that is not fit to be
learned from is left out and counted; where it became history, its tokens stand in later prompts anyway.

What each algorithm learns from: which episodes of a group, and what their samples are told of how good.

    grpo  all decided siblings of a group whose rewards differ: how much better each did than the others
    ppo   every decided episode: its reward; what was to be expected of it is told by the value head
    dpo   pairs of siblings, the better one and the worse one: the best with the worst, the second best with
          the second worst, ...
    sft   the episodes that succeeded: do it again

Inconclusive episodes are in none of them. How the weights follow from it is the trainer's.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import fsum, isfinite, sqrt

from dreamgym_kit.turns import Sample, Turn

ABORTED = "aborted by the server"
MISALIGNED = "token ids and log-probs differ in number"
NOT_FINITE = "log-probs that are no numbers"
NOTHING = "no token was sampled"
NO_PROMPT = "no prompt"

GRPO, PPO, DPO, SFT = "grpo", "ppo", "dpo", "sft"
COMPARED = frozenset({GRPO, DPO})
"""Algorithms to which an episode says something only beside its siblings."""
BY_RATIO = frozenset({GRPO, PPO})
"""Algorithms that weigh a sample by how likely the policy still is to sample it."""

_ROUNDING = 1e-4  # a log-prob is never above 0, but for the last bits of a float


def merge(turns: Iterable[Turn]) -> tuple[list[Sample], Counter[str]]:
    """Put the turns of an episode into samples, in the order of their first turns.

    Each sampled token of a fit turn is in one of them. In whatever order turns are given, they are taken by
    their index. The counter has why turns are not learned from, and how many.

    Raises:
        ValueError: two turns have the same index.
    """
    ordered = sorted(turns, key=lambda turn: turn.index)
    if len({turn.index for turn in ordered}) != len(ordered):
        raise ValueError(f"episode {ordered[0].episode!r} has two turns of the same index")
    samples: list[Sample] = []
    unfit = Counter[str]()
    for turn in ordered:
        if why := why_unfit(turn):
            unfit[why] += 1
            continue
        extended = [place for place, sample in enumerate(samples) if is_extended(sample, turn)]
        if extended:
            longest = max(extended, key=lambda place: len(samples[place].ids))
            samples[longest] = extend(samples[longest], turn)
        else:
            samples.append(first_sample(turn))
    return samples, unfit


def why_unfit(turn: Turn) -> str:
    """Why a turn must not be learned from; "" where it may."""
    if turn.unfit:
        return turn.unfit
    if turn.finish == "abort":
        return ABORTED
    if not turn.ids:
        return NOTHING
    if not turn.prompt_ids:
        return NO_PROMPT
    if len(turn.ids) != len(turn.logprobs):
        return MISALIGNED
    if not all(isfinite(logprob) and logprob <= _ROUNDING for logprob in turn.logprobs):
        return NOT_FINITE
    return ""


def is_extended(sample: Sample, turn: Turn) -> bool:
    """Whether a turn's prompt begins with all of a sample."""
    return turn.prompt_ids[: len(sample.ids)] == sample.ids


def first_sample(turn: Turn) -> Sample:
    """The sample that a turn begins."""
    return Sample(
        episode=turn.episode,
        ids=turn.prompt_ids + turn.ids,
        start=len(turn.prompt_ids),
        mask=(1,) * len(turn.ids),
        logprobs=turn.logprobs,
        turns=(turn.index,),
        versions=(turn.version,),
    )


def extend(sample: Sample, turn: Turn) -> Sample:
    """The sample with a turn that extends it."""
    given = len(turn.prompt_ids) - len(sample.ids)
    return replace(
        sample,
        ids=turn.prompt_ids + turn.ids,
        mask=sample.mask + (0,) * given + (1,) * len(turn.ids),
        logprobs=sample.logprobs + (0.0,) * given + turn.logprobs,
        turns=(*sample.turns, turn.index),
        versions=tuple(dict.fromkeys((*sample.versions, turn.version))),
    )


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

    `group` names the group, and a pair is named after it. `pairs`: "dpo": most pairs of one group.
    """
    if algorithm == PPO:
        lessons = [[replace(row, reward=judged.reward) for row in judged.samples] for judged in decided]
    elif algorithm == SFT:
        lessons = [list(judged.samples) for judged in decided if judged.success]
    elif len(decided) < 2 or dead([judged.reward for judged in decided]):
        return []
    elif algorithm == DPO:
        lessons = _paired(group, [judged for judged in decided if judged.samples], pairs)
    else:
        advantages = group_advantages([judged.reward for judged in decided])
        lessons = [
            [replace(row, advantage=advantage) for row in judged.samples]
            for advantage, judged in zip(advantages, decided, strict=True)
        ]
    return [samples for samples in lessons if samples]


def _paired(group: str, decided: Sequence[Judged], most: int) -> list[list[Sample]]:
    """The better episode of each pair, then the worse one; advantages of 1 and -1 say which is which."""
    ranked = sorted(decided, key=lambda judged: -judged.reward)  # equal ones stay in their order
    lessons: list[list[Sample]] = []
    for number in range(min(most, len(ranked) // 2)):
        better, worse = ranked[number], ranked[-1 - number]
        if better.reward <= worse.reward:
            break
        for judged, side in ((better, 1.0), (worse, -1.0)):
            lessons.append([replace(row, pair=f"{group}#{number}", advantage=side) for row in judged.samples])
    return lessons


def group_advantages(rewards: Sequence[float], *, epsilon: float = 1e-4) -> list[float]:
    """Say how much better each episode did than its siblings.

    `A_i = (r_i - mean(r)) / (std(r) + epsilon)`, population std (GRPO, arXiv 2402.03300).

    Args:
        rewards: one finite reward per episode of one group, shape [G], G >= 2.
        epsilon: in reward units; a group whose rewards barely differ gets barely any signal.

    Returns:
        Advantages, shape [G], no unit, in the order given, summing to zero. All zero when
        the rewards are equal: a dead group teaches nothing, and the caller counts it.

    Raises:
        ValueError: fewer than two rewards (an episode has no siblings to be compared with), or one that
            is no finite number.
    """
    if len(rewards) < 2:
        raise ValueError("an advantage needs repeats: two rewards or more")
    if not all(isfinite(reward) for reward in rewards):
        raise ValueError("a reward is a finite number")
    if dead(rewards):
        return [0.0] * len(rewards)
    mean = fsum(rewards) / len(rewards)
    std = sqrt(fsum((reward - mean) ** 2 for reward in rewards) / len(rewards))
    return [(reward - mean) / (std + epsilon) for reward in rewards]


def dead(rewards: Sequence[float]) -> bool:
    """Whether a group has no spread: all did equally well, so none shows the others anything."""
    return min(rewards) == max(rewards)


def generalised_advantages(
    values: Sequence[float], reward: float, *, discount: float = 1.0, decay: float = 1.0
) -> list[float]:
    """Say how much better each token turned out than its value had told (GAE, arXiv 1506.02438).

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
    advantages = [0.0] * len(values)
    later, following = 0.0, 0.0  # A and V of the token after
    for place in range(len(values) - 1, -1, -1):
        given = reward if place == len(values) - 1 else 0.0
        surprise = given + discount * following - values[place]
        later = surprise + discount * decay * later
        advantages[place], following = later, values[place]
    return advantages
