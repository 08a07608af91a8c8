"""Verified checkpoints: complete, from this kit, and unchanged.

A checkpoint is built in `.incoming`, sealed by a manifest with a hash of each file, flushed, and renamed: a
killed process leaves the previous one. Optimizer states are pickles, so no file of a checkpoint is opened
before all have been verified against the manifest.
"""

import hashlib
import json
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from dreamgym_kit.bounded_json import read_json
from dreamgym_kit.errors import NotSerializable, UserError
from dreamgym_kit.rollout.atomic_files import settle, sync_folder, write_atomically
from dreamgym_kit.serialization import JsonValue

MANIFEST = "dreamgym-checkpoint.json"
INCOMING = ".incoming"
_VERSION = 1
_ONCE: Mapping[str, JsonValue] = {"algorithm": "grpo"}  # values of older checkpoints without these fields
_NAME = re.compile(r"step-(\d{6,9})")
_MAX_BYTES = 2**20  # maximum size of a manifest


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A whole checkpoint."""

    folder: Path
    step: int
    made_of: Mapping[str, JsonValue]  # settings that a resuming trainer must share

    def differences(self, wanted: Mapping[str, JsonValue]) -> Iterator[tuple[str, JsonValue, JsonValue]]:
        """Yield differing settings: name, stored value, wanted value."""
        for name, now in wanted.items():
            before = self.made_of.get(name, _ONCE.get(name))
            if before != now:
                yield name, before, now


class Checkpoints:
    """The checkpoints of one training, in one folder."""

    def __init__(self, folder: Path, *, keep: int) -> None:
        self.folder = folder
        self._keep = keep

    @property
    def incoming(self) -> Path:
        """The folder in which the next checkpoint is built."""
        return self.folder / INCOMING

    def clear_incoming(self) -> None:
        """Remove the remains of a killed process."""
        shutil.rmtree(self.incoming, ignore_errors=True)
        self.incoming.mkdir(parents=True)

    def commit(self, made: Path, step: int, made_of: Mapping[str, JsonValue]) -> Checkpoint:
        """Seal the folder `made` and move it into place; then delete the oldest ones."""
        place = self.folder / f"step-{step:06d}"
        _seal(made, step, made_of)
        if place.exists():  # from an unfinished part with an unreadable manifest
            shutil.rmtree(place)
        made.rename(place)
        sync_folder(self.folder)
        shutil.rmtree(self.incoming, ignore_errors=True)
        for _, old in sorted(self._named())[: -self._keep]:
            shutil.rmtree(old)
        return Checkpoint(place, step, made_of)

    def last(self) -> tuple[Checkpoint | None, list[Path]]:
        """Return the last complete checkpoint, and the folders that are not checkpoints.

        Raises:
            UserError: the last one was changed; names the file.
        """
        ignored: list[Path] = []
        for step, folder in sorted(self._named(), reverse=True):
            if not (folder / MANIFEST).is_file():
                ignored.append(folder)
                continue
            return _verified(folder, step), ignored
        return None, ignored

    def _named(self) -> Iterator[tuple[int, Path]]:
        if not self.folder.is_dir():
            return
        for path in self.folder.iterdir():
            name = _NAME.fullmatch(path.name)
            if name and path.is_dir() and not path.is_symlink():
                yield int(name[1]), path


def _seal(folder: Path, step: int, made_of: Mapping[str, JsonValue]) -> None:
    settle(folder)
    manifest = {
        "dreamgym_checkpoint": _VERSION,
        "step": step,
        "made_of": dict(made_of),
        "files": {name: _hash(folder / name) for name in _files(folder)},
    }
    write_atomically(folder / MANIFEST, json.dumps(manifest, indent=1, sort_keys=True).encode("utf-8"))
    sync_folder(folder)


def _verified(folder: Path, step: int) -> Checkpoint:
    try:
        manifest = read_json((folder / MANIFEST).read_bytes(), max_bytes=_MAX_BYTES)
        files, made_of = manifest["files"], manifest["made_of"]
        fits = manifest["dreamgym_checkpoint"] == _VERSION and manifest["step"] == step
    except (NotSerializable, KeyError, TypeError, OSError) as error:
        raise _refused(folder / MANIFEST, f"cannot be read ({error})") from None
    if not fits or not isinstance(files, dict) or not isinstance(made_of, dict):
        raise _refused(folder / MANIFEST, "is not of this checkpoint, or of another version of dreamgym-kit")
    there = set(_files(folder))
    for name in sorted(there ^ files.keys()):
        raise _refused(folder / name, "was added to the checkpoint" if name in there else "is missing")
    for name in sorted(there):
        if _hash(folder / name) != files[name]:
            raise _refused(folder / name, "is not what was written there")
    return Checkpoint(folder, step, made_of)


def _files(folder: Path) -> list[str]:
    """Return the names of all files except the manifest; links count as files without a hash."""
    paths = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    return sorted(path.relative_to(folder).as_posix() for path in paths if path != folder / MANIFEST)


def _hash(path: Path) -> str:
    if path.is_symlink() or not path.is_file():
        return ""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _refused(path: Path, why: str) -> UserError:
    return UserError(
        f"{path}: {why}; nothing of it was loaded. Remove {path.parent} to go on from the checkpoint before."
    )
