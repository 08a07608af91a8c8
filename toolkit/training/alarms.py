"""Alarms: signs that what is being learned cannot be trusted. Each ends the run at its last good checkpoint.

    not_finite       a reward, loss, gradient, KL or entropy that is no number
    logprobs         log-probs of the sampler and the trainer differ, though their weights are the same
    stale_weights    after a sync the server does not score as the trainer does
    tokenizer        the server's token ids of a known text are not those of the trained model's tokenizer
    kl               the policy moved too far in one update
    entropy          the policy's entropy left its corridor around that of the first steps
    no_signal        draw after draw every group was dead, or nothing could be decided
    judges_disagree  checker and judging model differ about too many episodes
    reward_gap       the judging model finds more and more success that the checker does not (reward hacking)
    server           the policy's server is gone
    executed         a real call was executed where none may run; exit code 6

Decides what is an alarm from figures alone; who reads the figures, and when, is the loop's.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum, isfinite, sqrt
from statistics import NormalDist

from dreamgym_kit.chat import ChatMessage, ChatRequest
from dreamgym_kit.errors import TrainingStopped
from dreamgym_kit.interfaces import Group, PolicyServer
from dreamgym_kit.settings.schema import AlarmSettings
from dreamgym_kit.training.batching import StepFacts
from dreamgym_kit.training.records import StepRecord
from dreamgym_kit.training.samples import COMPARED, SFT
from dreamgym_kit.turns import Batch, UpdateFacts

NOT_FINITE, LOGPROBS, STALE_WEIGHTS, TOKENIZER = "not_finite", "logprobs", "stale_weights", "tokenizer"
KL, ENTROPY, NO_SIGNAL = "kl", "entropy", "no_signal"
JUDGES_DISAGREE, REWARD_GAP, SERVER = "judges_disagree", "reward_gap", "server"
EXECUTED = "executed"

REFERENCE_STEPS = 3  # the first steps, whose mean entropy the corridor stands around
_TREND_STEPS = 12  # that the trend of the gap is looked for in
_TREND_P = 1e-3  # one-sided; tried at each step, so far below what one test would need
_REASON_MOST = 300  # characters
_MIN_JUDGED = 20  # episodes; with fewer a share says nothing
CANARIES = 4  # samples of a batch that server and trainer both score: what was learned from moved the most
CANARY_TOKENS = 128  # of each, after its prompt
KNOWN_TEXT = (
    ChatMessage("user", 'Canary 7: order O10-12, refund 19.90 EUR to Ana. \u00e4\u00f6 \u4f60 {"a": [1, 2]}'),
)
"""What server and tokenizer are both asked to turn into ids."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """What was seen, with its figures, in one sentence."""

    name: str
    text: str

    def stop(self, step: int) -> TrainingStopped:
        """The error that ends the training before `step` is kept."""
        return TrainingStopped(self.name, self.text, step=step)


def alarm_of_update(
    update: UpdateFacts, earlier: Sequence[StepRecord], bounds: AlarmSettings
) -> Alarm | None:
    """Look at what one optimiser step reported."""
    for name in ("loss", "grad_norm", "entropy", "kl"):
        value = getattr(update, name)
        if not isfinite(value):
            return Alarm(NOT_FINITE, f"the update's {name.replace('_', ' ')} is {value}")
    if update.logprob_gap > bounds.logprobs:  # nan (other weights by now) is not above anything
        return logprobs_alarm(update.logprob_gap, "the trainer", bounds)
    if abs(update.kl) > bounds.max_kl:
        return Alarm(
            KL, f"one update moved the policy by {update.kl:.3g} nats a token (most {bounds.max_kl:g})"
        )
    return _entropy(update.entropy, earlier, bounds)


def logprobs_alarm(gap: float, scorer: str, bounds: AlarmSettings) -> Alarm:
    """What was sampled does not have the log-probs that it was sampled with."""
    return Alarm(
        LOGPROBS,
        f"a token's log-prob was {gap:.3g} nats from what {scorer} gives it under the same weights "
        f"(most {bounds.logprobs:g}): other tokens, temperature or weights than it thinks",
    )


def _entropy(entropy: float, earlier: Sequence[StepRecord], bounds: AlarmSettings) -> Alarm | None:
    first = [step.entropy for step in earlier[:REFERENCE_STEPS] if step.entropy is not None]
    if len(first) < REFERENCE_STEPS:
        return None
    reference = fsum(first) / len(first)
    low, high = bounds.entropy_low * reference, bounds.entropy_high * reference
    if low <= entropy <= high:
        return None
    way = "collapsed to" if entropy < low else "grew to"
    return Alarm(
        ENTROPY,
        f"entropy {way} {entropy:.3g} nats a token; it began at {reference:.3g} and may lie between "
        f"{low:.3g} and {high:.3g}",
    )


def no_signal(facts: StepFacts, draws: int, algorithm: str, groups: Sequence[Group]) -> Alarm:
    """Draw after draw nothing could be learned; `facts` and `groups` are the last one's."""
    return Alarm(NO_SIGNAL, _no_signal(facts, draws, algorithm) + _most_often(groups))


def _most_often(groups: Sequence[Group]) -> str:
    """Why most of the inconclusive episodes are that, in words; "" where none is."""
    reasons = Counter(
        rollout.episode.reason or rollout.episode.stop
        for group in groups
        for rollout in group.rollouts
        if not rollout.episode.verdict.conclusive
    )
    if not reasons:
        return ""
    reason, times = reasons.most_common(1)[0]
    return f" (inconclusive, {times} times: {reason[:_REASON_MOST]})"


