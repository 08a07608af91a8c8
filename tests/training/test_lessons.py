"""What each algorithm learns from."""

import pytest
from each_row import each_row
from hypothesis import given
from hypothesis import strategies as st

from dreamgym_kit.interfaces import Group, Rollout
from dreamgym_kit.training.batching import batch_of
from dreamgym_kit.turns import Turn
from dreamgym_kit.types import Environment, Episode, Verdict

FATES = {
    "good": Verdict.PASSED,
    "bad": Verdict.FAILED,
    "unknown": Verdict.INCONCLUSIVE,
    "broken": Verdict.ERROR,
}


def group(name: str, fates: list[tuple[str, float, int]]) -> Group:
    """Siblings: fate, reward, and in how many turns (forks) each spoke."""
    rollouts = []
    for repeat, (fate, reward, turns) in enumerate(fates, 1):
        episode = f"{name}.{repeat}"
        said = tuple(
            Turn(episode, place, (place + 100,), (1, 2), (-0.5, -0.5), "step-000000")
            for place in range(turns)
        )
        told = reward if FATES[fate].conclusive else None
        rollouts.append(
            Rollout(Episode(episode, name, repeat, Environment(), FATES[fate], "said", reward=told), said)
        )
    return Group(name, tuple(rollouts))


repeats = st.lists(
    st.tuples(st.sampled_from(sorted(FATES)), st.sampled_from([0.0, 0.5, 1.0]), st.integers(0, 3)),
    min_size=1,
    max_size=7,
)
groups = st.lists(repeats, min_size=1, max_size=4).map(
    lambda told: [group(f"t{place}", fates) for place, fates in enumerate(told)]
)


def episodes_of(told: list[Group]) -> dict[str, Episode]:
    return {one.episode.id: one.episode for group in told for one in group.rollouts if one.turns}


@given(groups)
def test_ppo_learns_from_every_decided_episode_and_is_told_its_reward(told: list[Group]) -> None:
    batch, _ = batch_of(1, told, algorithm="ppo")
    known = episodes_of(told)
    decided = {name for name, one in known.items() if one.verdict.conclusive}
    assert {row.episode for row in batch.samples} == decided
    assert all(row.reward == known[row.episode].reward and row.advantage == 0.0 for row in batch.samples)


@given(groups)
def test_sft_learns_from_successes_alone_whatever_their_siblings_did(told: list[Group]) -> None:
    batch, _ = batch_of(1, told, algorithm="sft")
    won = {name for name, one in episodes_of(told).items() if one.verdict is Verdict.PASSED}
    assert {row.episode for row in batch.samples} == won


@given(groups, st.integers(1, 4))
def test_a_pair_is_a_better_and_a_worse_sibling_and_nobody_is_in_two(told: list[Group], most: int) -> None:
    batch, _ = batch_of(1, told, algorithm="dpo", pairs=most)
    known = episodes_of(told)
    sides: dict[str, dict[float, set[str]]] = {}
    for row in batch.samples:
        sides.setdefault(row.pair, {}).setdefault(row.advantage, set()).add(row.episode)
    seen: list[str] = []
    for pair, of in sides.items():
        assert of.keys() == {1.0, -1.0}
        (better,), (worse,) = of[1.0], of[-1.0]
        assert known[better].task == known[worse].task == pair.split(":")[1].split("#")[0]
        assert (known[better].reward or 0.0) > (known[worse].reward or 0.0)
        seen += [better, worse]
    assert len(seen) == len(set(seen))
    for one in told:
        assert (
            sum(known[pair[0]].task == one.task for pair in [sorted(o[1.0]) for o in sides.values()]) <= most
        )


def test_the_best_is_held_against_the_worst_with_all_that_each_of_them_said() -> None:
    told = [group("t", [("bad", 0.5, 1), ("good", 1.0, 2), ("bad", 0.0, 3), ("good", 0.9, 1)])]
    batch, _ = batch_of(1, told, algorithm="dpo", pairs=1)
    assert [(row.episode, row.advantage) for row in batch.samples] == [
        ("t.2", 1.0),
        ("t.2", 1.0),
        ("t.3", -1.0),
        ("t.3", -1.0),
        ("t.3", -1.0),
    ]
    assert {row.pair for row in batch.samples} == {"0:t#0"}


@each_row(("algorithm", "rows"), [("grpo", 0), ("dpo", 0), ("ppo", 3), ("sft", 3)])
def test_where_all_did_alike_only_those_learn_who_compare_nothing(algorithm: str, rows: int) -> None:
    batch, facts = batch_of(1, [group("t", [("good", 1.0, 1)] * 3)], algorithm=algorithm)
    assert (len(batch.samples), facts.samples, facts.dead) == (rows, rows, 1)


@given(groups, st.sampled_from(["grpo", "ppo", "sft"]))
def test_every_episode_weighs_the_same_in_each_algorithm(told: list[Group], algorithm: str) -> None:
    batch, _ = batch_of(1, told, algorithm=algorithm)
    mass: dict[str, float] = {}
    for row in batch.samples:
        mass[row.episode] = mass.get(row.episode, 0.0) + row.weight * row.trained
    tokens = sum(row.trained for row in batch.samples)
    assert all(one == pytest.approx(tokens / len(mass)) for one in mass.values())
