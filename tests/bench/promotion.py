"""Is a model promoted by chance, or one that got worse? Comparisons of real work on the desk, by the rule.

The package's nano policy works held-out tasks on the desk's real tools many times over; so does the same
policy with noise in its weights, which is a regression. A comparison draws tasks, and for each some episodes
of either side out of these. `null_promoted` holds the policy against itself: whatever is promoted there is
chance. `null_promoted_8` goes on looking at one baseline until something is promoted or the looks are spent.
`regressions_promoted` counts damaged policies that took the better one's place, over all sizes of damage;
`hidden_promoted` those that lost one kind of task altogether and were made better at others.
`improvements_promoted` turns the largest damage round: what the rule lets through when it should.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from dreamgym_kit.recipes.desk.cases import family_of
from dreamgym_kit.recipes.nano.build import WEIGHTS
from dreamgym_kit.trust.comparison import MAX_LOOKS, promotion
from dreamgym_kit.trust.outcomes import TaskOutcome

COMPARISONS, TASKS, TRIES = 200, 54, 4
DAMAGES = (0.15, 0.22)  # noise beside a weight's own spread
LEFT_ALONE = 0.5  # share of the failures at other tasks that a hidden regression is made better by

Pool = Mapping[int, Sequence[bool]]  # world -> solved, try by try


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured."""

    per_family: int = 8  # worlds
    tries: int = 12  # of each
    comparisons: int = COMPARISONS
    retried: int = 40  # baselines that are looked at again and again
    tasks: int = TASKS


FULL, SMALL = Size(), Size(per_family=4, tries=8, comparisons=20, retried=2, tasks=27)


def measure(seed: int) -> list[tuple[str, float, str]]:
    """Figures for the bench runner."""
    return figures(seed, FULL)


def quick(seed: int) -> list[tuple[str, float, str]]:
    """Fewer worlds, tries and comparisons."""
    return figures(seed, SMALL)


def figures(seed: int, size: Size) -> list[tuple[str, float, str]]:
    """Draw the comparisons and count what the rule says of each."""
    draw = random.Random(seed)
    policy = pool(0.0, seed, size)
    damaged = {noise: pool(noise, seed, size) for noise in DAMAGES}
    null = [_promoted(policy, policy, draw, size) for _ in range(size.comparisons)]
    again = [_ever_promoted(policy, draw, size) for _ in range(size.retried)]
    worse = [
        _promoted(policy, worse, draw, size) for worse in damaged.values() for _ in range(size.comparisons)
    ]
    better = [_promoted(damaged[DAMAGES[-1]], policy, draw, size) for _ in range(size.comparisons)]
    hidden = [_promoted(policy, _hidden(policy, draw), draw, size) for _ in range(size.comparisons)]
    return [
        ("null_promoted", 100 * _mean(null), f"% of {len(null)}"),
        ("null_promoted_8", 100 * _mean(again), f"% of {len(again)}, {MAX_LOOKS} looks each"),
        ("regressions_promoted", sum(worse), f"of {len(worse)}"),
        *(
            (f"regression_{100 * noise:.0f}", 100 * (solved(bad) - solved(policy)), "points")
            for noise, bad in damaged.items()
        ),
        ("hidden_promoted", 100 * _mean(hidden), f"% of {len(hidden)}"),
        ("improvements_promoted", 100 * _mean(better), f"% of {len(better)}"),
    ]


def _promoted(a: Pool, b: Pool, draw: random.Random, size: Size, *, look: int = 1) -> bool:
    worlds = draw.sample(sorted(a), min(size.tasks, len(a)))
    before, after = _drawn(a, b, worlds, draw)
    return promotion(before, after, look=look).allowed


def _ever_promoted(policy: Pool, draw: random.Random, size: Size) -> bool:
    """Whether one baseline is ever taken the place of, by candidates that are no better."""
    worlds = draw.sample(sorted(policy), min(size.tasks, len(policy)))
    before, _ = _drawn(policy, policy, worlds, draw)
    kept = {one.task: one for one in before}
    for look in range(1, MAX_LOOKS + 1):
        _, after = _drawn(policy, policy, worlds, draw)
        if promotion(list(kept.values()), after, look=look).allowed:
            return True
    return False


def _drawn(
    a: Pool, b: Pool, worlds: Sequence[int], draw: random.Random
) -> tuple[list[TaskOutcome], list[TaskOutcome]]:
    """Episodes of both sides; of one pool, other ones for either side."""
    before, after = [], []
    for world in worlds:
        if a is b:
            tries = draw.sample(a[world], 2 * TRIES)
            one, other = tries[:TRIES], tries[TRIES:]
        else:
            one, other = draw.sample(a[world], TRIES), draw.sample(b[world], TRIES)
        before.append(_outcome(world, one))
        after.append(_outcome(world, other))
    return before, after


def _outcome(world: int, tries: Sequence[bool]) -> TaskOutcome:
    return TaskOutcome(f"w{world}", sum(tries), len(tries) - sum(tries), 0, family_of(world))


def _hidden(policy: Pool, draw: random.Random) -> Pool:
    """Better at what it did not do well before, and at one kind of task never right any more."""
    lost = draw.choice(sorted({family_of(world) for world in policy}))
    return {
        world: [family_of(world) != lost and (one or draw.random() < LEFT_ALONE) for one in tries]
        for world, tries in policy.items()
    }


def solved(pool: Pool) -> float:
    """Share of all tries that were solved."""
    return _mean([one for tries in pool.values() for one in tries])


def _mean(values: Sequence[bool]) -> float:
    return sum(values) / len(values)


@cache
def pool(noise: float, seed: int, size: Size) -> Pool:
    """What a policy with so much noise in its weights does on the desk's real tools."""
    from dreamgym_kit.adapters.models.folders import load_model, load_tokenizer, threads
    from dreamgym_kit.adapters.models.local_network import Qwen3Network
    from dreamgym_kit.recipes.nano.score import held_out_worlds, play
    from dreamgym_kit.recipes.nano.tokens import Stream

    worlds = held_out_worlds(size.per_family)
    with threads(1):
        model = load_model(WEIGHTS)
        _damage(model, noise, seed)
        network, stream = Qwen3Network(model.eval()), Stream(load_tokenizer(WEIGHTS))
        rows: dict[int, list[bool]] = {world: [] for world in worlds}
        for number in range(size.tries):
            for played in play(network, stream, worlds, seed=1000 * seed + number, temperature=1.0):
                rows[played.case.seed].append(played.solved)
    return rows


def _damage(model: Any, noise: float, seed: int) -> None:
    import torch

    chance = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            if noise and weight.dim() == 2:
                weight.add_(torch.randn(weight.shape, generator=chance) * noise * weight.std())
