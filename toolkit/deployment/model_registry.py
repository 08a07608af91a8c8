"""The versions of one agent's weights, which of them is in use, and how it came to be: one folder.

    deployed/
      current -> versions/v002     what a server is pointed at: deployed/current/merged
      versions/v002/               merged/, adapter/ where there is one, version.json
      history.jsonl                one line for each thing that was done; append-only

The history is the truth: a version is made whole beside its place, then the line is written, then the link is
moved. Whoever is killed in between leaves what the next one that opens the shelf finishes: a version that no
line names never was, and a link that lies behind the last line is moved.
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
    """What was done."""

    PROMOTED = "promoted"  # the comparison said so
    FORCED = "forced"  # a person said so
    REFUSED = "refused"  # the comparison did not say so, and nobody else did
    ROLLED_BACK = "rolled_back"

    @property
    def changes(self) -> bool:
        """Whether another version is in use from then on."""
        return self is not RegistryAction.REFUSED


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryEvent:
    """One line of the history."""

    at: float  # Unix time, seconds
    deed: RegistryAction
    version: str  # in use from then on; of a refused candidate: ""
    before: str  # in use until then; "": nothing was
    weights: str  # digest of the candidate, or of the version
    evaluated: str = ""  # the run that tried it, by its id
    against: str = ""  # the run that it was held against
    look: int = 0  # at that baseline, from 1; 0: no comparison was made
    sentence: str = ""  # what the comparison came to
    reasons: tuple[str, ...] = ()  # against it; of a forced one: what was overruled
    why: str = ""  # of a forced one, or of a roll-back: what the person said


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One set of weights on the shelf, as it was put there."""

    name: FilledText  # "v001"
    weights: FilledText  # digest of the model directory
    source: str  # where the weights came from
    made_at: float  # Unix time, seconds
    adapter: bool = False  # whether the LoRA adapter lies beside the merged weights
    card: str = ""  # digest of the card as it was written; "": there was none


@dataclass(frozen=True, slots=True)
class ModelUse:
    """What stays the same over versions: how the model is called, and whether its calls are recorded."""

    name: str = ""  # as the server names the model
    record: str = ""  # the buffer that calls are kept in; "": none are


EVENTS = Codec(RegistryEvent, schema=SCHEMA)
VERSIONS = Codec(Version, schema=SCHEMA)
_USES = Codec(ModelUse)
FOLDER, HISTORY, LOCK, CURRENT, USE = "versions", "history.jsonl", ".lock", "current", "use.json"
MERGED, RECORD = "merged", "version.json"
_NAME = re.compile(r"v(\d{3,9})")


def line_of(record: JsonValue) -> bytes:
    """Spell a record as a line."""
    return (json.dumps(record, ensure_ascii=True, allow_nan=False) + "\n").encode("ascii")


HOST, PORT = "127.0.0.1", 8000
KEY = "VLLM_API_KEY"  # vLLM asks every caller for what it holds, where it is set


@dataclass(frozen=True, slots=True)
class Pointing:
    """How an existing graph is pointed at a shelf; the lines stay the same whichever version is in use."""

    merged: Path
    name: str  # as the server names the model
    record: str = ""  # the buffer that calls are kept in while it is in use; "": none
    shelf: str = "deployed"

    @property
    def serve(self) -> str:
        """The command that serves it: on this machine alone, behind a key, nothing for development."""
        return f"dreamgym-kit serve --from {shlex.quote(self.shelf)}"

    @property
    def model(self) -> str:
        """The line of code that takes the place of the agent's model."""
        return (
            f'init_chat_model("openai:{self.name}", base_url="http://{HOST}:{PORT}/v1", '
            f'api_key=os.environ["{KEY}"])'
        )

    @property
    def keep(self) -> str:
        """The line around the agent's call that keeps what its tools say, for the next training; or ""."""
        return f"with dreamgym_kit.deployed({self.shelf!r}):" if self.record else ""

    @property
    def lines(self) -> tuple[str, ...]:
        """All of them, in order."""
        return tuple(line for line in (self.serve, self.model, self.keep) if line)


