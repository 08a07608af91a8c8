"""Episodes and events without secrets: what is journaled, reported and shown."""

from dataclasses import replace

from dreamgym_kit.plain import JsonValue, to_plain
from dreamgym_kit.ports import EventSink
from dreamgym_kit.replay.masking import Masker
from dreamgym_kit.vocabulary import Episode, Finding


def masked_episode(episode: Episode, masker: Masker) -> Episode:
    """The episode as it may be kept; its transitions were masked when they were."""
    return replace(
        episode,
        reason=masker.text(episode.reason),
        messages=tuple(masker.plain(list(episode.messages))),
        violations=tuple(masker.text(text) for text in episode.violations),
        executed=tuple(replace(call, args=masker.plain(dict(call.args))) for call in episode.executed),
        findings=tuple(_finding(found, masker) for found in episode.findings),
        traceback=tuple(masker.text(line) for line in episode.traceback),
        final=masker.plain(episode.final),
        user_turns=tuple(
            replace(turn, asked=masker.plain(turn.asked), answer=masker.plain(turn.answer))
            for turn in episode.user_turns
        ),
    )


def _finding(found: Finding, masker: Masker) -> Finding:
    return replace(found, text=masker.text(found.text))


class MaskedEvents:
    """Implements `ports.EventSink`: another sink, which hears no secrets."""

    def __init__(self, sink: EventSink, masker: Masker) -> None:
        self._sink, self._masker = sink, masker

    def emit(self, kind: str, /, **facts: JsonValue) -> None:
        """See `EventSink.emit`."""
        told = {name: self._masker.plain(to_plain(fact)) for name, fact in facts.items()}
        self._sink.emit(kind, **told)
