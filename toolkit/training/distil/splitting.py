"""Recordings as trajectories, and which of these teach and which measure.

Trajectories that share what the split goes by (world, task, entity, or several of these) are one group, and
a group is never divided. What a person held out measures, with all of its group. Which other groups measure
is drawn by hash, one at least, so that more recordings move hardly any; what a model was taught is kept with
it (`adapters.distilling`).
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dreamgym_kit.dream.state.entities import records
from dreamgym_kit.dream.state.observed import observation
from dreamgym_kit.errors import UnknownName, UserError
from dreamgym_kit.training.annotation import Trajectory
from dreamgym_kit.types import Source, Split, Transition

WAYS = ("environment", "task", "entity", "episode")
_COMMON = 0.1  # an entity in more than this share of all trajectories ties none of them together
_FEW = 20  # trajectories below which no entity is common


def trajectories(
    rows: Iterable[Transition],
    *,
    texts: Mapping[str, str] | None = None,
    outcomes: Mapping[str, bool] | None = None,
) -> list[Trajectory]:
    """Real answers of dreamable tools by episode, in the order recorded; an episode is whole or not there.

    `texts`: what the agent was asked, `outcomes`: whether it was a success, where that is known; by episode.
    """
    by_episode: dict[tuple[str, str, str], list[Transition]] = defaultdict(list)
    for row in rows:
        if row.answer.source is Source.REAL and not row.effect.runs_in_dream:
            by_episode[row.tenant, str(row.environment), row.episode].append(row)
    return [
        Trajectory(
            tenant=tenant,
            environment=steps[0].environment,
            task=steps[0].task,
            episode=episode,
            steps=tuple(sorted(steps, key=lambda row: row.step)),
            text=(texts or {}).get(episode, ""),
            success=(outcomes or {}).get(episode),
        )
        for (tenant, _, episode), steps in by_episode.items()
    ]


@dataclass(frozen=True, slots=True)
class Sides:
    """The two sides of a split."""

    taught: tuple[Trajectory, ...]
    measured: tuple[Trajectory, ...]
    groups: int

    def folds(self, count: int) -> list[tuple[Trajectory, ...]]:
        """The taught trajectories in parts, none of which shares a world with another if worlds suffice."""
        by_world: dict[str, list[Trajectory]] = defaultdict(list)
        for trajectory in self.taught:
            by_world[f"{trajectory.tenant}/{trajectory.environment}"].append(trajectory)
        if len(by_world) < 2:
            by_world = defaultdict(list, {trajectory.key: [trajectory] for trajectory in self.taught})
        parts: list[list[Trajectory]] = [[] for _ in range(min(count, len(by_world)))]
        for place, name in enumerate(sorted(by_world, key=lambda name: _drawn(name, 0))):
            parts[place % len(parts)] += by_world[name]
        return [tuple(part) for part in parts]


def split(
    trajectories: Sequence[Trajectory],
    by: Sequence[str] = ("environment",),
    *,
    share: float = 0.25,
    seed: int = 0,
) -> Sides:
    """Divide trajectories.

    Args:
        trajectories: all of them.
        by: what the two sides must not share: "environment", "task", "entity"; "episode": only the episode.
        share: of the groups that measure, 0..1, beside those that a person held out.
        seed: draws them.

    Raises:
        UserError: an unknown way, or a side without a trajectory.
    """
    for way in by:
        if way not in WAYS:
            raise UnknownName("way to split", way, known=WAYS, source="--split", where="what can be split by")
    groups = _groups(trajectories, by)
    apart = [
        name
        for name, group in groups.items()
        if any(step.split is Split.HELD_OUT for trajectory in group for step in trajectory.steps)
    ]
    left = sorted((_drawn(name, seed), name) for name in groups.keys() - set(apart))
    chosen = sum(drawn < share for drawn, _ in left)
    if share > 0:
        chosen = min(max(chosen, not apart), max(0, len(left) - 1))
    measured = {item.key for name in (*apart, *(name for _, name in left[:chosen])) for item in groups[name]}
    sides = Sides(
        tuple(trajectory for trajectory in trajectories if trajectory.key not in measured),
        tuple(trajectory for trajectory in trajectories if trajectory.key in measured),
        len(groups),
    )
    if not sides.taught or not sides.measured:
        side = "to learn from" if not sides.taught else "to measure with"
        raise UserError(
            f"split by {' and '.join(by)}: {len(trajectories)} recorded episodes are {len(groups)} groups, "
            f"and none is left {side}; record more, split by less, or choose another --hold-out or --seed."
        )
    return sides


def _groups(trajectories: Sequence[Trajectory], by: Sequence[str]) -> dict[str, list[Trajectory]]:
    """Trajectories that share a key, directly or through others, by the name of the first of them."""
    keys = [set(_keys(trajectory, by)) for trajectory in trajectories]
    counts = Counter(key for own in keys for key in own if key[0] == "entity")
    most = max(_COMMON * len(trajectories), _FEW)
    of_key: dict[tuple[str, str], int] = {}
    group_of: list[int] = []
    members: dict[int, set[int]] = {}
    for place, mine in enumerate(keys):
        mine = {key for key in mine if key[0] != "entity" or counts[key] <= most}
        met = {group_of[of_key[key]] for key in mine if key in of_key}
        group_of.append(place)
        members[place] = {place}
        for other in met:
            for member in members.pop(other):
                group_of[member] = place
                members[place].add(member)
        of_key.update(dict.fromkeys(mine, place))
    named: dict[str, list[Trajectory]] = {}
    for group in members.values():
        inside = [trajectories[member] for member in sorted(group)]
        named[min(_name(trajectory, by) for trajectory in inside)] = inside
    return dict(sorted(named.items()))


def _keys(trajectory: Trajectory, by: Sequence[str]) -> Iterator[tuple[str, str]]:
    yield "episode", trajectory.key
    if "environment" in by:
        yield "environment", f"{trajectory.tenant}/{trajectory.environment}"
    if "task" in by and trajectory.task:
        yield "task", f"{trajectory.tenant}/{trajectory.task}"
    if "entity" in by:
        for step in trajectory.steps:
            for record in records(observation(step.answer), step.call.args):
                yield "entity", f"{trajectory.tenant}/{trajectory.environment}/{record.entity}"


def _name(trajectory: Trajectory, by: Sequence[str]) -> str:
    """What a group is drawn by: its world where worlds are kept together, so that more episodes move none."""
    return f"{trajectory.tenant}/{trajectory.environment}" if "environment" in by else trajectory.key


def _drawn(name: str, seed: int) -> float:
    """A number in 0..1 that belongs to a name."""
    drawn = hashlib.blake2b(f"{seed} {name}".encode("utf-8", "replace"), digest_size=8).digest()
    return int.from_bytes(drawn, "big") / 2**64
