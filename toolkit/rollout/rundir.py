"""The directory of one run: its files, their writers, and when a run may continue.

    manifest.json   what the run is              written first, atomically, never changed
    episodes.jsonl  finished episodes            `journal`
    events.jsonl    events in order             `events`
    trials.json     held-out calls that test the dream's model, if any; written once, atomically
    report.json     the results                   written at the end, atomically
    lock            locked by the writer         `lock`

In the manifest `matters` has the settings that episodes depend on (graph, digest of the tasks, n, seed,
thresholds): resuming with others would mix two runs. `about` has the rest (versions, machine, concurrency,
budgets).

No file name comes from a task, an episode or a tool: their IDs are inside the files. The directory's own name
is used only if it is plain; any other becomes a digest.
"""

import json
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Self

from dreamgym_kit.bounded_json import read_json
from dreamgym_kit.canonical import canonical, digest
from dreamgym_kit.codec import Codec
from dreamgym_kit.dream.calibration import CEILING, ReasonedTrial
from dreamgym_kit.errors import NotSerializable, RunDirectoryError
from dreamgym_kit.rollout.atomic_files import Closing, RunLock, read_whole, refused, write_atomically
from dreamgym_kit.rollout.events import EventLog
from dreamgym_kit.rollout.journal import Journal, JournalReader
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.types import Spend

RUN_SCHEMA = 1
TRAINING = "train"  # mode of a training, whose steps are runs in its directory
MAX_DIFFERENCES = 10
_ABSENT = "not set"


@dataclass(frozen=True, slots=True)
class Manifest:
    """The first file of a run directory."""

    run: str  # short id of the run, "7f3a"
    created_at: float  # Unix time, seconds
    matters: Mapping[str, JsonValue]  # must be equal in a resume
    about: Mapping[str, JsonValue] = field(default_factory=dict)
    schema: int = RUN_SCHEMA


MANIFESTS = Codec(Manifest, schema=RUN_SCHEMA)


def differences(
    there: Mapping[str, JsonValue],
    here: Mapping[str, JsonValue],
    *,
    sides: tuple[str, str] = ("there", "here"),
) -> list[str]:
    """Return each field in which two settings differ, by its path: "seed: 7 there, 8 here"."""
    old, new = dict(_leaves(there, ())), dict(_leaves(here, ()))
    lines = []
    for path in sorted(old.keys() | new.keys()):
        before, now = old.get(path, _ABSENT), new.get(path, _ABSENT)
        if before != now:
            lines.append(f"{'.'.join(path)}: {_short(before)} {sides[0]}, {_short(now)} {sides[1]}")
    if len(lines) > MAX_DIFFERENCES:
        return [*lines[:MAX_DIFFERENCES], f"and {len(lines) - MAX_DIFFERENCES} more"]
    return lines


