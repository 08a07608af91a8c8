"""Recorded episodes, pooled by where they stood: same world, after the same writes.

All episodes' reads at one node are put together, so that a write has reads before and after it although
no single episode read twice. Reads are no part of a node's name, and neither are writes that failed,
unless that failure was seen to have changed something (a time-out after the act).
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from dreamgym_kit.dream.state.observed import failed, observation
from dreamgym_kit.dream.state.values import spell
from dreamgym_kit.dream.state.views import ViewKey
from dreamgym_kit.serialization import JsonValue, escaped, escaped_args
from dreamgym_kit.types import Source, Split, Transition

_REPLY = "$reply"  # beside the arguments, and a number: a person's reply to what the tool asked
OFF_RECORD = -1
"""The node where no recording stood."""


class HistoryStep(NamedTuple):
    """One recorded call."""

    tool: str
    args: Mapping[str, JsonValue]
    spelled: str
    seen: JsonValue
    writes: bool
    failed: bool


@dataclass(frozen=True, slots=True)
class RecordedEpisode:
    """One recorded episode."""

    id: str
    world: str
    steps: tuple[HistoryStep, ...]


def step_of(entry: Transition) -> HistoryStep:
    """A transition as rules see it."""
    seen = observation(entry.answer)
    args = escaped_args(entry.call.args)
    if entry.call.replies:  # what a tool does after a "no" is another call than after a "yes"
        args |= {
            f"{_REPLY}{place}": escaped(reply.reply) for place, reply in enumerate(entry.call.replies, 1)
        }
    return HistoryStep(
        tool=entry.call.tool,
        args=args,
        spelled=spell(args),
        seen=seen,
        writes=entry.effect.changes_environment,
        failed=failed(seen),
    )


def recordings(transitions: Iterable[Transition]) -> list[RecordedEpisode]:
    """Real episodes, each in the order of its steps: the one door to mining, state and calibration.

    What runs for real in a dream is left out, as are calls within others, and the held-out split: nothing is
    ever mined or composed from what the agent will be measured on.
    """
    episodes: dict[tuple[str, str, str], list[Transition]] = defaultdict(list)
    for entry in transitions:
        if entry.split is Split.HELD_OUT or entry.effect.runs_in_dream or entry.within:
            continue
        if entry.answer.source is Source.REAL:
            episodes[entry.tenant, str(entry.environment), entry.episode].append(entry)
    return [
        RecordedEpisode(
            episode,
            f"{tenant}/{world}",
            tuple(step_of(one) for one in sorted(rows, key=lambda row: row.step)),
        )
        for (tenant, world, episode), rows in episodes.items()
    ]


@dataclass(slots=True)
class Pool:
    """What was recorded at each node.

    Attributes:
        at: by node, what each call was answered there, and by which episodes.
        formed: by (world, tool, spelled arguments), what the call was answered anywhere, by episode.
    """

    advances: Callable[[HistoryStep], bool]
    at: dict[int, dict[ViewKey, tuple[JsonValue, set[str]]]] = field(default_factory=dict)
    anywhere: dict[tuple[str, str, str], dict[str, JsonValue]] = field(default_factory=dict)
    episodes: dict[str, list[RecordedEpisode]] = field(default_factory=dict)  # by world
    worlds: dict[int, str] = field(default_factory=dict)  # of each node
    again: set[tuple[int, ViewKey]] = field(default_factory=set)  # writes at nodes after that very write
    _nodes: dict[tuple[int | str, str], int] = field(default_factory=dict)

    def add(self, recording: RecordedEpisode) -> None:
        """Put one episode in."""
        self.episodes.setdefault(recording.world, []).append(recording)
        node, done = self._node(recording.world, ""), set()
        for step in recording.steps:
            self.worlds[node] = recording.world
            place = self.at.setdefault(node, {})
            key = (step.tool, step.spelled)
            place.setdefault(key, (step.seen, set()))[1].add(recording.id)
            self.anywhere.setdefault((recording.world, *key), {})[recording.id] = step.seen
            if key in done:
                self.again.add((node, key))
            if self.advances(step):
                done.add(key)
                node = self._node(node, f"{step.tool}{step.spelled}")

    def root(self, world: str) -> int:
        """The node of a world before any write; OFF_RECORD when nothing was recorded there."""
        return self._nodes.get((world, ""), OFF_RECORD)

    def next(self, node: int, step: HistoryStep) -> int:
        """The node after a call."""
        return (
            self._nodes.get((node, f"{step.tool}{step.spelled}"), OFF_RECORD) if self.advances(step) else node
        )

    def told(self, node: int, without: str | None = None) -> dict[ViewKey, JsonValue]:
        """What was recorded at a node, but not what only one episode has seen."""
        return {
            key: seen
            for key, (seen, by) in self.at.get(node, {}).items()
            if without is None or by != {without}
        }

    def exact(self, node: int, tool: str, spelled: str) -> tuple[bool, JsonValue]:
        """Whether this very call was recorded at this node, and its answer."""
        found = self.at.get(node, {}).get((tool, spelled))
        return (found is not None, found[0] if found is not None else None)

    def elsewhere(
        self, world: str, tool: str, spelled: str, without: str | None = None
    ) -> tuple[bool, JsonValue]:
        """Whether the call was recorded in this world after whatever writes, and its first answer."""
        for episode, seen in self.anywhere.get((world, tool, spelled), {}).items():
            if episode != without:
                return True, seen
        return False, None

    def always(self, world: str, tool: str, spelled: str) -> list[JsonValue]:
        """All answers that the call was recorded with in this world, after whatever writes."""
        return list(self.anywhere.get((world, tool, spelled), {}).values())

    def steadiness(self) -> dict[str, float]:
        """By tool, how often a call that went well is answered alike after other writes to its world.

        What a write answers once it was done is another matter.
        """
        answers: dict[tuple[str, str, str], Counter[str]] = defaultdict(Counter)
        worked: set[str] = set()
        for node, told in self.at.items():
            for (tool, spelled), (seen, _) in told.items():
                if (node, (tool, spelled)) in self.again:
                    continue
                said = spell(seen)
                answers[self.worlds[node], tool, spelled][said] += 1
                if not failed(seen):
                    worked.add(said)
        counts: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        for (_, tool, _), kinds in answers.items():
            total = kinds.total()
            for said, count in kinds.items():
                if total > 1 and said in worked:
                    counts[tool][0] += count * (count - 1) / (total - 1)
                    counts[tool][1] += count
        return {tool: (same + 0.2) / (total + 1) for tool, (same, total) in counts.items()}

    def _node(self, parent: int | str, edge: str) -> int:
        return self._nodes.setdefault((parent, edge), len(self._nodes))


def acting_failures(
    episodes: Iterable[RecordedEpisode], form: Callable[[HistoryStep], str]
) -> frozenset[tuple[str, str]]:
    """The failures (tool, form) that changed something though they said that they failed.

    A read that said one thing before such a failure and another after it, nothing but failures between,
    in at least two worlds.
    """
    changed: dict[tuple[str, str], set[str]] = defaultdict(set)
    for episode in episodes:
        said: dict[ViewKey, tuple[JsonValue, int]] = {}
        failures: list[tuple[str, str]] = []
        for step in episode.steps:
            if not step.writes:
                before = said.get((step.tool, step.spelled))
                if before is not None and before[0] != step.seen and len(failures) > before[1]:
                    for failure in set(failures[before[1] :]):
                        changed[failure].add(episode.world)
                said[step.tool, step.spelled] = (step.seen, len(failures))
            elif step.failed:
                failures.append((step.tool, form(step)))
            else:
                said, failures = {}, []
    return frozenset(failure for failure, worlds in changed.items() if len(worlds) >= 2)
