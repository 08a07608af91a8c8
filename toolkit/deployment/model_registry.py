"""The model registry: the versions of one agent's weights, the current one, and the history, in one folder.

    deployed/
      current -> versions/v002     served as deployed/current/merged
      versions/v002/               merged/, adapter/ if there is one, version.json
      history.jsonl                one line per action; append-only

The history is authoritative: a version is built in another folder, then the line is written, then the link is
moved. If a process is killed midway, the next one to open the registry completes the update: a version
without a line is ignored, and an outdated link is moved.
"""

import json
import re
import shlex
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from dreamgym_kit.bounded_json import read_json
from dreamgym_kit.codec import Codec, FilledText
from dreamgym_kit.deployment.model_files import card_digest, model_digest
from dreamgym_kit.errors import NotSerializable, UserError
from dreamgym_kit.rollout.atomic_files import (
    Closing,
    RunLock,
    read_whole,
    sync_folder,
    write_atomically,
    write_folder,
)
from dreamgym_kit.rollout.line_log import append_lines, read_records
from dreamgym_kit.serialization import JsonValue

SCHEMA = 1


class RegistryAction(StrEnum):
    """An action of the registry."""

    PROMOTED = "promoted"  # by the comparison
    FORCED = "forced"  # by a person
    REFUSED = "refused"  # by the comparison, and not forced
    ROLLED_BACK = "rolled_back"

    @property
    def changes(self) -> bool:
        """Whether the action changes the current version."""
        return self is not RegistryAction.REFUSED


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryEvent:
    """One line of the history."""

    at: float  # Unix time, seconds
    deed: RegistryAction
    version: str  # current from then on; of a refused candidate: ""
    before: str  # current until then; "": none
    weights: str  # digest of the candidate or version
    evaluated: str = ""  # ID of the run that evaluated it
    against: str = ""  # the baseline run
    look: int = 0  # number of the look at that baseline, from 1; 0: no comparison
    sentence: str = ""  # result of the comparison
    reasons: tuple[str, ...] = ()  # reasons against it; if forced: the overruled reasons
    why: str = ""  # the person's reason for a forced promotion or a rollback


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One set of weights in the registry, as it was added."""

    name: FilledText  # "v001"
    weights: FilledText  # digest of the model directory
    source: str  # origin of the weights
    made_at: float  # Unix time, seconds
    adapter: bool = False  # whether there is a LoRA adapter
    card: str = ""  # digest of the original card; "": none


@dataclass(frozen=True, slots=True)
class ModelUse:
    """Settings of all versions: the model's name, and whether its calls are recorded."""

    name: str = ""  # the model's name on the server
    record: str = ""  # the buffer for recorded calls; "": none


EVENTS = Codec(RegistryEvent, schema=SCHEMA)
VERSIONS = Codec(Version, schema=SCHEMA)
_USES = Codec(ModelUse)
FOLDER, HISTORY, LOCK, CURRENT, USE = "versions", "history.jsonl", ".lock", "current", "use.json"
MERGED, RECORD = "merged", "version.json"
_NAME = re.compile(r"v(\d{3,9})")


def line_of(record: JsonValue) -> bytes:
    """Serialize a record as a line."""
    return (json.dumps(record, ensure_ascii=True, allow_nan=False) + "\n").encode("ascii")


HOST, PORT = "127.0.0.1", 8000
KEY = "VLLM_API_KEY"  # if set, vLLM requires this key of every caller


