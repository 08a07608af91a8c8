"""Check a model directory before it is used, and compute digests that identify directories.

Only safetensors weights are accepted: nothing here unpickles or runs code of the directory. Missing or extra
weights are an error; the library would fill in random numbers and warn.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from dreamgym_kit.bounded_json import read_json
from dreamgym_kit.errors import NotSerializable, UserError

CONFIG, CARD = "config.json", "README.md"
ADAPTER = "adapter"
"""The folder of a model directory with the same weights as a LoRA adapter of the base model."""
_WEIGHTS, _INDEX = "model.safetensors", "model.safetensors.index.json"
_TEMPLATE, _TOKENIZER, _TOKENIZER_CONFIG = "chat_template.jinja", "tokenizer.json", "tokenizer_config.json"
_PICKLED = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt")
_ANSWERS = ("*.safetensors", "*.json", "*.jinja", "*.model", "*.txt")
_NOT_ANSWERING = frozenset({"nano.json", "trainer_state.json"})  # describe its origin
_MAX_HEADER = 100 * 2**20  # bytes, the format's own limit


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """The contents of a model directory, from its headers."""

    folder: Path
    config: Mapping[str, Any]
    shards: tuple[Path, ...]
    tensors: Mapping[str, tuple[int, ...]]  # name -> shape
    vocabulary: int  # rows of the embedding
    ends: frozenset[int]  # IDs that end an answer, from the generation settings and the configuration

    @property
    def kind(self) -> str:
        """The name of the architecture."""
        return str(self.config.get("model_type"))


def read_files(folder: Path) -> ModelFiles:
    """Read the headers of a model directory; no weights are read.

    Raises:
        UserError: names the file, the problem and what to do.
    """
    if not folder.is_dir():
        raise UserError(f"{folder}: no such directory; name a directory with config.json and *.safetensors.")
    if not (folder / CONFIG).is_file():
        if (folder / "adapter_config.json").is_file():
            raise UserError(
                f"{folder}: holds a LoRA adapter without its model; merge it and name the result."
            )
        raise UserError(f"{folder}: has no config.json; name a directory that save_pretrained wrote.")
    config = _json_object(folder / CONFIG)
    for name in (CONFIG, _TOKENIZER_CONFIG):
        if (folder / name).is_file() and "auto_map" in _json_object(folder / name):
            raise UserError(
                f"{folder / name}: asks for code of its own (auto_map), which is never run; "
                "use a model that transformers knows."
            )
    if config.get("quantization_config"):
        raise UserError(
            f"{folder / CONFIG}: the weights are quantised, and training needs their exact log-probs; "
            "name the float weights."
        )
    indexed = _indexed_shards(folder)
    shards = tuple(sorted(set(indexed.values()))) or (_only_shard(folder),)
    tensors: dict[str, tuple[int, ...]] = {}
    for shard in shards:
        tensors |= _read_shapes(shard)
    missing = sorted(indexed.keys() - tensors.keys())
    if missing:
        raise UserError(f"{folder / _INDEX}: names '{missing[0]}', which no shard holds; copy it again.")
    return ModelFiles(folder, config, shards, tensors, _vocabulary(folder, config), _ends(folder, config))


def model_files(folder: Path) -> list[Path]:
    """Return the files of a model directory that determine its answers, by name.

    Raises:
        UserError: not a model directory, or a file is a link or a folder.
    """
    if not (folder / CONFIG).is_file() or not any(folder.glob("*.safetensors")):
        raise UserError(f"{folder}: is no model directory (it needs {CONFIG} and *.safetensors).")
    files = {path for pattern in _ANSWERS for path in folder.glob(pattern)}
    files = {path for path in files if path.name not in _NOT_ANSWERING}
    for path in files:
        if path.is_symlink() or not path.is_file():
            raise UserError(f"{path}: is not a plain file; a model directory that is deployed holds its own.")
    return sorted(files)


def check_complete(folder: Path) -> None:
    """Refuse an incomplete model directory.

    Raises:
        UserError: as `model_files`; or weights are truncated or missing, or a JSON file is not valid.
    """
    for path in model_files(folder):
        if path.suffix == ".safetensors":
            _read_shapes(path)
    _json_object(folder / CONFIG)
    _indexed_shards(folder)


def model_digest(folder: Path) -> str:
    """Return the digest of a directory's weights, tokenizer and template; 32 hex characters.

    Raises:
        UserError: as `model_files`; or a file cannot be read.
    """
    try:
        return _digest(model_files(folder), separator=b"\0")
    except OSError as error:
        raise UserError(f"{folder}: cannot be read ({error.strerror}).") from error


def digest_of_folder(folder: Path) -> str:
    """Return the digest of config and weights, as stored in acceptance files."""
    return _digest(sorted([*folder.glob("*.safetensors"), folder / CONFIG]))


def card_digest(folder: Path) -> str:
    """Return the digest of a directory's card; "" if there is none.

    Raises:
        OSError: it cannot be read.
    """
    try:
        return hashlib.sha256((folder / CARD).read_bytes()).hexdigest()[:32]
    except FileNotFoundError:
        return ""


def check_replaces(new: ModelFiles, served: ModelFiles) -> None:
    """Refuse weights that a running server cannot swap in.

    Raises:
        UserError: tokenizer, chat template, architecture or vocabulary differ, or a file is damaged.
    """
    if not _same_tokenizer(served.folder, new.folder):
        raise UserError(f"{new.folder / _TOKENIZER}: not the tokenizer of {served.folder}, served now.")
    templates = [template for files in (new, served) if (template := _template(files.folder)) is not None]
    if len(templates) == 2 and templates[0] != templates[1]:
        raise UserError(
            f"{new.folder}: not the chat template of {served.folder}, served now: the policy would go "
            "on with the old one; put the same template there, or open it as a policy of its own."
        )
    if (new.kind, new.vocabulary) != (served.kind, served.vocabulary):
        raise UserError(f"{new.folder}: another architecture or vocabulary than {served.folder}, served now.")
    both = new.tensors.keys() & served.tensors.keys()
    if not both or any(new.tensors[name] != served.tensors[name] for name in both):
        raise UserError(f"{new.folder}: another architecture than {served.folder}, served now.")


def one_line(error: BaseException) -> str:
    """Return an error's text, shortened for a message."""
    return " ".join(str(error).split())[:200]


