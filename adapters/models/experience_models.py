"""The dream's model as settings name it: behind a server, or a model directory in this process; and its gate.

A directory is what `dreamgym-kit experience train` wrote, or any other causal language model. It decides what
tools answer and nothing else: it judges no episode and plays no user. Training is only done with one whose
gate lies beside it and is of its very weights.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from dreamgym_kit.adapters.models.endpoint import open_endpoint
from dreamgym_kit.errors import UserError
from dreamgym_kit.settings.schema import Settings
from dreamgym_kit.training.distil.gate import FILE, Gate, read_gate

if TYPE_CHECKING:
    from dreamgym_kit.adapters.models.endpoint import OpenAIEndpoint
    from dreamgym_kit.adapters.models.local import LocalPolicy


def directory_of(settings: Settings) -> Path | None:
    """The model directory that is to answer in this process; None where a server does, or nobody."""
    said = settings.endpoint
    if said.urls or said.model is None:
        return None
    folder = settings.resolve(said.model)
    return folder if folder.is_dir() else None


def open_experience(settings: Settings) -> "OpenAIEndpoint | LocalPolicy | None":
    """Where the dream's model answers; None where settings name none. To be closed by who opens it.

    Raises:
        MissingExtra: it is a directory, and the packages of the extra `train` are not installed.
        UserError: it cannot be used; says which file or setting, and what to do.
    """
    folder = directory_of(settings)
    return open_endpoint(settings) if folder is None else open_directory(folder)


def open_directory(folder: Path) -> "LocalPolicy":
    """A model directory in this process, on a GPU where there is one."""
    from dreamgym_kit.adapters.models.local import open_local
    from dreamgym_kit.adapters.trainers.extra import require_extra

    require_extra("an experience model in process")
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    return open_local(folder, version=folder.name, device=device)


def gate_of_settings(settings: Settings) -> Gate | None:
    """The gate that the dream's model has passed; None: it was never tried.

    Raises:
        UserError: the file that settings name cannot be read, or is of other weights.
    """
    folder, named = directory_of(settings), settings.endpoint.gate
    path = settings.resolve(named) if named is not None else folder / FILE if folder is not None else None
    if path is None or (named is None and not path.exists()):
        return None
    return read_gate(path, weights=None if folder is None else weights_of(folder))


def weights_of(folder: Path) -> str:
    """Tells weights apart."""
    from dreamgym_kit.adapters.trainers.weights import digest_of_folder

    return digest_of_folder(folder)


def allowance(settings: Settings, gate: Gate | None, *, training: bool) -> Callable[[str], str | None] | None:
    """Why a tool's calls may not be put to the dream's model; None where all may.

    Raises:
        UserError: training is to be done with a directory that has no gate.
    """
    if gate is None:
        folder = directory_of(settings)
        if training and folder is not None:
            raise UserError(
                f"{folder}: was never tried on held-out recordings, and training with it would learn its "
                "errors; try it: dreamgym-kit experience eval, which writes its gate."
            )
        return None

    def barred(tool: str) -> str | None:
        return None if gate.may_answer(tool, training=training) else gate.why_not(tool)

    return barred
