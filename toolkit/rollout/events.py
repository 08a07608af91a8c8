"""Who hears what happens in a run: the event log, several sinks at once, or nobody.

    run_started       run, graph, tasks, episodes, n, seed, kept the command
    episode_started   episode                                    the engine
    call              episode, tool, step, provenance, effect    the gate's session
    body_started      episode, tool, effect: a real write        the gate's session
    body_paused       the same; it asked a person, and runs again   the gate's session
    finding           episode, finding, text, steps              whoever judges
    violation         episode ("": outside of any), text         the gate's session
    executed          episode, text                              whoever keeps the journal
    episode_finished  episode, verdict, reason, calls, done, total, finished   the engine
    lost              episode, attempt, worker, error            the engine's workers
    run_stopping      reason                                     the engine
    run_finished      the totals                                 the command

`finished`: false where a resume runs the episode again.
`kept`: episodes by verdict that earlier parts of a resumed run finished, and that are not run again.

The log is for people and progress, and tells of real writes that no finished episode accounts for, and how
long a run took; nothing is resumed or judged from it, so it never stops a run: where it cannot be written it
falls silent and says so in `failed`.
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
    """Hears nothing."""

    def emit(self, kind: str, /, **facts: JsonValue) -> None:
        """See `EventSink.emit`."""


class FanOut:
    """Gives each event, without secrets, to several sinks; one that raises hears nothing more."""

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
    """Appends each event as one JSON line: `{"at": <Unix time>, "event": <kind>, ...facts}`."""

    def __init__(self, path: Path) -> None:
        """Open for appending; a line that a killed process left half-written is ended first."""
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
        with self._lock, suppress(RunDirectoryError):  # `failed` says it
            if not self._log.closed:
                self._log.append(line)

    @property
    def failed(self) -> str | None:
        """Why nothing is written any more, None while all is well."""
        return None if self._log.failed is None else str(self._log.failed)

    def close(self) -> None:
        """Close the file; calling it twice does no harm, later events are not written."""
        with self._lock:
            self._log.close()


def read_events(log: Path) -> Iterator[dict[str, Any]]:
    """Give the events of a log, of all its legs; none where there is no log."""
    for _, line in read_lines(log, torn=True):
        try:
            event = json.loads(line)
        except ValueError:  # a killed process left it half-written
            continue
        if isinstance(event, dict):
            yield event


def busy_seconds(logs: Iterable[Path]) -> float:
    """How long a run ran, by the logs of its shards: each part from its start to its last event.

    Time between the parts of a resumed run is not counted, and time in which several shards ran only once.
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
            elif mine and event.get("episode"):  # what belongs to no episode may come before a part starts
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
    """What was done for real, or begun, and stands in no finished episode."""

    writes: list[
        JsonValue
    ]  # [{"episode", "tool", "calls"}], in the order in which they were first made or begun
    calls: int  # of all tools, reads too


def unaccounted(log: Path, episodes: Iterable[Episode]) -> Unaccounted:
    """Find real writes of episodes that were cut, lost, or run again after an error.

    The event log has every real write as it began and every call as it was answered, the journal the calls of
    finished episodes.

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
            case "call" if event.get("source", event.get("provenance")) == Source.REAL.value:
                (written if event.get("effect") in _WRITES else read)[call] += 1
    made = begun | written  # the larger of both: an earlier version wrote no beginnings
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