def _indexed_shards(folder: Path) -> dict[str, Path]:
    """Return tensor -> file from the index; empty without an index."""
    index = folder / _INDEX
    if not index.is_file():
        return {}
    names = _json_object(index).get("weight_map")
    if not isinstance(names, dict) or not names or not all(isinstance(name, str) for name in names.values()):
        raise UserError(f"{index}: has no weight_map; copy the directory again.")
    for name in sorted(set(names.values())):
        if PurePosixPath(name).name != name or not name.endswith(".safetensors"):
            raise UserError(f"{index}: names the shard '{name}', which is no file beside it.")
        if not (folder / name).is_file():
            raise UserError(f"{folder / name}: this shard is missing; copy the whole directory again.")
    return {tensor: folder / name for tensor, name in names.items()}


def _only_shard(folder: Path) -> Path:
    if (folder / _WEIGHTS).is_file():
        return folder / _WEIGHTS
    pickled = sorted(file.name for file in folder.iterdir() if file.suffix in _PICKLED)
    if pickled:
        raise UserError(
            f"{folder / pickled[0]}: a pickle may run code and is not loaded; "
            "write the weights again with save_pretrained, which makes safetensors."
        )
    raise UserError(f"{folder}: has no {_WEIGHTS}; name a directory that holds the weights.")


_BYTES = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3"), 1),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 2),
    **dict.fromkeys(("U32", "I32", "F32"), 4),
    **dict.fromkeys(("U64", "I64", "F64"), 8),
}
"""Bytes per number, by the type names of https://github.com/huggingface/safetensors."""


