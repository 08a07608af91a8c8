"""The directory of one run: which files there are, who may write them, and when a run may go on.

    manifest.json   what the run is              written first, atomically, never changed
    episodes.jsonl  its finished episodes        `journal`
    events.jsonl    what happened, as it did     `events`
    trials.json     held-out calls that the dream's model was asked, where it was; written once, atomically
    report.json     what came out                written at the end, atomically
    lock            held while somebody writes   `lock`

No name on disk comes from a task, an episode or a tool: those ids live inside the files. The name of the
directory itself is used only where it is plain; any other becomes a digest.
"""

import re
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Self

from dreamgym_kit.canonical import digest
from dreamgym_kit.codec import Codec
from dreamgym_kit.dream.reasoned_support import CEILING, ReasonedTrial
from dreamgym_kit.errors import NotJson, RunDirectoryError
from dreamgym_kit.jsonread import read_json
from dreamgym_kit.plain import JsonValue
from dreamgym_kit.rollout.events import EventLog
from dreamgym_kit.rollout.files import read_whole, refused, write_atomically
from dreamgym_kit.rollout.journal import Journal, JournalReader
from dreamgym_kit.rollout.lock import RunLock
from dreamgym_kit.rollout.manifest import MANIFESTS, Manifest, differences, spell
from dreamgym_kit.vocabulary import Spend

MANIFEST = "manifest.json"
EPISODES = "episodes.jsonl"
EVENTS = "events.jsonl"
TRIALS = "trials.json"
REPORT = "report.json"
LOCK = "lock"

_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)", re.IGNORECASE)  # devices, where Windows shares it


@dataclass(frozen=True, slots=True)
class _Trials:
    """The file `TRIALS`."""

    trials: tuple[ReasonedTrial, ...]
    spend: Spend


_TRIALS = Codec(_Trials)


