"""Whether the packages of the extra `train` are there, and how they are kept quiet."""

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dreamgym_kit import errors

_TELEMETRY = "HF_HUB_DISABLE_TELEMETRY"


def require_extra(needed_by: str) -> None:
    """Raise MissingExtra where one of the packages is not installed, else keep them from telling others."""
    errors.require_extra("train", needed_by=needed_by)
    _no_telemetry()


def _no_telemetry() -> None:
    """Have TRL report nobody's training to huggingface.co, unless HF_HUB_DISABLE_TELEMETRY says otherwise."""
    if os.environ.setdefault(_TELEMETRY, "1") == "1" and "huggingface_hub.constants" in sys.modules:
        sys.modules["huggingface_hub.constants"].__dict__[_TELEMETRY] = True  # it read the variable before


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


def activation_checkpointing(wanted: bool) -> dict[str, Any]:
    """The training argument of that name, as the transformers that is there calls it; TRL switches it on."""
    from transformers import TrainingArguments

    renamed = "activation_checkpointing" in TrainingArguments.__dataclass_fields__
    return {"activation_checkpointing" if renamed else "gradient_checkpointing": wanted}
