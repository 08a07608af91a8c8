"""Failures that are no denial: a read may fail about a thing that is there ("no parcel was sent for o7 yet").

Found in recordings: the same form of failure, about a thing that the same episode had told of before, with no
write between, in at least two worlds.
"""

from collections import defaultdict
from collections.abc import Iterable

from dreamgym_kit.dream.state.entities import records
from dreamgym_kit.dream.state.history import RecordedEpisode
from dreamgym_kit.dream.state.models import ToolModels
from dreamgym_kit.dream.state.values import is_key, spell

_MIN_WORLDS = 2


def no_denials(models: ToolModels, episodes: Iterable[RecordedEpisode]) -> frozenset[tuple[str, str]]:
    """By read and form of its failure, those that recordings show of things that were there."""
    worlds: dict[tuple[str, str], set[str]] = defaultdict(set)
    for episode in episodes:
        told: set[tuple[str, str]] = set()
        for step in episode.steps:
            if step.writes:
                told.clear()  # one that deletes a thing may take others with it
            elif step.failed:
                about = {(str(value), name) for name, value in step.args.items() if is_key(value)}
                if any(one[0] in spell(step.seen) for one in about & told):
                    worlds[step.tool, models.form(step)].add(episode.world)
            else:
                told.update((record.entity, record.named) for record in records(step.seen, step.args))
    return frozenset(failure for failure, where in worlds.items() if len(where) >= _MIN_WORLDS)
