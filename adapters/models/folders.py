"""Model directories by the packages of the extra `train`: read without running anything, written in one step.

Read: `safetensors` only, no remote code, no network. Written: beside the place, then renamed into it.
"""

import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from dreamgym_kit import errors
from dreamgym_kit.deployment.model_files import CONFIG, ModelFiles, one_line, read_files
from dreamgym_kit.errors import UserError
from dreamgym_kit.rollout.atomic_files import write_folder

_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")
_TELEMETRY = "HF_HUB_DISABLE_TELEMETRY"


def require_extra(needed_by: str) -> None:
    """Raise MissingExtra where one of the packages is not installed, else keep them from telling others.

    TRL reports no use to huggingface.co, unless HF_HUB_DISABLE_TELEMETRY says otherwise.
    """
    errors.require_extra("train", needed_by=needed_by)
    if os.environ.setdefault(_TELEMETRY, "1") == "1" and "huggingface_hub.constants" in sys.modules:
        sys.modules["huggingface_hub.constants"].__dict__[_TELEMETRY] = True  # it read the variable before


def load_model(folder: Path, *, dtype: str = "float32") -> Any:
    """Give the causal language model of a directory, in train mode.

    Raises:
        UserError: `read_files` refuses the directory, its architecture is unknown, or the weights are not its
            own: the library would fill in random numbers.
    """
    import torch
    from transformers import AutoModelForCausalLM

    read_files(folder)
    try:
        with quiet():
            model, info = AutoModelForCausalLM.from_pretrained(
                folder,
                dtype=getattr(torch, dtype),
                use_safetensors=True,
                local_files_only=True,
                trust_remote_code=False,
                ignore_mismatched_sizes=True,  # told of below, by name
                output_loading_info=True,
            )
    except Exception as error:  # noqa: BLE001  configurations are checked by raising anything
        raise UserError(
            f"{folder / CONFIG}: no causal language model that can be loaded ({one_line(error)})."
        ) from None
    for key, verb in (("missing_keys", "lack"), ("mismatched_keys", "have another shape for")):
        if info.get(key):
            raise UserError(f"{folder}: the weights {verb} '{_first(info[key])}'; they are of another model.")
    if info.get("unexpected_keys"):
        name = _first(info["unexpected_keys"])
        raise UserError(f"{folder}: the model has no place for '{name}'; the weights are of another model.")
    return model.train()


def _first(keys: Any) -> str:
    return min(map(str, keys))[:120]


def load_tokenizer(folder: Path) -> Any:
    """Give the tokenizer of a model directory.

    Raises:
        UserError: there is none, or it is damaged.
    """
    from transformers import AutoTokenizer

    try:
        with quiet():
            return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # noqa: BLE001  a boundary, as above
        raise UserError(
            f"{folder}: its tokenizer cannot be loaded ({one_line(error)}); copy it there."
        ) from None


def load_served_tokenizer(files: ModelFiles) -> Any:
    """Give the tokenizer of a model that is to be asked.

    Raises:
        UserError: there is none, it does not fit the model's vocabulary, or it has no chat template.
    """
    folder = files.folder
    if not any((folder / name).is_file() for name in _TOKENIZERS):
        raise UserError(f"{folder}: has no tokenizer.json; put the model's tokenizer files there.")
    tokenizer = load_tokenizer(folder)
    most = max(tokenizer.get_vocab().values(), default=-1)
    vocabulary = files.vocabulary
    if most >= vocabulary:
        raise UserError(
            f"{folder / 'tokenizer.json'}: has the token id {most}, but the model's vocabulary ends at "
            f"{vocabulary - 1}; it is another model's tokenizer."
        )
    if not tokenizer.chat_template:
        raise UserError(f"{folder}: has no chat template; put the model's chat_template.jinja there.")
    return tokenizer


def write_model(
    folder: Path,
    model: Any,
    tokenizer: Any,
    *,
    tensors: Mapping[str, Any] | None = None,
    texts: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Write a model directory that a server can load, in one step: another reader sees all of it or none.

    `tensors`: its weights, where they are not to be those that it holds. `texts`: more files, by name.
    """

    def save(beside: Path) -> None:
        with no_bars():
            model.save_pretrained(beside, state_dict=dict(tensors) if tensors is not None else None)

    _write(folder, save, tokenizer, texts)


def write_adapter(folder: Path, model: Any, tokenizer: Any, *, base: str) -> None:
    """Write the adapter of a PEFT model, told which model it belongs on, in one step."""
    for wanted in model.peft_config.values():
        wanted.base_model_name_or_path = base
    _write(folder, model.save_pretrained, tokenizer, {})


def _write(folder: Path, save: Callable[[Path], object], tokenizer: Any, texts: Mapping[str, str]) -> None:
    def write(beside: Path) -> None:
        save(beside)
        tokenizer.save_pretrained(beside)
        for name, text in texts.items():
            (beside / name).write_text(text, "utf-8")

    write_folder(folder, write)


@contextmanager
def threads(number: int) -> Iterator[None]:
    """Let torch compute with so many threads meanwhile; 0: as it is.

    One is the right number for models below some millions of parameters: two on two busy cores were four
    times slower, since threads wait for each other by spinning.
    """
    import torch

    before = torch.get_num_threads()
    if number:
        torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def calm() -> Iterator[None]:
    """Keep quiet what packages of the extra say of each other's coming versions, by its exact words."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)
        yield


@contextmanager
def no_bars() -> Iterator[None]:
    """No progress bars of transformers meanwhile; they would write over ours."""
    from transformers.utils import logging

    bars: Any = logging
    shown = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            bars.enable_progress_bar()


@contextmanager
def quiet() -> Iterator[None]:
    """What the library warns of while it loads is checked here, and said in our words."""
    from transformers.utils import logging as theirs

    level = theirs.get_verbosity()
    theirs.set_verbosity(logging.ERROR + 10)
    try:
        with no_bars():
            yield
    finally:
        theirs.set_verbosity(level)
