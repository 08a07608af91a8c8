"""Real writes that no finished episode accounts for: of one that was cut, lost, or run again after an error.

The event log has every real write as it began and every call as it was answered, the journal the calls of
finished episodes; the difference is what was done, or begun, and stands in no episode.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from dreamgym_kit.dream.faults import ran
from dreamgym_kit.plain import JsonValue
from dreamgym_kit.rollout.events import read_events
from dreamgym_kit.vocabulary import Effect, Episode, Provenance

_WRITES = frozenset(effect.value for effect in Effect if effect.changes_world)


@dataclass(frozen=True, slots=True)
class Unaccounted:
    """What was done for real, or begun, and stands in no finished episode."""

    writes: list[
        JsonValue
    ]  # [{"episode", "tool", "calls"}], in the order in which they were first made or begun
    calls: int  # of all tools, reads too


def unaccounted(log: Path, episodes: Iterable[Episode]) -> Unaccounted:
    """Hold a run's event log against its journal.

    Args:
        log: of all its legs; one that is not there holds nothing.
        episodes: those in the journal.
    """
    begun: Counter[tuple[str, str]] = Counter()
    written: Counter[tuple[str, str]] = Counter()
    read: Counter[tuple[str, str]] = Counter()
    for event in read_events(log):
        call = str(event.get("episode")), str(event.get("tool"))
        match event.get("event"):
            case "body_started":
                begun[call] += 1
            case "body_paused":
                begun[call] -= 1
            case "call" if event.get("provenance") == Provenance.REAL.value:
                (written if event.get("effect") in _WRITES else read)[call] += 1
    made = begun | written  # the larger of both: an earlier version wrote no beginnings
    for episode in episodes:
        for step in episode.transitions:
            if ran(step.answer):
                (made if step.effect.changes_world else read)[episode.id, step.call.tool] -= 1
    lost = {call: calls for call, calls in made.items() if calls > 0}
    return Unaccounted(
        writes=[
            {"episode": episode, "tool": tool, "calls": calls} for (episode, tool), calls in lost.items()
        ],
        calls=sum(lost.values()) + sum(calls for calls in read.values() if calls > 0),
    )
