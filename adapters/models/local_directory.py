"""A model directory, checked before anything in it is used: safetensors, no code, a tokenizer that fits.

Nothing here unpickles. What the weights leave out or have too much of is an error, where the library would
fill in random numbers and warn.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from dreamgym_kit.bounded_json import read_json
from dreamgym_kit.errors import NotSerializable, UserError

_PICKLED = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt")
_ONE, _INDEX = "model.safetensors", "model.safetensors.index.json"
_TEMPLATE = "chat_template.jinja"
_HEADER_MOST = 100 * 2**20  # the format's own limit


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """What lies in a model directory, as far as its headers tell."""

    folder: Path
    config: Mapping[str, Any]
    shards: tuple[Path, ...]
    tensors: Mapping[str, tuple[int, ...]]  # name -> shape
    vocabulary: int  # rows of its embedding
    ends: frozenset[int]  # ids that end an answer, by the generation settings and the configuration

    @property
    def kind(self) -> str:
        """The architecture's name."""
        return str(self.config.get("model_type"))


def read_files(folder: Path) -> ModelFiles:
    """Look at a model directory. No weight is read yet.

    Raises:
        UserError: names the file, what is wrong with it, and what to do.
    """
    if not folder.is_dir():
        raise UserError(f"{folder}: no such directory; name a directory with config.json and *.safetensors.")
    if not (folder / "config.json").is_file():
        if (folder / "adapter_config.json").is_file():
            raise UserError(
                f"{folder}: holds a LoRA adapter without its model; merge it and name the result."
            )
        raise UserError(f"{folder}: has no config.json; name a directory that save_pretrained wrote.")
    config = _json_object(folder / "config.json")
    for name in ("config.json", "tokenizer_config.json"):
        if (folder / name).is_file() and "auto_map" in _json_object(folder / name):
            raise UserError(
                f"{folder / name}: asks for code of its own (auto_map), which is never run; "
                "use a model that transformers knows."
            )
    if config.get("quantization_config"):
        raise UserError(
            f"{folder / 'config.json'}: the weights are quantised, and training needs their exact log-probs; "
            "name the float weights."
        )
    shards = _shards(folder)
    tensors: dict[str, tuple[int, ...]] = {}
    for shard in shards:
        tensors |= _header(shard)
    gone = sorted(_weight_map(folder).keys() - tensors.keys()) if (folder / _INDEX).is_file() else []
    if gone:
        raise UserError(f"{folder / _INDEX}: names '{gone[0]}', which no shard holds; copy it again.")
    return ModelFiles(folder, config, shards, tensors, _vocabulary(folder, config), _ends(folder, config))


def _shards(folder: Path) -> tuple[Path, ...]:
    if (folder / _INDEX).is_file():
        names = sorted(set(_weight_map(folder).values()))
        for name in names:
            if PurePosixPath(name).name != name or not name.endswith(".safetensors"):
                raise UserError(f"{folder / _INDEX}: names the shard '{name}', which is no file beside it.")
            if not (folder / name).is_file():
                raise UserError(f"{folder / name}: this shard is missing; copy the whole directory again.")
        return tuple(folder / name for name in names)
    if (folder / _ONE).is_file():
        return (folder / _ONE,)
    pickled = sorted(file.name for file in folder.iterdir() if file.suffix in _PICKLED)
    if pickled:
        raise UserError(
            f"{folder / pickled[0]}: a pickle may run code and is not loaded; "
            "write the weights again with save_pretrained, which makes safetensors."
        )
    raise UserError(f"{folder}: has no {_ONE}; name a directory that holds the weights.")


def _weight_map(folder: Path) -> dict[str, str]:
    names = _json_object(folder / _INDEX).get("weight_map")
    if not isinstance(names, dict) or not names or not all(isinstance(name, str) for name in names.values()):
        raise UserError(f"{folder / _INDEX}: has no weight_map; copy the directory again.")
    return names


def _header(path: Path) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a safetensors file; its own library checks that all bytes are there."""
    from safetensors import SafetensorError, safe_open

    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
    if not 2 <= size <= min(_HEADER_MOST, path.stat().st_size):
        raise UserError(f"{path}: no safetensors file, or cut off; write or copy it again.")
    try:
        with safe_open(path, framework="pt") as opened:
            return {name: tuple(opened.get_slice(name).get_shape()) for name in opened.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise UserError(
            f"{path}: no whole safetensors file ({one_line(error)}); write or copy it again."
        ) from None


def _vocabulary(folder: Path, config: Mapping[str, Any]) -> int:
    inner = config.get("text_config")
    size = config.get("vocab_size") or (inner.get("vocab_size") if isinstance(inner, dict) else None)
    if not isinstance(size, int) or size < 1:
        raise UserError(f"{folder / 'config.json'}: has no vocab_size; it is no language model's.")
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


def one_line(error: BaseException) -> str:
    """What an error says, short enough for a message."""
    return " ".join(str(error).split())[:200]


def same_tokenizer(base: Path, other: Path) -> bool:
    """Whether two directories tokenise alike; one without a tokenizer goes with any.

    Raises:
        UserError: a tokenizer.json that is none.
    """
    files = [folder / "tokenizer.json" for folder in (base, other)]
    if not all(file.is_file() for file in files):
        return True
    first, second = (file.read_bytes() for file in files)
    return first == second or _tokens(files[0], first) == _tokens(files[1], second)


def same_template(base: Path, other: Path) -> bool:
    """Whether two directories make the same prompts of a conversation; one without a template goes with any.

    Raises:
        UserError: a tokenizer_config.json that is none.
    """
    first, second = _template(base), _template(other)
    return first is None or second is None or first == second


def _template(folder: Path) -> object:
    """The chat template as the library takes it: from its own file before the tokenizer's settings."""
    if (folder / _TEMPLATE).is_file():
        return (folder / _TEMPLATE).read_text(encoding="utf-8", errors="replace")
    if not (folder / "tokenizer_config.json").is_file():
        return None
    template = _json_object(folder / "tokenizer_config.json").get("chat_template")
    if isinstance(template, list):  # several by name, as older versions of the library wrote them
        named = [entry for entry in template if isinstance(entry, dict) and entry.get("name") == "default"]
        return named[0].get("template") if named else None
    return template


def _tokens(path: Path, text: bytes) -> list[Any]:
    """What of a tokenizer decides its ids; it may be of more values than the kit reads elsewhere."""
    try:
        tokenizer = json.loads(text)
        return [tokenizer.get(part) for part in ("model", "added_tokens", "normalizer", "pre_tokenizer")]
    except (ValueError, RecursionError, AttributeError) as error:
        raise UserError(f"{path}: cannot be read ({one_line(error)}); copy the directory again.") from None