class ModelRegistry(Closing):
    """One deployment folder, held by this process until `close`.

    Raises:
        UserError: it is something else, is in use, or a line of its history is damaged.
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
        """All that was done here, in order."""
        return tuple(self._events)

    @property
    def current(self) -> Version | None:
        """What is in use; None where nothing is."""
        name = self._in_use()
        return self.version(name) if name else None

    @property
    def looks(self) -> tuple[tuple[str, str], ...]:
        """The comparisons with the weights that are in use, each once: (evaluated, against).

        Those of an earlier time in use as well: who rolls back and forth does not look for the first time.
        """
        weights = self._weights()
        baseline = weights.get(self._in_use())
        looked = [event for event in self._events if event.look and weights.get(event.before) == baseline]
        return tuple(dict.fromkeys((event.evaluated, event.against) for event in looked))

    @property
    def before(self) -> str:
        """The version that was in use before this one, to roll back to; "" where there is none."""
        gone: list[str] = []
        for event in self._events:
            if not event.deed.changes:
                continue
            if event.version in gone:  # rolled back: what came after it is no way back any more
                del gone[gone.index(event.version) :]
            elif event.before:
                gone.append(event.before)
        return gone[-1] if gone else ""

    def known(self) -> list[str]:
        """The names of all versions that ever were in use, oldest first."""
        return list(dict.fromkeys(event.version for event in self._events if event.version))

    def version(self, name: str) -> Version:
        """One version.

        Raises:
            UserError: it is not on the shelf, or its record is damaged or not that of the history.
        """
        if name not in self.known():
            listed = ", ".join(self.known()) or "none"
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
        """Whether the card of a version is the one that was written with it; no where it was edited."""
        try:
            return card_digest(self.place(version.name) / MERGED) == version.card or not version.card
        except OSError:
            return False

    def place(self, name: str) -> Path:
        """The folder of a version."""
        return self.folder / FOLDER / name

    @property
    def merged(self) -> Path:
        """What a server is pointed at; stays the same whichever version is in use."""
        return self.folder / CURRENT / MERGED

    @property
    def use(self) -> ModelUse:
        """What was said of the use last; nothing where nobody said anything.

        Raises:
            UserError: the file is damaged.
        """
        return read_use(self.folder)

    @use.setter
    def use(self, use: ModelUse) -> None:
        write_atomically(self.folder / USE, json.dumps(_USES.write(use)).encode("ascii"))

    def pointing(self, shelf: str | Path, use: ModelUse) -> Pointing:
        """How a graph is pointed at what is in use; `shelf`: this folder, as a person names it."""
        return Pointing(self.merged, use.name, use.record, str(shelf))

    def whole(self, version: Version) -> Path:
        """The model directory of a version, held against the digest that it was put there with.

        Raises:
            UserError: its files are not what they were.
        """
        folder = self.place(version.name) / MERGED
        if model_digest(folder) != version.weights:
            raise UserError(f"{folder}: its files are not what was deployed as {version.name}; not used.")
        return folder

    def next_name(self) -> str:
        """What the next version is called."""
        numbers = [int(match[1]) for name in self.known() if (match := _NAME.fullmatch(name))]
        return f"v{max(numbers, default=0) + 1:03d}"

    def put(self, version: Version, fill: Callable[[Path], None]) -> None:
        """Make a version's folder: `fill` writes the weights into it. It is in use only after `note`."""

        def write(beside: Path) -> None:
            fill(beside)
            recorded = replace(version, card=card_digest(beside / MERGED))
            (beside / RECORD).write_bytes(line_of(VERSIONS.write(recorded)))

        place = self.place(version.name)
        try:
            write_folder(place, write)
        except OSError as error:
            shutil.rmtree(place.with_name(f".{place.name}.new"), ignore_errors=True)  # it may fill the disk
            raise UserError(
                f"{place}: cannot be written ({error.strerror}); nothing was changed: what was in use is."
            ) from error

    def note(self, event: RegistryEvent) -> None:
        """Write down what was done; a version that is in use from now on is pointed at."""
        append_lines(self.folder / HISTORY, line_of(EVENTS.write(event)), sync=True)
        self._events.append(event)
        self._follow()

    def close(self) -> None:
        """Let others at it."""
        self._lock.close()

    def _weights(self) -> dict[str, str]:
        """The digest of each version, as the history has it."""
        return {event.version: event.weights for event in self._events if event.deed.changes}

    def _in_use(self) -> str:
        return next((event.version for event in reversed(self._events) if event.deed.changes), "")

    def _follow(self) -> None:
        """Point `current` at what the history says, in one step."""
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
    """`ModelRegistry.use`, read without holding the shelf."""
    try:
        return _USES.read(read_json(read_whole(shelf / USE)))
    except FileNotFoundError:
        return ModelUse()
    except NotSerializable as error:
        raise UserError(f"{shelf / USE}: is damaged ({error}).") from error


def version_in_use(shelf: Path) -> str:
    """The name of the version in use, read without holding the shelf.

    Raises:
        UserError: nothing is deployed there.
    """
    link = shelf / CURRENT
    if not link.is_symlink():
        raise UserError(f"{shelf}: nothing is deployed there.")
    return link.readlink().name