def _leaves(value: JsonValue, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield each leaf as (path, canonical JSON); an empty object is a leaf."""
    if isinstance(value, Mapping) and (value or not path):
        for key, item in value.items():
            yield from _leaves(item, (*path, key))
    else:
        yield path, canonical(value)


def _short(spelling: str) -> str:
    if len(spelling) <= 60:
        return spelling
    return f"{spelling[:40]}... ({len(spelling)} characters)"


def spell(record: Mapping[str, JsonValue]) -> bytes:
    """Serialize an object as readable JSON for a file.

    Raises:
        NotSerializable: a value in it has no JSON form.
    """
    try:
        return (json.dumps(record, indent=2, allow_nan=False) + "\n").encode("ascii")
    except (TypeError, ValueError, RecursionError) as error:
        raise NotSerializable(f"cannot be written as JSON: {error}") from None


MANIFEST = "manifest.json"
EPISODES = "episodes.jsonl"
EVENTS = "events.jsonl"
TRIALS = "trials.json"
REPORT = "report.json"
LOCK = "lock"

_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)", re.IGNORECASE)  # device names on Windows


@dataclass(frozen=True, slots=True)
class _Trials:
    """The file `TRIALS`."""

    trials: tuple[ReasonedTrial, ...]
    spend: Spend


_TRIALS = Codec(_Trials)


class RunDirectory(Closing):
    """One run on disk. `create` and `resume` lock it until `close`; `open` only reads."""

    def __init__(self, path: Path, manifest: Manifest, lock: RunLock | None) -> None:
        """Use `create`, `open` or `resume`."""
        self.path = path
        self.manifest = manifest
        self._lock = lock

    @property
    def mode(self) -> str:
        """The run's mode: "simulate", "train", ...; "" if unknown."""
        return str(self.manifest.matters.get("mode") or "")

    @classmethod
    def create(cls, root: Path, name: str, manifest: Manifest) -> Self:
        """Create the directory of a new run below `root` and lock it.

        Raises:
            RunDirectoryError: it exists, or cannot be written.
        """
        path = root / directory_name(name)
        content = spell(MANIFESTS.write(manifest))
        _make(root, path)
        try:
            lock = RunLock(path / LOCK)
            write_atomically(path / MANIFEST, content)
        except RunDirectoryError:
            with suppress(OSError):  # leave no directory without a run
                (path / LOCK).unlink(missing_ok=True)
                path.rmdir()
            raise
        return cls(path, manifest, lock)

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open a run for reading, also while another process writes it.

        Raises:
            RunDirectoryError: not a run directory, or of another schema.
        """
        return cls(path, _read_manifest(path), None)

    @classmethod
    def resume(cls, path: Path, manifest: Manifest) -> Self:
        """Open and lock a run to continue it with its original settings.

        Raises:
            RunDirectoryError: not a run directory, a link to one, in use (by whom), of another schema, or
            begun
                with other settings (which).
        """
        if path.is_symlink():
            raise RunDirectoryError(f"{path}: is a link; give the run directory itself.")
        _read_manifest(path)
        lock = RunLock(path / LOCK)
        try:
            there = _read_manifest(path)
            changes = differences(there.matters, manifest.matters)
            if changes:
                raise RunDirectoryError(
                    f"{path}: was begun with other settings: {'; '.join(changes)}. "
                    "Resume with the old settings, or begin a new run."
                )
        except BaseException:
            lock.close()
            raise
        return cls(path, there, lock)

    def journal(self) -> Journal:
        """Open the journal for appending; a torn last line is removed."""
        self._must_be_locked()
        return Journal(self.path / EPISODES)

    def events(self) -> EventLog:
        """Open the event log for appending."""
        self._must_be_locked()
        return EventLog(self.path / EVENTS)

    def episodes(self) -> JournalReader:
        """Return the finished episodes as a stream, in order of finishing; see `JournalReader`."""
        return JournalReader(self.path / EPISODES)

    def write_report(self, report: Mapping[str, JsonValue]) -> Path:
        """Write the report atomically."""
        self._must_be_locked()
        try:
            write_atomically(self.path / REPORT, spell(report))
        except NotSerializable as error:
            raise RunDirectoryError(f"{self.path / REPORT}: {error}.") from None
        return self.path / REPORT

    def read_report(self) -> Mapping[str, JsonValue] | None:
        """Return the report; None if the run has none yet."""
        return _read_object(self.path / REPORT)

    def write_trials(self, trials: Sequence[ReasonedTrial], spend: Spend) -> None:
        """Write the model's results on held-out calls, and their cost: a resumed run repeats none."""
        self._must_be_locked()
        write_atomically(self.path / TRIALS, spell(_TRIALS.write(_Trials(tuple(trials), spend))))

    def read_trials(self) -> tuple[list[ReasonedTrial], Spend] | None:
        """Return the results of `write_trials`; None if there are none yet.

        Raises:
            RunDirectoryError: the file is damaged.
        """
        record = _read_object(self.path / TRIALS)
        if record is None:
            return None
        try:
            trials = _TRIALS.read(record)
            for place, trial in enumerate(trials.trials):
                if trial.form not in CEILING:
                    raise NotSerializable(f"trials[{place}].form: unknown form")
            return list(trials.trials), trials.spend
        except NotSerializable as error:
            raise RunDirectoryError(f"{self.path / TRIALS}: {error}.") from None

    def discard_unused(self) -> None:
        """Remove a run in which nothing began, so that it does not become the latest run.

        A directory with an event, an episode or a foreign file stays.
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
        """Release the lock; safe to call twice."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _must_be_locked(self) -> None:
        if self._lock is None:
            raise RunDirectoryError(f"{self.path}: opened read-only; resume the run to write to it.")


def _make(root: Path, path: Path) -> None:
    try:
        root.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise RunDirectoryError(f"{root}: is not a folder; choose a folder for runs.") from None
    except OSError as error:
        raise refused(root, "cannot be created", error) from error
    try:
        path.mkdir()
    except FileExistsError:
        raise RunDirectoryError(f"{path}: already exists; resume it or choose another name.") from None
    except OSError as error:
        raise refused(path, "cannot be created", error) from error


def half_made(path: Path) -> bool:
    """Return whether a kill left an incomplete run directory: no manifest, and nothing else."""
    if path.is_symlink() or not path.is_dir():
        return False
    return {entry.name for entry in path.iterdir()} <= {LOCK, f".{MANIFEST}.new"}


def to_resume(path: Path) -> bool:
    """Return whether there is a run at `path` to go on with; what a kill left half-made there is removed."""
    if half_made(path):
        shutil.rmtree(path)
    return (path / MANIFEST).exists()


def directory_name(name: str) -> str:
    """Return a safe directory name: a plain name as it is, any other as its digest."""
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
    """Return the latest run below `root`.

    Raises:
        RunDirectoryError: no run exists.
    """
    begun = runs_below(root)
    if not begun:
        raise RunDirectoryError(f"{root}: has no run yet; start one: dreamgym-kit simulate")
    return begun[0].path


def runs_below(root: Path) -> list[RunDirectory]:
    """Return the runs of a folder, newest first; skips unreadable ones."""
    begun = []
    for path in root.iterdir() if root.is_dir() else ():
        if not path.is_symlink() and (path / MANIFEST).is_file():
            with suppress(RunDirectoryError):
                begun.append(RunDirectory.open(path))
    return sorted(begun, key=lambda run: (run.manifest.created_at, run.path.name), reverse=True)


def _read_manifest(path: Path) -> Manifest:
    record = _read_object(path / MANIFEST) if path.is_dir() else None
    if record is None:
        raise RunDirectoryError(f"{path}: is not a run directory (it has no {MANIFEST}).")
    try:
        return MANIFESTS.read(record)
    except NotSerializable as error:
        raise RunDirectoryError(f"{path / MANIFEST}: {error}.") from None


def _read_object(path: Path) -> Mapping[str, JsonValue] | None:
    try:
        record = read_json(read_whole(path))
    except FileNotFoundError:
        return None
    except NotSerializable as error:
        raise RunDirectoryError(f"{path}: {error}.") from None
    if not isinstance(record, dict):
        raise RunDirectoryError(f"{path}: is not a JSON object.")
    return record
