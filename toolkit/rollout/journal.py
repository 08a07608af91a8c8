"""An episode as a JSON object, and the append-only journal of those that are finished.

The episode's digest is stored with its fields and checked on reading: an edited or mixed-up record is an
error that names it.

Episodes in the journal are done; others run again. A line is
`{"journal":1,"sum":"<16 hex>","episode":{...}}` and a line end, in one write, so that a killed process leaves
whole lines and at most one torn one. The checksum covers the episode's bytes, so a half-written line that
happens to be JSON is also torn. A torn last line is dropped and its episode runs again; a damaged line with
others after it is an error, since no kill causes that. The first record of an episode counts, with two
exceptions for which the last one counts: a record of an executed real call is written as soon as the call is
noticed, and again with more facts; a record with the verdict `error` is replaced by the result of a resume.
"""

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from dreamgym_kit.bounded_json import read_own_json
from dreamgym_kit.canonical import canonical
from dreamgym_kit.codec import Codec
from dreamgym_kit.errors import NotSerializable, RunDirectoryError
from dreamgym_kit.replay.masking import Masker
from dreamgym_kit.replay.records import TRANSITIONS
from dreamgym_kit.rollout.atomic_files import Closing
from dreamgym_kit.rollout.jobs import ERRORS
from dreamgym_kit.rollout.line_log import LineLog, read_lines
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.types import SCHEMA_VERSION, Episode, Verdict

EPISODES = Codec(
    Episode, schema=SCHEMA_VERSION, computed="digest", always_computed=True, nested=(TRANSITIONS,)
)
RENAMED_FIELDS = {"undetermined": "inconclusive"}
"""Field names in records of earlier versions, with their current names."""


def episode_to_record(episode: Episode) -> dict[str, JsonValue]:
    """Return an episode as a JSON object with every field and its digest.

    Raises:
        NotSerializable: a value in it has no JSON form.
    """
    canonical(episode.final)  # not part of the digest, so check here that it can be written
    return EPISODES.write(episode)


def episode_from_record(record: object) -> Episode:
    """Read what `episode_to_record` wrote.

    Raises:
        NotSerializable: names the missing, wrong or unknown field, another schema, or a wrong digest.
    """
    episode = EPISODES.read(record, label="an episode")
    if episode.verdict is Verdict.INCONCLUSIVE and episode.stop in ERRORS:  # once no verdict `error`
        return replace(episode, verdict=Verdict.ERROR)
    return episode


def masked_episode(episode: Episode, masker: Masker) -> Episode:
    """Return the episode with secrets masked; its transitions already are."""
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


JOURNAL_VERSION = 1
MAX_LINE = 128 * 2**20  # bytes of one episode; writer and reader have the same limit

