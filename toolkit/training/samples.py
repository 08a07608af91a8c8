"""From what a policy said in its turns to the rows that a trainer learns from.

A turn whose prompt begins with all of an earlier one, its answer included, goes on in that one's sample;
any other begins a sample of its own (a fork: the history was rewritten, tokenised otherwise, or two nodes
asked side by side). Token ids and log-probs are the sampler's, untouched. A turn that is not fit to be
learned from is left out and counted; where it became history, its tokens stand in later prompts anyway.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from dreamgym_kit.turns import Sample, Turn

ABORTED = "aborted by the server"
MISALIGNED = "token ids and log-probs differ in number"
NOT_FINITE = "log-probs that are no numbers"
NOTHING = "no token was sampled"
NO_PROMPT = "no prompt"

_ROUNDING = 1e-4  # a log-prob is never above 0, but for the last bits of a float


@dataclass(frozen=True, slots=True)
class MergeCounts:
    """What became of the turns."""

    turns: int = 0
    merged: int = 0  # went on in an earlier turn's sample
    forks: int = 0  # began a sample though their episode had one
    unfit: Mapping[str, int] = field(default_factory=dict)  # why -> turns that are not learned from
    sampled: int = 0  # tokens that the policy sampled, those of unfit turns among them
    trained: int = 0  # tokens that are learned from

    def __add__(self, other: "MergeCounts") -> "MergeCounts":
        return MergeCounts(
            self.turns + other.turns,
            self.merged + other.merged,
            self.forks + other.forks,
            dict(Counter(self.unfit) + Counter(other.unfit)),
            self.sampled + other.sampled,
            self.trained + other.trained,
        )


def merge(turns: Iterable[Turn]) -> tuple[list[Sample], MergeCounts]:
    """Put the turns of any number of episodes into samples: each sampled token of a fit turn into one.

    Samples come episode by episode as the episodes first appear, and in the order of their first turns.
    In whatever order an episode's turns are given, they are taken by their index.

    Raises:
        ValueError: an episode has two turns of the same index.
    """
    episodes: dict[str, list[Turn]] = {}
    for turn in turns:
        episodes.setdefault(turn.episode, []).append(turn)
    samples: list[Sample] = []
    counts = MergeCounts()
    for episode, own in episodes.items():
        streams, counted = _merge_episode(episode, sorted(own, key=lambda turn: turn.index))
        samples.extend(stream.sample() for stream in streams)
        counts += counted
    return samples, counts


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
    if not all(math.isfinite(logprob) and logprob <= _ROUNDING for logprob in turn.logprobs):
        return NOT_FINITE
    return ""


class _Stream:
    """Turns that extend each other, on their way to a sample."""

    def __init__(self, first: Turn) -> None:
        self.ids = first.prompt_ids + first.ids
        self._start = len(first.prompt_ids)
        self._mask = [1] * len(first.ids)
        self._logprobs = list(first.logprobs)
        self._turns = [first]

    def leads_to(self, turn: Turn) -> bool:
        return turn.prompt_ids[: len(self.ids)] == self.ids

    def go_on(self, turn: Turn) -> None:
        given = len(turn.prompt_ids) - len(self.ids)
        self._mask += [0] * given + [1] * len(turn.ids)
        self._logprobs += [0.0] * given + list(turn.logprobs)
        self.ids = turn.prompt_ids + turn.ids
        self._turns.append(turn)

    def sample(self) -> Sample:
        return Sample(
            episode=self._turns[0].episode,
            ids=self.ids,
            start=self._start,
            mask=tuple(self._mask),
            logprobs=tuple(self._logprobs),
            turns=tuple(turn.index for turn in self._turns),
            versions=tuple(dict.fromkeys(turn.version for turn in self._turns)),
        )


def _merge_episode(episode: str, turns: Sequence[Turn]) -> tuple[list[_Stream], MergeCounts]:
    if len({turn.index for turn in turns}) != len(turns):
        raise ValueError(f"episode {episode!r} has two turns of the same index")
    streams: list[_Stream] = []
    unfit: Counter[str] = Counter()
    merged = 0
    for turn in turns:
        why = why_unfit(turn)
        if why:
            unfit[why] += 1
            continue
        earlier = max(
            (stream for stream in streams if stream.leads_to(turn)),
            key=lambda stream: len(stream.ids),
            default=None,
        )
        if earlier is None:
            streams.append(_Stream(turn))
        else:
            earlier.go_on(turn)
            merged += 1
    return streams, MergeCounts(
        turns=len(turns),
        merged=merged,
        forks=max(0, len(streams) - 1),
        unfit=dict(unfit),
        sampled=sum(len(turn.ids) for turn in turns),
        trained=sum(len(turn.ids) for turn in turns if not why_unfit(turn)),
    )
