"""Tells model directories apart by all that decides what they answer: weights, tokenizer, template."""

import hashlib
from pathlib import Path

from dreamgym_kit.errors import UserError

CONFIG = "config.json"
_ANSWERS = ("*.safetensors", "*.json", "*.jinja", "*.model", "*.txt")
_TOLD_ONLY = frozenset({"nano.json", "trainer_state.json"})  # say how it was made


def model_files(folder: Path) -> list[Path]:
    """The plain files of a model directory that decide what it answers, by name.

    Raises:
        UserError: it is no model directory, or one of them is a link or a folder.
    """
    if not (folder / CONFIG).is_file() or not any(folder.glob("*.safetensors")):
        raise UserError(f"{folder}: is no model directory (it needs {CONFIG} and *.safetensors).")
    found = {path for pattern in _ANSWERS for path in folder.glob(pattern) if path.name not in _TOLD_ONLY}
    for path in found:
        if path.is_symlink() or not path.is_file():
            raise UserError(f"{path}: is not a plain file; a model directory that is deployed holds its own.")
    return sorted(found)


def model_digest(folder: Path) -> str:
    """Name what a model directory answers with; 32 hex characters.

    Raises:
        UserError: as `model_files`; or a file cannot be read.
    """
    whole = hashlib.sha256()
    try:
        for path in model_files(folder):
            with path.open("rb") as file:
                whole.update(path.name.encode() + b"\0" + hashlib.file_digest(file, "sha256").digest())
    except OSError as error:
        raise UserError(f"{folder}: cannot be read ({error.strerror}).") from error
    return whole.hexdigest()[:32]