class _Tensor(msgspec.Struct):
    """One entry of a safetensors header."""

    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]

    @property
    def fits(self) -> bool:
        """Whether its size matches its shape; True for unknown types."""
        size = _BYTES.get(self.dtype)
        return size is None or self.data_offsets[1] - self.data_offsets[0] == size * prod(self.shape)


def _read_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Read names and shapes of a safetensors file: eight bytes of header length, header, data."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if not 2 <= length <= min(_MAX_HEADER, size):
                raise UserError(f"{path}: no safetensors file, or cut off; write or copy it again.")
            header = read_json(file.read(length), max_bytes=_MAX_HEADER)
        header.pop("__metadata__", None)
        tensors = msgspec.convert(header, dict[str, _Tensor])
        end = 0
        for tensor in sorted(tensors.values(), key=lambda tensor: tensor.data_offsets):
            if tensor.data_offsets[0] != end or not tensor.fits:
                raise ValueError("its tensors do not lie one after the other")
            end = tensor.data_offsets[1]
        if size != 8 + length + end:
            raise ValueError("it is cut off, or more than it says")
    except (OSError, NotSerializable, ValueError, AttributeError) as error:
        raise UserError(
            f"{path}: no whole safetensors file ({one_line(error)}); write or copy it again."
        ) from None
    return {name: tensor.shape for name, tensor in tensors.items()}


def _vocabulary(folder: Path, config: Mapping[str, Any]) -> int:
    inner = config.get("text_config")
    size = config.get("vocab_size") or (inner.get("vocab_size") if isinstance(inner, dict) else None)
    if not isinstance(size, int) or size < 1:
        raise UserError(f"{folder / CONFIG}: has no vocab_size; it is no language model's.")
    return size


def _ends(folder: Path, config: Mapping[str, Any]) -> frozenset[int]:
    ends: set[int] = set()
    path = folder / "generation_config.json"
    for source in (config, _json_object(path) if path.is_file() else {}):
        eos = source.get("eos_token_id")
        ends |= {id_ for id_ in (eos if isinstance(eos, list) else [eos]) if isinstance(id_, int)}
    return frozenset(ends)


def _json_object(path: Path) -> dict[str, Any]:
    try:
        content = read_json(path.read_bytes())
    except (NotSerializable, OSError) as error:
        raise UserError(f"{path}: cannot be read ({one_line(error)}); copy the directory again.") from None
    if not isinstance(content, dict):
        raise UserError(f"{path}: is no JSON object; copy the directory again.")
    return content


def _same_tokenizer(base: Path, other: Path) -> bool:
    """Return whether two directories tokenize alike; a missing tokenizer matches any."""
    files = [folder / _TOKENIZER for folder in (base, other)]
    if not all(file.is_file() for file in files):
        return True
    first, second = (file.read_bytes() for file in files)
    return first == second or _tokens(files[0], first) == _tokens(files[1], second)


def _template(folder: Path) -> object:
    """Return the chat template like the library: its own file precedes the tokenizer's settings."""
    if (folder / _TEMPLATE).is_file():
        return (folder / _TEMPLATE).read_text(encoding="utf-8", errors="replace")
    if not (folder / _TOKENIZER_CONFIG).is_file():
        return None
    template = _json_object(folder / _TOKENIZER_CONFIG).get("chat_template")
    if isinstance(template, list):  # several by name, from older versions of the library
        named = [entry for entry in template if isinstance(entry, dict) and entry.get("name") == "default"]
        return named[0].get("template") if named else None
    return template


def _tokens(path: Path, text: bytes) -> list[Any]:
    """Return the parts of a tokenizer that determine its IDs; it may exceed the kit's JSON limits."""
    try:
        tokenizer = json.loads(text)
        return [tokenizer.get(part) for part in ("model", "added_tokens", "normalizer", "pre_tokenizer")]
    except (ValueError, RecursionError, AttributeError) as error:
        raise UserError(f"{path}: cannot be read ({one_line(error)}); copy the directory again.") from None


def _digest(paths: Iterable[Path], *, separator: bytes = b"") -> str:
    whole = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            whole.update(path.name.encode() + separator + hashlib.file_digest(file, "sha256").digest())
    return whole.hexdigest()[:32]
