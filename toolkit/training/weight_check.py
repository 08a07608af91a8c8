"""Proof that the server answers with the weights that the trainer has: both score the same canary tokens.

A server that missed a sync, or got half of it, still answers, and nothing in its answers says so. The
canaries are tokens that the last update learned from: those moved the most. The server is held against the
trainer as it is now, and against the trainer as it was: scores nearer to the old weights are stale ones,
however small the step was.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum, isfinite

from dreamgym_kit.chat import ChatMessage, ChatRequest
from dreamgym_kit.interfaces import PolicyServer
from dreamgym_kit.training.alarms import STALE_WEIGHTS, TOKENIZER, Alarm
from dreamgym_kit.turns import Batch

CANARIES = 4  # samples
CANARY_TOKENS = 128  # of each, after its prompt
_MOVED = 1e-5  # nats a token: below it old and new weights cannot be told apart in float32

Scores = Sequence[Sequence[float]]

KNOWN_TEXT = (
    ChatMessage("user", 'Canary 7: order O10-12, refund 19.90 EUR to Ana. \u00e4\u00f6 \u4f60 {"a": [1, 2]}'),
)
"""What server and tokenizer are both asked to turn into ids."""


@dataclass(frozen=True, slots=True)
class Attested:
    """How far the server's scores are from the trainer's."""

    gap: float  # nats, the largest over all canary tokens
    alarm: Alarm | None = None


def canaries_of(batch: Batch) -> list[list[int]]:
    """The first samples of a batch, cut short."""
    return [list(sample.ids[: sample.start + CANARY_TOKENS]) for sample in batch.samples[:CANARIES]]


def attest(server: Scores, now: Scores, before: Scores | None, *, most: float) -> Attested:
    """Compare the scores that a server gives with the trainer's.

    Args:
        server: log-probs of the canaries by the server, after the sync; one row a canary.
        now: by the trainer, after its update.
        before: by the trainer, before its update; None where there was none.
        most: nats that the largest difference may have.
    """
    gap = _largest(server, now)
    if gap is None:
        return Attested(
            float("inf"), Alarm(STALE_WEIGHTS, "the server scored another number of canary tokens")
        )
    if gap > most or not isfinite(gap):
        text = (
            f"the server's log-probs of canary tokens are {gap:.3g} nats from the trainer's (most {most:g})"
        )
        return Attested(gap, Alarm(STALE_WEIGHTS, f"{text}: it does not serve the weights of this step"))
    moved = before is not None and _mean(now, before) > _MOVED
    if before is not None and moved and _mean(server, before) < _mean(server, now) / 2:
        text = "the server's log-probs of canary tokens are those of the weights before the update"
        return Attested(gap, Alarm(STALE_WEIGHTS, f"{text}: the sync did not reach it"))
    return Attested(gap)


def sampling_gap(batch: Batch, scored: Scores) -> float:
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


def _largest(first: Scores, second: Scores) -> float | None:
    """None where they are not of the same shape; infinite where a score is no number."""
    if [len(row) for row in first] != [len(row) for row in second]:
        return None
    differences = [abs(a - b) for a, b in _pairs(first, second)]
    if not all(isfinite(difference) for difference in differences):
        return float("inf")
    return max(differences, default=0.0)


def _mean(first: Scores, second: Scores) -> float:
    differences = [abs(a - b) for a, b in _pairs(first, second)]
    return fsum(differences) / max(len(differences), 1)


def _pairs(first: Scores, second: Scores) -> list[tuple[float, float]]:
    return [pair for a, b in zip(first, second, strict=True) for pair in zip(a, b, strict=True)]
