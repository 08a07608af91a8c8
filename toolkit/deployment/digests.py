"""Tells model directories apart by all that decides what they answer: weights, tokenizer, template."""

import hashlib
from pathlib import Path

from dreamgym_kit.bounded_json import read_json
from dreamgym_kit.errors import NotSerializable, UserError
from dreamgym_kit.serialization import JsonValue

CONFIG, CARD = "config.json", "README.md"
_INDEX = "model.safetensors.index.json"
_MAX_HEADER = 100_000_000  # bytes, as the format has it
_ANSWERS = ("*.safetensors", "*.json", "*.jinja", "*.model", "*.txt")
_TOLD_ONLY = frozenset({"nano.json", "trainer_state.json"})  # say how it was made


def model_files(folder: Path) -> list[Path]:
    """The plain files of a model directory that decide what it answers, by name.

    Raises:
        UserError: it is no model directory, or one of them is a link or a folder.
    """
    if not (folder / CONFIG).is_file() or not any(folder.glob("*.safetensors")):
        raise UserError(f"{folder}: is no model directory (it needs {CONFIG} and *.safetensors).")
    files = {path for pattern in _ANSWERS for path in folder.glob(pattern) if path.name not in _TOLD_ONLY}
    for path in files:
        if path.is_symlink() or not path.is_file():
            raise UserError(f"{path}: is not a plain file; a model directory that is deployed holds its own.")
    return sorted(files)


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


def card_digest(folder: Path) -> str:
    """Name the card of a model directory; "" where there is none.

    Raises:
        OSError: it cannot be read.
    """
    try:
        return hashlib.sha256((folder / CARD).read_bytes()).hexdigest()[:32]
    except FileNotFoundError:
        return ""


def must_be_whole(folder: Path) -> None:
    """Refuse a model directory that was copied or written by half.

    Raises:
        UserError: as `model_files`; or a file of weights is cut off or missing, or a JSON file is none.
    """
    files = model_files(folder)
    for path in files:
        if path.suffix == ".safetensors":
            _must_be_whole_weights(path)
    for name in (CONFIG, _INDEX):
        content = _object(folder / name) if (folder / name) in files else {}
        shards = content.get("weight_map") if name == _INDEX else None
        for shard in sorted(set(map(str, shards.values()))) if isinstance(shards, dict) else ():
            if folder / shard not in files:
                raise UserError(f"{folder}: is half of a model: {_INDEX} names {shard}, which is missing.")


def _must_be_whole_weights(path: Path) -> None:
    """By its own header: eight bytes of its length, the header, then as many bytes as that tells of."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = (
                read_json(file.read(length), max_bytes=_MAX_HEADER) if 0 < length <= _MAX_HEADER else None
            )
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}).") from error
    except NotSerializable:
        header = None
    if not isinstance(header, dict):
        raise UserError(f"{path}: is no file of weights, or half of one; write or copy the model again.")
    ends = [_end(tensor) for name, tensor in header.items() if name != "__metadata__"]
    if size != 8 + length + max(ends, default=0):
        raise UserError(f"{path}: is cut off, or more than it says; write or copy the model again.")


def _end(tensor: JsonValue) -> int:
    places = tensor.get("data_offsets") if isinstance(tensor, dict) else None
    end = places[-1] if isinstance(places, list) and places else 0
    return end if isinstance(end, int) else 0


def _object(path: Path) -> dict[str, JsonValue]:
    try:
        value = read_json(path.read_bytes(), max_bytes=_MAX_HEADER)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}).") from error
    except NotSerializable as error:
        raise UserError(f"{path}: is damaged ({error}); write or copy the model again.") from None
    if not isinstance(value, dict):
        raise UserError(f"{path}: is damaged (no object); write or copy the model again.")
    return value