class RunDirectory:
    """One run on disk. `create` and `resume` hold its lock until `close`; `open` only reads."""

    def __init__(self, path: Path, manifest: Manifest, lock: RunLock | None) -> None:
        """Use `create`, `open` or `resume`."""
        self.path = path
        self.manifest = manifest
        self._lock = lock

    @classmethod
    def create(cls, root: Path, name: str, manifest: Manifest) -> Self:
        """Make the directory of a new run below `root` and lock it.

        Raises:
            RunDirectoryError: it is there already, or cannot be written.
        """
        path = root / directory_name(name)
        content = spell(MANIFESTS.write(manifest))
        _make(root, path)
        try:
            lock = RunLock(path / LOCK)
            write_atomically(path / MANIFEST, content)
        except RunDirectoryError:
            with suppress(OSError):  # leave no directory behind that is no run
                (path / LOCK).unlink(missing_ok=True)
                path.rmdir()
            raise
        return cls(path, manifest, lock)

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open a run for reading, also while another process writes it.

        Raises:
            RunDirectoryError: it is no run directory, or of another schema.
        """
        return cls(path, _read_manifest(path), None)

    @classmethod
    def resume(cls, path: Path, manifest: Manifest) -> Self:
        """Open a run to go on with it, with the settings that it was begun with; holds its lock.

        Raises:
            RunDirectoryError: it is no run directory, a link to one, in use (by whom), of another
                schema, or was begun with other settings (which).
        """
        if path.is_symlink():
            raise RunDirectoryError(f"{path}: is a link; name the run directory itself.")
        _read_manifest(path)
        lock = RunLock(path / LOCK)
        try:
            there = _read_manifest(path)
            found = differences(there.matters, manifest.matters)
            if found:
                raise RunDirectoryError(
                    f"{path}: was begun with other settings: {'; '.join(found)}. "
                    "Resume with the old ones, or begin a new run."
                )
        except BaseException:
            lock.release()
            raise
        return cls(path, there, lock)

    def journal(self, *, fsync: bool = False) -> Journal:
        """Open the journal for appending; a torn last line is cut off."""
        self._must_be_locked()
        return Journal(self.path / EPISODES, fsync=fsync)

    def events(self) -> EventLog:
        """Open the event log for appending."""
        self._must_be_locked()
        return EventLog(self.path / EVENTS)

    def episodes(self) -> JournalReader:
        """The finished episodes, streamed, in the order finished; see `JournalReader`."""
        return JournalReader(self.path / EPISODES)

    def write_report(self, report: Mapping[str, JsonValue]) -> Path:
        """Put the report in its place, in one step."""
        self._must_be_locked()
        try:
            write_atomically(self.path / REPORT, spell(report))
        except NotJson as error:
            raise RunDirectoryError(f"{self.path / REPORT}: {error}.") from None
        return self.path / REPORT

    def read_report(self) -> Mapping[str, JsonValue] | None:
        """The report, None while the run has none."""
        return _read_object(self.path / REPORT)

    def write_trials(self, trials: Sequence[ReasonedTrial], spend: Spend) -> None:
        """Keep how the dream's model did on held-out calls, and the cost: a resumed run asks none again."""
        self._must_be_locked()
        write_atomically(self.path / TRIALS, spell(_TRIALS.write(_Trials(tuple(trials), spend))))

    def read_trials(self) -> tuple[list[ReasonedTrial], Spend] | None:
        """What `write_trials` kept; None where nothing was asked yet.

        Raises:
            RunDirectoryError: the file is not what was written.
        """
        record = _read_object(self.path / TRIALS)
        if record is None:
            return None
        try:
            kept = _TRIALS.read(record)
            for place, trial in enumerate(kept.trials):
                if trial.form not in CEILING:
                    raise NotJson(f"trials[{place}].form: no such form")
            return list(kept.trials), kept.spend
        except NotJson as error:
            raise RunDirectoryError(f"{self.path / TRIALS}: {error}.") from None

    def discard_unused(self) -> None:
        """Remove a run in which nothing was begun, so that it does not stand as the latest one.

        What holds anything stays: an event, an episode, a file that somebody left in a folder of it.
        """
        self._must_be_locked()
        logs = (self.path / EVENTS, self.path / EPISODES)
        if any(log.exists() and log.stat().st_size for log in logs):
            return
        with suppress(OSError):
            for folder in [path for path in self.path.iterdir() if path.is_dir()]:
                folder.rmdir()
            for name in (EVENTS, EPISODES, MANIFEST, LOCK):
                (self.path / name).unlink(missing_ok=True)
            self.path.rmdir()

    def close(self) -> None:
        """Give the lock back; calling it twice does no harm."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _must_be_locked(self) -> None:
        if self._lock is None:
            raise RunDirectoryError(f"{self.path}: opened for reading only; resume the run to write to it.")


def _make(root: Path, path: Path) -> None:
    try:
        root.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise RunDirectoryError(f"{root}: is no folder, and runs are kept in one; name another.") from None
    except OSError as error:
        raise refused(root, "cannot be made", error) from error
    try:
        path.mkdir()
    except FileExistsError:
        raise RunDirectoryError(f"{path}: is there already; resume it or choose another name.") from None
    except OSError as error:
        raise refused(path, "cannot be made", error) from error


def half_made(path: Path) -> bool:
    """Whether a kill cut off the making of a run directory there: no manifest yet, and nothing else."""
    if path.is_symlink() or not path.is_dir():
        return False
    return {one.name for one in path.iterdir()} <= {LOCK, f".{MANIFEST}.new"}


def directory_name(name: str) -> str:
    """A name that stays where it is put: plain names as they are, any other by its digest."""
    if _PLAIN_NAME.fullmatch(name) and not _RESERVED.fullmatch(name):
        return name
    return f"run-{digest(name)[:16]}"


def new_run(root: Path, label: str, today: date) -> tuple[str, str]:
    """Choose (run id, directory name) for a new run below `root`: ("7f3a", "2026-11-21-desk-7f3a")."""
    slug = re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-")[:40].strip("-") or "run"
    width = 2
    while True:
        run = secrets.token_hex(width)
        name = f"{today.isoformat()}-{slug}-{run}"
        if not (root / name).exists():
            return run, name
        width = min(width + 1, 8)


def latest_run(root: Path) -> Path:
    """The run below `root` that was begun last.

    Raises:
        RunDirectoryError: there is none.
    """
    begun: list[tuple[float, str, Path]] = []
    for path in root.iterdir() if root.is_dir() else ():
        if path.is_symlink() or not (path / MANIFEST).is_file():
            continue
        try:
            begun.append((_read_manifest(path).created_at, path.name, path))
        except RunDirectoryError:
            continue  # one unreadable run must not hide the others
    if not begun:
        raise RunDirectoryError(f"{root}: holds no run yet; begin one with dreamgym-kit simulate.")
    return max(begun)[2]


def _read_manifest(path: Path) -> Manifest:
    record = _read_object(path / MANIFEST) if path.is_dir() else None
    if record is None:
        raise RunDirectoryError(f"{path}: is not a run directory (it has no {MANIFEST}).")
    try:
        return MANIFESTS.read(record)
    except NotJson as error:
        raise RunDirectoryError(f"{path / MANIFEST}: {error}.") from None


def _read_object(path: Path) -> Mapping[str, JsonValue] | None:
    try:
        record = read_json(read_whole(path))
    except FileNotFoundError:
        return None
    except NotJson as error:
        raise RunDirectoryError(f"{path}: {error}.") from None
    if not isinstance(record, dict):
        raise RunDirectoryError(f"{path}: holds no JSON object.")
    return record
