"""From groups to a batch: who is in it, and with what weight."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dreamgym_kit.errors import TrainingStopped
from dreamgym_kit.interfaces import Group, Rollout
from dreamgym_kit.training.batching import batch_of
from dreamgym_kit.turns import Turn
from dreamgym_kit.types import Environment, Episode, Verdict

FATE = {
    "good": Verdict.PASSED,
    "bad": Verdict.FAILED,
    "unknown": Verdict.INCONCLUSIVE,
    "broken": Verdict.ERROR,
}


def rollout(task: str, repeat: int, fate: str, lengths: list[int], *, reward: float | None = None) -> Rollout:
    name = f"{task}.{repeat}"
    turns = [
        Turn(name, place, (place + 100,), tuple(range(length)), (-0.5,) * length, "step-000000")
        for place, length in enumerate(lengths)
    ]
    return Rollout(
        Episode(name, task, repeat, Environment(), FATE[fate], "said", reward=reward), tuple(turns)
    )


fates = st.sampled_from(sorted(FATE))
groups = st.lists(
    st.lists(st.tuples(fates, st.lists(st.integers(0, 5), max_size=4)), min_size=1, max_size=6),
    min_size=1,
    max_size=5,
).map(
    lambda told: [
        Group(f"t{place}", tuple(rollout(f"t{place}", at, *one) for at, one in enumerate(repeats, 1)))
        for place, repeats in enumerate(told)
    ]
)


@given(groups)
def test_every_episode_that_is_learned_from_weighs_the_same(told: list[Group]) -> None:
    batch, facts = batch_of(1, told)
    mass: dict[str, float] = {}
    for sample in batch.samples:
        mass[sample.episode] = mass.get(sample.episode, 0.0) + sample.weight * sample.trained
    tokens = sum(sample.trained for sample in batch.samples)
    assert all(one == pytest.approx(tokens / len(mass)) for one in mass.values())
    assert facts.tokens == tokens


@given(groups)
def test_no_unjudged_episode_and_no_dead_or_small_group_is_learned_from(told: list[Group]) -> None:
    batch, facts = batch_of(1, told)
    learned = {sample.episode for sample in batch.samples}
    dead = small = 0
    for group in told:
        decided = [one.episode for one in group.rollouts if one.episode.verdict.conclusive]
        spread = len({one.verdict for one in decided}) > 1
        small += len(decided) < 2
        dead += len(decided) >= 2 and not spread
        if not spread:
            assert not learned & {one.id for one in decided}
        assert not learned & {one.episode.id for one in group.rollouts if not one.episode.verdict.conclusive}
    assert (facts.dead, facts.small, facts.groups) == (dead, small, len(told))


@given(groups)
def test_advantages_are_those_of_the_decided_siblings(told: list[Group]) -> None:
    batch, _ = batch_of(1, told)
    for sample in batch.samples:
        verdict = next(
            one.episode.verdict
            for group in told
            for one in group.rollouts
            if one.episode.id == sample.episode
        )
        assert (sample.advantage > 0) is (verdict is Verdict.PASSED)


def test_facts_tell_what_the_episodes_came_to() -> None:
    group = Group(
        "t",
        (
            rollout("t", 1, "good", [2, 3], reward=0.9),
            rollout("t", 2, "bad", [4], reward=0.1),
            rollout("t", 3, "unknown", [1]),
        ),
    )
    batch, facts = batch_of(7, [group])
    assert (facts.episodes, facts.inconclusive, facts.success, facts.decided) == (3, 1, 1, 2)
    assert facts.reward == pytest.approx(0.5)
    assert (facts.turns, facts.forks, facts.samples, facts.tokens) == (4, 1, 3, 9)
    assert batch.step == 7
    assert batch.facts["dream_success"] == 0.5
    assert [sample.weight for sample in batch.samples] == pytest.approx([9 / 10, 9 / 10, 9 / 8])


def test_a_reward_that_is_no_number_stops_the_training_and_names_its_episode() -> None:
    group = Group("t", (rollout("t", 1, "good", [1], reward=math.nan), rollout("t", 2, "bad", [1])))
    with pytest.raises(TrainingStopped, match=r"not_finite: the reward of t\.1 is nan"):
        batch_of(3, [group])


def test_two_judgements_are_counted_apart() -> None:
    def judged(repeat: int, fate: str, count: str) -> Rollout:
        one = rollout("t", repeat, fate, [1])
        return replace(one, episode=replace(one.episode, counts={count: 1}))

    group = Group(
        "t",
        (
            judged(1, "good", "judges_agree"),
            judged(2, "bad", "judges_disagree"),
            judged(3, "bad", "judges_agree"),
            judged(4, "good", "judges_disagree"),
            rollout("t", 5, "good", [1]),
        ),
    )
    _, facts = batch_of(1, [group])
    assert (facts.judged_twice, facts.disagreed) == (4, 2)
    assert (facts.checker_success, facts.judge_success) == (2, 2)
