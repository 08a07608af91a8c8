"""Turn lists as agents make them, drawn by hypothesis: growing histories, rewritten, side by side, unfit.

Each sampled token is a number of its own (from `SAMPLED` on), each log-prob follows from its token: where a
token went, and with what, can be read off the ids.
"""

import itertools
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from hypothesis import strategies as st

from dreamgym_kit.training.samples import merge
from dreamgym_kit.turns import Sample, Turn

SAMPLED = 1000
ODDITIES = ("aborted", "short", "long", "nan", "inf", "positive", "empty", "no prompt", "constrained")


def logprob_of(token: int) -> float:
    """What the sampler said of a token."""
    return -(token % 97 + 1) / 100


@st.composite
def conversation(
    draw: st.DrawFn, episode: str = "t.1", numbers: "itertools.count[int] | None" = None
) -> list[Turn]:
    """The turns of one episode, in the order they were asked."""
    numbers = numbers or itertools.count(SAMPLED)
    histories = [draw(given_tokens(least=1))]  # what nodes are about to show the policy
    turns: list[Turn] = []
    for index in range(draw(st.integers(0, 7))):
        at = draw(st.integers(0, len(histories) - 1))
        prompt = histories[at]
        ids = tuple(next(numbers) for _ in range(draw(st.integers(1, 4))))
        turn = Turn(
            episode=episode,
            index=index,
            prompt_ids=prompt,
            ids=ids,
            logprobs=tuple(map(logprob_of, ids)),
            version=f"w{draw(st.integers(0, 2))}",
        )
        odd = draw(st.sampled_from((None, None, None, *ODDITIES)))
        turns.append(turn if odd is None else spoiled(turn, odd))
        then = draw(st.sampled_from(("grows", "grows", "grows", "as it was", "rewritten", "side by side")))
        grown = prompt + ids + draw(given_tokens(least=0))
        if then == "grows":
            histories[at] = grown
        elif then == "rewritten":
            histories[at] = draw(given_tokens(least=1)) + grown[len(grown) // 2 :]
        elif then == "side by side":
            histories.append(grown)
    return turns


def given_tokens(*, least: int) -> st.SearchStrategy[tuple[int, ...]]:
    """Tokens that nobody sampled; few, so that prompts are alike now and then."""
    return st.lists(st.integers(1, 3), min_size=least, max_size=4).map(tuple)


@st.composite
def several(draw: st.DrawFn) -> list[Turn]:
    """The turns of a few episodes, one after the other; no two sampled tokens are the same."""
    numbers = itertools.count(SAMPLED)
    count = draw(st.integers(1, 3))
    return [turn for number in range(count) for turn in draw(conversation(f"t.{number}", numbers))]


def spoiled(turn: Turn, odd: str) -> Turn:
    """The turn, as it comes from a server that broke off, or told something that does not fit."""
    last = turn.logprobs[:-1]
    changes = {
        "aborted": {"finish": "abort"},
        "short": {"logprobs": last},
        "long": {"logprobs": (*turn.logprobs, -0.5)},
        "nan": {"logprobs": (*last, math.nan)},
        "inf": {"logprobs": (*last, -math.inf)},
        "positive": {"logprobs": (*last, 0.7)},
        "empty": {"ids": (), "logprobs": ()},
        "no prompt": {"prompt_ids": ()},
        "constrained": {"unfit": "a grammar chose among the tokens"},
    }
    return replace(turn, **changes[odd])


@dataclass
class Merged:
    """What became of the turns of any number of episodes."""

    turns: int = 0
    forks: int = 0  # began a sample though their episode had one
    merged: int = 0  # went on in an earlier turn's sample
    sampled: int = 0  # tokens that the policy sampled, those of unfit turns among them
    trained: int = 0  # tokens that are learned from
    unfit: Counter[str] = field(default_factory=Counter)


def merged(turns: Iterable[Turn]) -> tuple[list[Sample], Merged]:
    """Merge episode by episode, as the episodes first appear, and count."""
    episodes: dict[str, list[Turn]] = {}
    for turn in turns:
        episodes.setdefault(turn.episode, []).append(turn)
    made, counts = list[Sample](), Merged()
    for own in episodes.values():
        samples, unfit = merge(own)
        made += samples
        counts.turns += len(own)
        counts.forks += max(0, len(samples) - 1)
        counts.unfit += unfit
        counts.sampled += sum(len(turn.ids) for turn in own)
        counts.trained += sum(sample.trained for sample in samples)
    counts.merged = counts.turns - counts.unfit.total() - len(made)
    return made, counts
