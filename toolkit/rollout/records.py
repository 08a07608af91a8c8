"""An episode as one JSON object, and back: what the journal keeps and a report reads.

The episode's digest is written beside its fields and compared on reading: a record that was edited or mixed
up is named.
"""

from dataclasses import replace

from dreamgym_kit.canonical import canonical
from dreamgym_kit.codec import Codec
from dreamgym_kit.plain import JsonValue
from dreamgym_kit.replay.records import TRANSITIONS
from dreamgym_kit.rollout.jobs import ERRORS
from dreamgym_kit.vocabulary import SCHEMA_VERSION, Episode, Spend, Verdict

EPISODES = Codec(
    Episode, schema=SCHEMA_VERSION, computed="digest", always_computed=True, nested=(TRANSITIONS,)
)
SPENDS = Codec(Spend)
RENAMED_FIELDS = {"undetermined": "inconclusive"}
"""Fields of records that earlier versions wrote, by name, with what each is called now."""


def episode_to_record(episode: Episode) -> dict[str, JsonValue]:
    """Give an episode as a JSON object with every field and its digest.

    Raises:
        NotJson: a value in it has no JSON form.
    """
    canonical(episode.final)  # the digest leaves it out: what cannot be written is refused here
    return EPISODES.write(episode)


def episode_from_record(record: object) -> Episode:
    """Read what `episode_to_record` wrote.

    Raises:
        NotJson: names the missing, wrong or unknown field, another schema, or a digest that the
            content does not have.
    """
    episode = EPISODES.read(record, what="an episode")
    if episode.verdict is Verdict.INCONCLUSIVE and episode.stop in ERRORS:  # an earlier version had no errors
        return replace(episode, verdict=Verdict.ERROR)
    return episode