_spell = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
_LINE = re.compile(rb'\{"journal":(\d{1,9}),"sum":"([0-9a-f]{16})","episode":(.*)\}\n', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Done:
    """Facts of a journaled episode that a run needs."""

    verdict: Verdict
    calls: int
    cost_usd: float
    attempt: int
    imagined: bool = False  # whether its verdict counts and rests on imagined answers


@dataclass(frozen=True, slots=True)
class TornLine:
    """A journal's last line that was not written completely."""

    line: int  # 1-based
    start: int  # bytes before it
    length: int

    def __str__(self) -> str:
        return f"line {self.line} was half-written ({self.length} bytes); its episode is run again"


class JournalReader:
    """Iterate the episodes of a journal, each once, in order of finishing, one line in memory.

    A missing journal has no episodes. After the iteration `torn` describes a torn last line.

    Raises:
        RunDirectoryError: a line in the middle is damaged, or of another version; names file and line.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.torn: TornLine | None = None

    def __iter__(self) -> Iterator[Episode]:
        self.torn = None
        seen: set[str] = set()
        replaceable: dict[str, Episode] = {}  # yielded last, since a later record may replace them
        for number, body in self._bodies():
            episode = self._episode(body, number)
            earlier = replaceable.get(episode.id)
            final = episode.id in seen if earlier is None else bool(earlier.executed)
            if final and not (earlier is not None and episode.executed):
                continue
            seen.add(episode.id)
            if episode.executed or episode.verdict is Verdict.ERROR:
                replaceable[episode.id] = episode
                continue
            replaceable.pop(episode.id, None)
            yield episode
        yield from replaceable.values()

    def _bodies(self) -> Iterator[tuple[int, bytes]]:
        lines = read_lines(self.path, longest=MAX_LINE + 1, torn=True)
        for number, (start, line) in enumerate(lines, start=1):
            body = self._whole(line, number)
            if body is not None:
                yield number, body
            elif next(lines, None) is not None:
                self._damaged(number, "its checksum does not match")
            else:
                self.torn = TornLine(number, start, len(line))

    def _whole(self, line: bytes, number: int) -> bytes | None:
        """Return the episode's bytes; None if the line is damaged."""
        parts = _LINE.fullmatch(line)
        if parts is None:
            return None
        version, checksum, body = int(parts[1]), parts[2], parts[3]
        if version != JOURNAL_VERSION:
            raise RunDirectoryError(
                f"{self.path}:{number}: written in journal version {version}, this version reads "
                f"{JOURNAL_VERSION}; use the dreamgym-kit that wrote it."
            )
        return body if _checksum(body) == checksum else None

    def _episode(self, body: bytes, number: int) -> Episode:
        try:  # the kit wrote these bytes, and the checksum matches
            return episode_from_record(read_own_json(body))
        except NotSerializable as error:
            self._damaged(number, str(error))

    def _damaged(self, number: int, why: str) -> NoReturn:
        raise RunDirectoryError(
            f"{self.path}:{number}: this line is damaged: {why}; remove it to have its episode run again."
        )


class Journal(Closing):
    """The journal of a current run. The run directory's lock makes it the only writer.

    Attributes:
        done: facts of the journaled episodes, by ID.
        executed: episodes with an executed real call, as last written by this part of the run, by ID.
        torn: the torn last line that was removed on opening, or None.
    """

    def __init__(self, path: Path) -> None:
        """Open for appending; create the file if absent, remove a torn last line."""
        self.path = path
        self._lock = threading.Lock()  # a real call may be noticed in a tool's thread
        self.executed: dict[str, Episode] = {}
        self._log = LineLog(path)
        try:
            reader = JournalReader(path)
            self.done = {episode.id: _done(episode) for episode in reader}
            self.torn = reader.torn
            if self.torn is not None:
                self._log.cut(self.torn.start)
        except BaseException:
            self.close()
            raise

    def append(self, episode: Episode) -> bool:
        """Write a finished episode before returning; return False if it was already there.

        Raises:
            NotSerializable: the episode has a value without JSON form, or is too large; nothing was
                written.
            RunDirectoryError: the disk refuses; earlier lines stay, later appends are refused.
        """
        with self._lock:
            before = self.executed.get(episode.id)
            if episode.executed:  # reported even if the disk refuses
                self.executed[episode.id] = episode
            if before is not None and before.digest == episode.digest:
                return False
            if not (self.next_attempt(episode.id) or (before and episode.executed)):
                return False
            # other lines survive a killed process, but not a crash of the machine
            self._log.append(_line(episode), sync=bool(episode.executed))
            self.done[episode.id] = _done(episode)
            return True

    def next_attempt(self, episode: str, first: int = 1) -> int:
        """Return the number of an episode's next attempt; 0 if it needs none."""
        done = self.done.get(episode)
        if done is None:
            return first
        return done.attempt + 1 if done.verdict is Verdict.ERROR else 0

    def close(self) -> None:
        """Close the file; safe to call twice."""
        self._log.close()


def _line(episode: Episode) -> bytes:
    record = episode_to_record(episode)
    try:
        body = _spell(record).encode("ascii")
    except (TypeError, ValueError, RecursionError) as error:
        raise NotSerializable(f"episode {episode.id!a} cannot be written as JSON: {error}") from None
    line = b'{"journal":%d,"sum":"%s","episode":%s}\n' % (JOURNAL_VERSION, _checksum(body), body)
    if len(line) > MAX_LINE:
        raise NotSerializable(f"episode {episode.id!a} is larger than {MAX_LINE} bytes")
    return line


def _checksum(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest()[:16].encode("ascii")


def _done(episode: Episode) -> Done:
    calls, cost, imagined = len(episode.transitions), episode.cost_usd, episode.rests_on_imagined
    return Done(episode.verdict, calls, cost, episode.attempt, imagined)
