"""Recorded episodes, call by call, as programs are mined from them."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from dreamgym_kit.dream.json_values import spell
from dreamgym_kit.dream.observed import failed, observation
from dreamgym_kit.serialization import JsonValue, escaped, escaped_args
from dreamgym_kit.types import Source, Split, Transition

_REPLY = "$reply"  # beside the arguments, and a number: a person's reply to what the tool asked


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
    at: float | None = None  # Unix time of its first call, in seconds; None: as newer as its place is later


def step_of(entry: Transition) -> HistoryStep:
    """A transition as programs see it."""
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
    """Real episodes, each in the order of its steps: the one door to mining and measuring.

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
            tuple(step_of(row) for row in sorted(rows, key=lambda row: row.step)),
            min(row.recorded_at for row in rows),
        )
        for (tenant, world, episode), rows in episodes.items()
    ]