@dataclass(frozen=True, slots=True)
class Pointing:
    """How to use a registry in an existing graph; the lines are equal for all versions."""

    merged: Path
    name: str  # the model's name on the server
    record: str = ""  # the buffer for recorded calls; "": none
    shelf: str = "deployed"

    @property
    def serve(self) -> str:
        """The command that serves the model, only on this machine and with a key."""
        return f"dreamgym-kit serve --from {shlex.quote(self.shelf)}"

    @property
    def model(self) -> str:
        """The line of code that replaces the agent's model."""
        return (
            f'init_chat_model("openai:{self.name}", base_url="http://{HOST}:{PORT}/v1", '
            f'api_key=os.environ["{KEY}"])'
        )

    @property
    def keep(self) -> str:
        """The line around the agent's call that records its tools for the next training; or ""."""
        return f"with dreamgym_kit.deployed({self.shelf!r}):" if self.record else ""

    @property
    def lines(self) -> tuple[str, ...]:
        """All lines, in order."""
        return tuple(line for line in (self.serve, self.model, self.keep) if line)


class ModelRegistry(Closing):
    """One deployment folder, locked by this process until `close`.

    Raises:
        UserError: not a registry, in use, or a line of its history is damaged.
    """

    def __init__(self, folder: Path, *, make: bool = False) -> None:
        self.folder = folder.absolute()
        self._prepare(make=make)
        self._lock = RunLock(self.folder / LOCK)
        try:
            problem = "this line is damaged ({})."
            self._events = list(read_records(self.folder / HISTORY, EVENTS.read, problem))
            self._follow()
        except BaseException:
            self._lock.close()
            raise

    @property
    def events(self) -> tuple[RegistryEvent, ...]:
        """All actions, in order."""
        return tuple(self._events)

    @property
    def current(self) -> Version | None:
        """The current version, or None."""
        name = self._in_use()
        return self.version(name) if name else None

    @property
    def looks(self) -> tuple[tuple[str, str], ...]:
        """The comparisons with the current weights, each once: (evaluated, against).

        Including those of earlier times as the current version: rolling back and forth does not reset the
        count.
        """
        weights = self._weights()
        baseline = weights.get(self._in_use())
        looked = [event for event in self._events if event.look and weights.get(event.before) == baseline]
        return tuple(dict.fromkeys((event.evaluated, event.against) for event in looked))

    @property
    def before(self) -> str:
        """The previous version, to roll back to; "" if there is none."""
        gone: list[str] = []
        for event in self._events:
            if not event.deed.changes:
                continue
            if event.version in gone:  # rolled back: later versions are not a rollback target
                del gone[gone.index(event.version) :]
            elif event.before:
                gone.append(event.before)
        return gone[-1] if gone else ""

    def names(self) -> list[str]:
        """Return the names of all versions that ever were current, oldest first."""
        return list(dict.fromkeys(event.version for event in self._events if event.version))

    def version(self, name: str) -> Version:
        """Return a version.

        Raises:
            UserError: it is unknown, or its record is damaged or differs from the history.
        """
        if name not in self.names():
            listed = ", ".join(self.names()) or "none"
            raise UserError(f"{self.folder}: has no version {name!r:.40}; known: {listed}.")
        path = self.place(name) / RECORD
        try:
            version = VERSIONS.read(read_json(read_whole(path)))
        except FileNotFoundError:
            raise UserError(f"{path}: is missing; this version can be used no more.") from None
        except NotSerializable as error:
            raise UserError(f"{path}: is damaged ({error}); this version can be used no more.") from error
        if (version.name, version.weights) != (name, self._weights()[name]):
            raise UserError(
                f"{path}: is not what the history says of {name}; this version can be used no more."
            )
        return version

    def as_written(self, version: Version) -> bool:
        """Return whether a version's card is unedited."""
        try:
            return card_digest(self.place(version.name) / MERGED) == version.card or not version.card
        except OSError:
            return False

    def place(self, name: str) -> Path:
        """Return the folder of a version."""
        return self.folder / FOLDER / name

    @property
    def merged(self) -> Path:
        """The path for a server, equal for all versions."""
        return self.folder / CURRENT / MERGED

    @property
    def use(self) -> ModelUse:
        """The last stored settings; empty if there are none.

        Raises:
            UserError: the file is damaged.
        """
        return read_use(self.folder)

    @use.setter
    def use(self, use: ModelUse) -> None:
        write_atomically(self.folder / USE, json.dumps(_USES.write(use)).encode("ascii"))

    def pointing(self, shelf: str | Path, use: ModelUse) -> Pointing:
        """Return how to use the current version in a graph; `shelf`: this folder, for commands."""
        return Pointing(self.merged, use.name, use.record, str(shelf))

    def verified_folder(self, version: Version) -> Path:
        """Return a version's model directory after checking its digest.

        Raises:
            UserError: its files were changed.
        """
        folder = self.place(version.name) / MERGED
        if model_digest(folder) != version.weights:
            raise UserError(f"{folder}: its files are not what was deployed as {version.name}; not used.")
        return folder

    def next_name(self) -> str:
        """Return the name of the next version."""
        numbers = [int(match[1]) for name in self.names() if (match := _NAME.fullmatch(name))]
        return f"v{max(numbers, default=0) + 1:03d}"

    def put(self, version: Version, fill: Callable[[Path], None]) -> None:
        """Create a version's folder; `fill` writes the weights. It becomes current only with `note`."""

        def write(beside: Path) -> None:
            fill(beside)
            recorded = replace(version, card=card_digest(beside / MERGED))
            (beside / RECORD).write_bytes(line_of(VERSIONS.write(recorded)))

        place = self.place(version.name)
        try:
            write_folder(place, write)
        except OSError as error:
            shutil.rmtree(place.with_name(f".{place.name}.new"), ignore_errors=True)  # to free the disk
            raise UserError(
                f"{place}: cannot be written ({error.strerror}); nothing was changed: what was in use is."
            ) from error

    def note(self, event: RegistryEvent) -> None:
        """Append an action to the history, and move the link to a new current version."""
        append_lines(self.folder / HISTORY, line_of(EVENTS.write(event)), sync=True)
        self._events.append(event)
        self._follow()

    def close(self) -> None:
        """Release the lock."""
        self._lock.close()

    def _weights(self) -> dict[str, str]:
        """Return the digest of each version from the history."""
        return {event.version: event.weights for event in self._events if event.deed.changes}

    def _in_use(self) -> str:
        return next((event.version for event in reversed(self._events) if event.deed.changes), "")

    def _follow(self) -> None:
        """Atomically point `current` to the version of the history."""
        name = self._in_use()
        link = self.folder / CURRENT
        target = f"{FOLDER}/{name}"
        if not name or (link.is_symlink() and str(link.readlink()) == target):
            return
        if link.exists() and not link.is_symlink():
            raise UserError(f"{link}: is no link of ours; move it away.")
        beside = self.folder / f".{CURRENT}.new"
        beside.unlink(missing_ok=True)
        beside.symlink_to(target)
        beside.replace(link)
        sync_folder(self.folder)

    def _prepare(self, *, make: bool) -> None:
        if (self.folder / HISTORY).exists():
            return
        there, ours = self.folder.exists(), {FOLDER, LOCK}
        if there and (
            not self.folder.is_dir() or any(path.name not in ours for path in self.folder.iterdir())
        ):
            raise UserError(
                f"{self.folder}: holds something else than deployed versions; name another folder."
            )
        if not make:
            raise UserError(f"{self.folder}: nothing is deployed there.")
        (self.folder / FOLDER).mkdir(parents=True, exist_ok=True)


def read_use(shelf: Path) -> ModelUse:
    """Read `ModelRegistry.use` without the lock."""
    try:
        return _USES.read(read_json(read_whole(shelf / USE)))
    except FileNotFoundError:
        return ModelUse()
    except NotSerializable as error:
        raise UserError(f"{shelf / USE}: is damaged ({error}).") from error


def version_in_use(shelf: Path) -> str:
    """Return the name of the current version, without the lock.

    Raises:
        UserError: the registry has no version.
    """
    link = shelf / CURRENT
    if not link.is_symlink():
        raise UserError(f"{shelf}: nothing is deployed there.")
    return link.readlink().name
