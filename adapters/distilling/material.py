"""A folder of a distillation, and what it is made from: a buffer, a graph's tools, a split that stays.

    distil.json        what it was begun with: tenant, split, the tools as the graph described them
    annotations.jsonl  why the tools answered as they did
    checkpoints/       of a training that has not come to its end
    model/             what was trained, with the gate that it passed

What a folder was begun with holds for all that is done in it: held-out recordings never become lessons
because a later command was given other words.

Trajectories that share what the split goes by (world, task, entity, or several of these) are one group, and
a group is never divided. What a person held out measures, with all of its group. Which other groups measure
is drawn by hash, one at least, so that more recordings move hardly any; what a model was taught is kept with
it.
"""

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from dreamgym_kit.adapters.langgraph.run.experiences import RecordedAnswers
from dreamgym_kit.bounded_json import read_json
from dreamgym_kit.codec import Codec, on_disk
from dreamgym_kit.dream.entities import records
from dreamgym_kit.dream.observed import observation
from dreamgym_kit.dream.programs.experience import ProgramTracker
from dreamgym_kit.errors import NotSerializable, UnknownName, UserError
from dreamgym_kit.interfaces import TransitionStore
from dreamgym_kit.replay.masking import masked_answer
from dreamgym_kit.rollout.atomic_files import read_whole, write_atomically
from dreamgym_kit.rollout.journal import JournalReader
from dreamgym_kit.rollout.rundir import RunDirectory
from dreamgym_kit.settings.schema import Settings
from dreamgym_kit.settings.views import seen_through
from dreamgym_kit.training.annotation import Trajectory
from dreamgym_kit.training.lessons import Sight
from dreamgym_kit.types import Source, Split, ToolSpec, Transition, Verdict

BEGUN, MODEL, CHECKPOINTS = "distil.json", "model", "checkpoints"
WAYS = ("environment", "task", "entity", "episode")
_COMMON = 0.1  # an entity in more than this share of all trajectories ties none of them together
_FEW = 20  # trajectories below which no entity is common
_MOST = 2_000  # characters of what was asked


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """What a distillation was begun with."""

    distil: int = 1
    tenant: str
    by: tuple[str, ...] = field(metadata=on_disk("split"))  # what the sides do not share
    share: float
    seed: int
    specs: tuple[ToolSpec, ...] = field(metadata=on_disk("tools"))

    @property
    def tools(self) -> dict[str, ToolSpec]:
        """By name."""
        return {spec.name: spec for spec in self.specs}


_BEGUN = Codec(Begun)


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


@dataclass(frozen=True, slots=True)
class Material:
    """Recordings on two sides, and how they are seen."""

    begun: Begun
    sides: Sides
    store: TransitionStore
    settings: Settings

    def sight(self, seen: Sequence[Trajectory]) -> Sight:
        """What may be shown where only `seen` is known."""
        rows = steps_of(seen)
        ids, examples = frozenset(row.id for row in rows), self.settings.experience.examples
        recorded = RecordedAnswers(self.store, ids, examples=examples)

        def of_tenant(tenant: str) -> list[Transition]:
            return [row for row in rows if row.tenant == tenant]

        specs = self.begun.tools
        programs = ProgramTracker(of_tenant, specs, measured=False)
        return Sight(recorded.examples, recorded.schema, recorded.facts, programs)


def steps_of(seen: Sequence[Trajectory]) -> list[Transition]:
    """All their transitions."""
    return [step for trajectory in seen for step in trajectory.steps]


def begin(
    folder: Path,
    store: TransitionStore,
    settings: Settings,
    tools: Sequence[ToolSpec],
    *,
    by: tuple[str, ...],
    share: float,
    seed: int,
) -> Begun:
    """Begin a distillation, or continue it.

    `tools`: those of the graph; empty: those in recordings. `by`: units that the two sides must not share.

    Raises:
        UserError: it was begun with other arguments.
    """
    distilled = [tool for tool in tools if not tool.effect.runs_in_dream] or _recorded_tools(store, settings)
    specs = tuple(sorted(distilled, key=lambda tool: tool.name))
    wanted = Begun(tenant=settings.tenant, by=by, share=share, seed=seed, specs=specs)
    if (folder / BEGUN).exists():
        begun = read_begun(folder)
        for name in ("tenant", "by", "share", "seed"):
            before, now = getattr(begun, name), getattr(wanted, name)
            if before != now:
                raise UserError(
                    f"{folder / BEGUN}: was begun with {name} {_shown(before)}, not {_shown(now)}: its "
                    "held-out recordings must stay held out; set it back, or distil into another folder."
                )
        if not tools:
            return begun
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder}: cannot be made ({error.strerror}); name another folder.") from None
    write_atomically(folder / BEGUN, json.dumps(_BEGUN.write(wanted), indent=1).encode("ascii") + b"\n")
    return wanted


def read_begun(folder: Path) -> Begun:
    """What a distillation was begun with.

    Raises:
        UserError: the folder holds none.
    """
    path = folder / BEGUN
    try:
        begun = _BEGUN.read(read_json(read_whole(path)))
    except FileNotFoundError:
        raise UserError(
            f"{folder}: no distillation was begun there; begin one: dreamgym-kit experience annotate {folder}"
        ) from None
    except NotSerializable as error:
        raise UserError(f"{path}: cannot be read ({error}); begin again in another folder.") from None
    return replace(begun, by=tuple("environment" if way == "world" else way for way in begun.by))


def material(
    begun: Begun,
    store: TransitionStore,
    settings: Settings,
    *,
    texts: Mapping[str, str] | None = None,
    outcomes: Mapping[str, bool] | None = None,
) -> Material:
    """The recordings as they are now, on the sides that were chosen at the beginning.

    Raises:
        UserError: there are none, or one side has none.
    """
    store = seen_through(store, settings.tools, masked_answer)
    seen = trajectories(store.scan(tenant=begun.tenant), texts=texts, outcomes=outcomes)
    if not seen:
        raise UserError(
            f"the buffer holds no real answers of tenant '{begun.tenant}'; record some: dreamgym-kit record"
        )
    return Material(begun, split(seen, begun.by, share=begun.share, seed=begun.seed), store, settings)


def _recorded_tools(store: TransitionStore, settings: Settings) -> list[ToolSpec]:
    """What recordings tell of tools where no graph is named."""
    tools: dict[str, ToolSpec] = {}
    for row in store.scan(tenant=settings.tenant):
        if not row.effect.runs_in_dream:
            tools.setdefault(row.call.tool, ToolSpec(row.call.tool, row.effect, source="recorded"))
    return list(tools.values())


def _shown(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def outcomes_of(runs: Iterable[Path]) -> tuple[dict[str, str], dict[str, bool]]:
    """By recorded episode: what was asked, and whether it succeeded; inconclusive ones are left out.

    Raises:
        RunDirectoryError: one of them is no run directory.
    """
    texts: dict[str, str] = {}
    successes: dict[str, bool] = {}
    for path in runs:
        directory = RunDirectory.open(path)
        for episode in JournalReader(directory.path / "episodes.jsonl"):
            name = f"{directory.manifest.run}:{episode.id}"
            requests = (
                message.get("content")
                for message in episode.messages
                if message.get("role") in ("user", "human") and isinstance(message.get("content"), str)
            )
            texts[name] = str(next(requests, ""))[:_MOST]
            if episode.verdict.conclusive:
                successes[name] = episode.verdict is Verdict.PASSED
    return texts, successes


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
