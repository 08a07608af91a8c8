"""Event sinks of a run: the event log, a fan-out to several sinks, and a null sink.

    run_started       run, graph, tasks, episodes, n, seed, kept, imagined the command
    episode_started   episode                                    the engine
    call              episode, tool, step, provenance, effect    the session
    mining            share: 0..1, of a mining that takes long   the command
    body_started      episode, tool, effect: a real write        the session
    body_paused       the same; it asked a person, and runs again   the session
    finding           episode, finding, text, steps              the grader
    violation         episode ("": outside of any), text         the session
    executed          episode, text                              the journal's writer
    episode_finished  episode, verdict, reason, calls, done, total, finished, imagined   the engine
    lost              episode, attempt, worker, error            the engine's workers
    run_stopping      reason                                     the engine
    run_finished      the totals                                 the command

`finished`: false if a resume runs the episode again.
`imagined`: whether verdicts that count rest on imagined answers.
`kept`: finished episodes of earlier parts of a resumed run, by verdict.

The log is for people and progress. It tells of real writes outside of finished episodes, and how long a run
took; nothing is resumed or judged from it, so it never stops a run: if it cannot be written, it writes no
more and `failed` says why.
"""

import json
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dreamgym_kit.dream.faults import ran
from dreamgym_kit.errors import RunDirectoryError
from dreamgym_kit.interfaces import EventSink
from dreamgym_kit.replay.masking import Masker, process_masker
from dreamgym_kit.rollout.atomic_files import Closing
from dreamgym_kit.rollout.line_log import LineLog, read_lines
from dreamgym_kit.serialization import JsonValue, to_json
from dreamgym_kit.types import Effect, Episode, Source

_spell = json.JSONEncoder(separators=(",", ":")).encode


class NoEvents:
    """A sink that ignores all events."""

    def emit(self, kind: str, /, **facts: JsonValue) -> None:
        """See `EventSink.emit`."""


class FanOut:
    """Pass each event, without secrets, to several sinks; a sink that raises gets no more."""

    def __init__(self, sinks: Sequence[EventSink], masker: Masker | None = None) -> None:
        self._sinks, self._masker = tuple(sinks), masker or process_masker()

    def emit(self, kind: str, /, **facts: JsonValue) -> None:
        """See `EventSink.emit`."""
        facts = self._masker.plain(to_json(facts))
        for sink in self._sinks:
            try:
                sink.emit(kind, **facts)
            except Exception:  # noqa: BLE001  boundary: a broken display must not end a run
                self._sinks = tuple(other for other in self._sinks if other is not sink)


class EventLog(Closing):
    """Append each event as one JSON line: `{"at": <Unix time>, "event": <kind>, ...facts}`."""

    def __init__(self, path: Path) -> None:
        """Open for appending; a torn last line is ended first."""
        self.path = path
        self._lock = threading.Lock()  # sync tools emit from their threads
        self._log = LineLog(path)
        try:
            if self._log.end() < self._log.size:
                self._log.append(b"\n")
        except BaseException:
            self.close()
            raise

    def emit(self, kind: str, /, **facts: JsonValue) -> None:
        """See `EventSink.emit`."""
        head = {"at": round(time.time(), 3), "event": kind}
        event = head | to_json(facts) | head
        line = _spell(event).encode("ascii") + b"\n"
        with self._lock, suppress(RunDirectoryError):  # `failed` reports it
            if not self._log.closed:
                self._log.append(line)

    @property
    def failed(self) -> str | None:
        """Why events are no longer written; None: no error."""
        return None if self._log.failed is None else str(self._log.failed)

    def close(self) -> None:
        """Close the file; safe to call twice; later events are ignored."""
        with self._lock:
            self._log.close()


def read_events(log: Path) -> Iterator[dict[str, Any]]:
    """Yield the events of a log, from all parts of the run; none without a log."""
    for _, line in read_lines(log, torn=True):
        try:
            event = json.loads(line)
        except ValueError:  # torn by a killed process
            continue
        if isinstance(event, dict):
            yield event


def busy_seconds(logs: Iterable[Path]) -> float:
    """Return the seconds that a run ran, from the logs of its shards: each part from start to last event.

    Time between the parts of a resumed run is not counted; time in which several shards ran counts once.
    """
    parts: list[list[float]] = []
    for log in logs:
        mine: list[list[float]] = []
        for event in read_events(log):
            at = event.get("at")
            if not isinstance(at, int | float):
                continue
            if event.get("event") == "run_started":
                mine.append([at, at])
            elif mine and event.get("episode"):  # events outside of episodes may precede a part's start
                mine[-1][1] = max(mine[-1][1], at)
        parts += mine
    whole = until = 0.0
    for began, ended in sorted(parts):
        whole += max(0.0, ended - max(began, until))
        until = max(until, ended)
    return round(whole, 3)


_WRITES = frozenset(effect.value for effect in Effect if effect.changes_environment)


@dataclass(frozen=True, slots=True)
class Unaccounted:
    """Real calls, made or begun, that no finished episode has."""

    writes: list[JsonValue]  # [{"episode", "tool", "calls"}], in order of their first call
    calls: int  # of all tools, including reads


def unaccounted(log: Path, episodes: Iterable[Episode]) -> Unaccounted:
    """Find real writes of episodes that were cut, lost, or run again after an error.

    The event log has every real write when it began and every call when it was answered; the journal has the
    calls of finished episodes.

    Args:
        log: of all parts; a missing log has no events.
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
            case "call" if event.get("source", event.get("provenance")) == Source.REAL.value:
                (written if event.get("effect") in _WRITES else read)[call] += 1
    made = begun | written  # the larger count: an earlier version logged no beginnings
    for episode in episodes:
        for step in episode.transitions:
            if ran(step.answer):
                (made if step.effect.changes_environment else read)[episode.id, step.call.tool] -= 1
    lost = {call: calls for call, calls in made.items() if calls > 0}
    return Unaccounted(
        writes=[
            {"episode": episode, "tool": tool, "calls": calls} for (episode, tool), calls in lost.items()
        ],
        calls=sum(lost.values()) + sum(calls for calls in read.values() if calls > 0),
    )
