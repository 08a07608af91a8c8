"""Rollouts that were sampled before the last update: how old they are, and what they may then count.

One update behind, the sampler's log-probs are the denominator of PPO's ratio, and its clip bounds what an
old sample can do. Further behind, a sample that the policy would hardly take any more says little of it: it
is weighed down by the truncated importance weight min(1, pi_now / pi_sampled), as the geometric mean over
its tokens (the product over a whole episode would be 0 or enormous). See IMPALA, arXiv 1802.01561, for the
truncation; GSPO, arXiv 2507.18071, for the mean.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import exp, fsum

from dreamgym_kit.turns import Batch, Sample

_PREFIX = "step-"


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