def _no_signal(facts: StepFacts, draws: int, algorithm: str) -> str:
    if algorithm not in COMPARED:
        wanted = "that succeeded" if algorithm == SFT and facts.decided else "that could be judged"
        return (
            f"{draws} draws of tasks in a row without an episode {wanted} (of the last one's "
            f"{facts.episodes} {facts.inconclusive} are inconclusive): nothing can be learned from them"
        )
    if facts.small == facts.groups:
        return (
            f"{draws} draws of tasks in a row: of the last one's {facts.episodes} episodes "
            f"{facts.inconclusive} are inconclusive, and no group has two that could be judged"
        )
    left = f", {facts.left_out} of tasks that may be impossible" if facts.left_out else ""
    return (
        f"{draws} draws of tasks in a row without a group whose episodes differ in reward "
        f"({facts.dead} dead groups in the last, {facts.small} too small{left}): nothing can be learned from "
        "them"
    )


def alarm_of_judges(steps: Sequence[StepFacts], bounds: AlarmSettings) -> Alarm | None:
    """Hold the judging model's word against the checker's, over the last steps.

    `steps`: what the episodes came to, step by step, the one that would be learned from last.
    """
    recent = steps[-_TREND_STEPS:]
    judged, disagreed = 0, 0
    for step in reversed(recent):
        judged, disagreed = judged + step.judged_twice, disagreed + step.disagreed
        if judged >= _MIN_JUDGED:
            break
    if judged >= _MIN_JUDGED and disagreed / judged > bounds.judges_disagree:
        return Alarm(
            JUDGES_DISAGREE,
            f"checker and judging model differ about {disagreed} of the last {judged} episodes "
            f"(most {bounds.judges_disagree:.0%}): the reward is not what it seems",
        )
    return _growing_gap(recent, bounds)


def _growing_gap(recent: Sequence[StepFacts], bounds: AlarmSettings) -> Alarm | None:
    gaps = [gap_of(step) for step in recent]
    known_gaps = [gap for gap in gaps if gap is not None]
    if len(known_gaps) < _TREND_STEPS:
        return None
    half = len(known_gaps) // 2
    before, now = fsum(known_gaps[:half]) / half, fsum(known_gaps[-half:]) / half
    if now - before > bounds.reward_gap and rising(known_gaps) < _TREND_P:
        return Alarm(
            REWARD_GAP,
            f"in the last {len(known_gaps)} steps the judge's success went from {before:+.0%} to {now:+.0%} "
            "of the checker's: the policy learns to please the judge",
        )
    return None


def gap_of(facts: StepFacts) -> float | None:
    """How much more success the judging model sees than the checker, in shares; None: not judged twice."""
    return (facts.judge_success - facts.checker_success) / facts.judged_twice if facts.judged_twice else None


def rising(values: Sequence[float]) -> float:
    """One-sided p of "no upward trend" (Mann 1945, Kendall 1975; normal approximation, ties counted)."""
    number = len(values)
    score = sum(
        (values[later] > values[first]) - (values[later] < values[first])
        for first in range(number)
        for later in range(first + 1, number)
    )
    ties = [values.count(value) for value in set(values)]
    spread = number * (number - 1) * (2 * number + 5) - sum(tie * (tie - 1) * (2 * tie + 5) for tie in ties)
    if spread <= 0 or score <= 0:
        return 1.0
    return 1 - NormalDist().cdf((score - 1) / sqrt(spread / 18))


def canaries_of(batch: Batch) -> list[list[int]]:
    """The first samples of a batch, cut short."""
    return [list(sample.ids[: sample.start + CANARY_TOKENS]) for sample in batch.samples[:CANARIES]]


def sampling_gap(batch: Batch, scored: Sequence[Sequence[float]]) -> float:
    """Largest difference between the log-probs of a batch's canaries as sampled, and as scored; nats."""
    gaps = [0.0]
    for sample, row in zip(batch.samples, scored, strict=False):
        first = sample.start - 1  # `row[i]` is that of `ids[i + 1]`
        for own, sampled, now in zip(sample.mask, sample.logprobs, row[first:], strict=False):
            if own:
                gaps.append(abs(now - sampled))
    return max(gaps, key=lambda gap: gap if isfinite(gap) else float("inf"))


async def known_text_alarm(policy: PolicyServer, expected: Sequence[int]) -> Alarm | None:
    """Ask the server for the ids of a known text and hold them against those that it must have."""
    reply = await policy.chat(ChatRequest(KNOWN_TEXT, exact=True, max_tokens=1, temperature=0.0))
    given = reply.tokens.prompt_ids if reply.tokens is not None else ()
    if tuple(given) == tuple(expected):
        return None
    place = next(
        (at for at, pair in enumerate(zip(given, expected, strict=False)) if pair[0] != pair[1]), None
    )
    where = (
        f"differ from token {place + 1}" if place is not None else f"are {len(given)}, not {len(expected)}"
    )
    return Alarm(
        TOKENIZER,
        f"the server's ids of a known text {where}: its tokenizer or chat template is not that of the "
        "model that is trained",
    )


def version_alarm(policy: PolicyServer, version: str) -> Alarm | None:
    """The server's own word on what it serves."""
    if policy.version == version:
        return None
    return Alarm(STALE_WEIGHTS, f"the server says that it serves {policy.version!a}, not {version!a}")
