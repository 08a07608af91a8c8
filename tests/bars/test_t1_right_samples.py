"""T1: no token is trained that the policy did not sample, and none twice; episodes weigh alike."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from hypothesis import Phase, given, settings
from training.conversations import merged, several

from dreamgym_kit.interfaces import Group, Rollout
from dreamgym_kit.training import batching, samples
from dreamgym_kit.training.samples import why_unfit
from dreamgym_kit.turns import Sample, Turn
from dreamgym_kit.types import Environment, Episode, Verdict


@dataclass
class Figures:
    lists: int = 0
    sampled: int = 0
    foreign: int = 0  # tokens trained that the policy did not sample, or not in a fit turn
    lost: int = 0  # tokens of fit turns that are not trained, or twice
    askew: int = 0  # log-probs that are another token's, or read after another history
    uneven: int = 0  # batches in which an episode weighs more than another


def episode(name: str, place: int) -> Episode:
    verdict = Verdict.PASSED if place % 2 else Verdict.FAILED
    return Episode(name, "t", place + 1, Environment(), verdict, "", reward=float(place % 2))


def count(figures: Figures, turns: list[Turn]) -> None:
    """One list of turns, as a group of episodes of which every other one succeeds."""
    names = list(dict.fromkeys(turn.episode for turn in turns))
    rollouts = [
        Rollout(episode(name, place), tuple(turn for turn in turns if turn.episode == name))
        for place, name in enumerate(names)
    ]
    batch, _ = batching.batch_of(1, [Group("t", tuple(rollouts))])
    figures.lists += 1
    if len(names) < 2:
        made = merged(turns)[0]
    else:
        made = list(batch.samples)
        weights = Counter[str]()
        for sample in made:
            weights[sample.episode] += sample.weight * sample.trained
        figures.uneven += bool(weights) and max(weights.values()) - min(weights.values()) > 1e-9
    fit = {token: turn for turn in turns if not why_unfit(turn) for token in turn.ids}
    trained = Counter[int]()
    for sample in made:
        for place, token in learned(sample):
            trained[token] += 1
            turn = fit.get(token)
            if turn is None:
                figures.foreign += 1
                continue
            at = turn.ids.index(token)
            right = sample.ids[:place] == turn.prompt_ids + turn.ids[:at]
            figures.askew += not right or sample.logprobs[place - sample.start] != turn.logprobs[at]
    figures.sampled += len(fit)
    figures.lost += sum(trained[token] != 1 for token in fit)


def learned(sample: Sample) -> list[tuple[int, int]]:
    """Places and tokens that are learned from."""
    return [
        (sample.start + place, sample.ids[sample.start + place])
        for place, kept in enumerate(sample.mask)
        if kept
    ]


def measured(lists: int, *, same: bool = False) -> Figures:
    """Figures over lists of turns drawn by chance; `same`: over the same ones each time."""
    figures = Figures()

    @settings(max_examples=lists, derandomize=same, phases=[Phase.generate], deadline=None, database=None)
    @given(several())
    def look(turns: list[Turn]) -> None:
        count(figures, turns)

    look()
    return figures


def test_no_token_is_trained_that_the_policy_did_not_sample() -> None:
    figures = measured(200, same=True)
    print(f"T1 {figures}")
    assert figures.sampled > 500
    assert (figures.foreign, figures.lost, figures.askew, figures.uneven) == (0, 0, 0, 0)


def given_tokens_are_learned_from(real: Callable[..., object]) -> Callable[..., object]:
    def made(*given: object) -> Sample:
        sample = real(*given)
        assert isinstance(sample, Sample)
        return replace(sample, mask=(1,) * len(sample.mask))

    return made


def any_prompt_goes_on(real: Callable[..., object]) -> Callable[..., object]:
    return lambda sample, turn: len(turn.prompt_ids) >= len(sample.ids)


def nothing_is_unfit(real: Callable[..., object]) -> Callable[..., object]:
    return lambda turn: ""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("owner", "name", "mutant", "shows"),
    [
        (samples, "extend", given_tokens_are_learned_from, "foreign"),
        (samples, "is_extended", any_prompt_goes_on, "askew"),
        (samples, "why_unfit", nothing_is_unfit, "foreign"),
    ],
)
def test_a_planted_mistake_is_caught(monkeypatch, owner, name: str, mutant, shows: str) -> None:
    monkeypatch.setattr(owner, name, mutant(getattr(owner, name)))
    try:
        figures = measured(400, same=True)
    except (ValueError, IndexError):  # rows of different lengths, or a token that no turn has
        return
    assert getattr(figures, shows) > 0
