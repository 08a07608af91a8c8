"""Real writes that no finished episode accounts for: of one that was cut, lost, or run again after an error.

The event log has every call as it was answered, the journal the calls of finished episodes; the difference is
what changed the real system and stands in no episode. A call that was never answered is in neither.
"""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from dreamgym_kit.plain import JsonValue
from dreamgym_kit.rollout.events import read_events
from dreamgym_kit.vocabulary import Effect, Episode, Provenance

_WRITES = frozenset(effect.value for effect in Effect if effect.changes_world)


def unaccounted_writes(log: Path, episodes: Iterable[Episode]) -> list[JsonValue]:
    """Give `[{"episode", "tool", "calls"}]`, in the order in which the calls were first made.

    Args:
        log: the run's event log, of all its legs; one that is not there holds nothing.
        episodes: those in the journal.
    """
    made: Counter[tuple[str, str]] = Counter()
    for event in read_events(log):
        real = event.get("provenance") == Provenance.REAL.value and event.get("effect") in _WRITES
        if event.get("event") == "call" and real:
            made[str(event.get("episode")), str(event.get("tool"))] += 1
    for episode in episodes:
        for step in episode.transitions:
            if step.effect.changes_world and step.answer.provenance is Provenance.REAL:
                made[episode.id, step.call.tool] -= 1
    return [
        {"episode": episode, "tool": tool, "calls": calls}
        for (episode, tool), calls in made.items()
        if calls > 0
    ]
