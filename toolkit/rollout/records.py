"""What is journaled, reported and shown: an episode as a JSON object, and without secrets.

The episode's digest is written beside its fields and compared on reading: a record that was edited or mixed
up is named.
"""

from dataclasses import replace

from dreamgym_kit.canonical import canonical
from dreamgym_kit.codec import Codec
from dreamgym_kit.replay.masking import Masker
from dreamgym_kit.replay.records import TRANSITIONS
from dreamgym_kit.rollout.jobs import ERRORS
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.types import SCHEMA_VERSION, Episode, Verdict

EPISODES = Codec(
    Episode, schema=SCHEMA_VERSION, computed="digest", always_computed=True, nested=(TRANSITIONS,)
)
RENAMED_FIELDS = {"undetermined": "inconclusive"}
"""Fields of records that earlier versions wrote, by name, with what each is called now."""


def episode_to_record(episode: Episode) -> dict[str, JsonValue]:
    """Give an episode as a JSON object with every field and its digest.

    Raises:
        NotSerializable: a value in it has no JSON form.
    """
    canonical(episode.final)  # the digest leaves it out: what cannot be written is refused here
    return EPISODES.write(episode)


def episode_from_record(record: object) -> Episode:
    """Read what `episode_to_record` wrote.

    Raises:
        NotSerializable: names the missing, wrong or unknown field, another schema, or a digest that the
            content does not have.
    """
    episode = EPISODES.read(record, what="an episode")
    if episode.verdict is Verdict.INCONCLUSIVE and episode.stop in ERRORS:  # an earlier version had no errors
        return replace(episode, verdict=Verdict.ERROR)
    return episode


def masked_episode(episode: Episode, masker: Masker) -> Episode:
    """The episode as it may be kept; its transitions were masked when they were."""
    return replace(
        episode,
        reason=masker.text(episode.reason),
        messages=tuple(masker.plain(list(episode.messages))),
        violations=tuple(masker.text(text) for text in episode.violations),
        executed=tuple(replace(call, args=masker.plain(dict(call.args))) for call in episode.executed),
        findings=tuple(replace(finding, text=masker.text(finding.text)) for finding in episode.findings),
        traceback=tuple(masker.text(line) for line in episode.traceback),
        final=masker.plain(episode.final),
        user_turns=tuple(
            replace(turn, asked=masker.plain(turn.asked), answer=masker.plain(turn.answer))
            for turn in episode.user_turns
        ),
    )
