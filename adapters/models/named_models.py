"""Models that settings and callers name: behind a server, or a model directory in this process.

The dream's model decides what tools answer and nothing else: it judges no episode and plays no user. Training
is only done with a directory whose gate lies beside it and is of its very weights.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from dreamgym_kit.adapters.models.addresses import read_address, read_key
from dreamgym_kit.chat import ChatMessage, ChatReply, ChatRequest
from dreamgym_kit.deployment.model_files import digest_of_folder, model_digest
from dreamgym_kit.errors import EndpointError, UserError
from dreamgym_kit.guard import egress
from dreamgym_kit.interfaces import ChatEndpoint
from dreamgym_kit.settings.schema import Settings
from dreamgym_kit.trust.acceptance import FILE, Gate, read_gate

if TYPE_CHECKING:
    from dreamgym_kit.adapters.models.endpoint import OpenAIEndpoint
    from dreamgym_kit.adapters.models.local import LocalPolicy

Named = ChatEndpoint | str | Path | None
"""An endpoint object, a model directory or, where `policy.urls` is set, the name of a served model."""


def directory_of(settings: Settings) -> Path | None:
    """The directory of the language model that answers in this process, or None."""
    if settings.experience.dir is None or learned_directory(settings) is not None:
        return None
    return settings.resolve(settings.experience.dir)


def learned_directory(settings: Settings) -> Path | None:
    """The directory of a model that learned to decide in closed words of its own; None: it is no such one."""
    if settings.experience.dir is None:
        return None
    from dreamgym_kit.dream.learned.vocabulary import LEARNED_FILE

    folder = settings.resolve(settings.experience.dir)
    with egress.exempt():  # the kit's own files
        return folder if (folder / LEARNED_FILE).is_file() else None


def open_experience(settings: Settings, *, role: str = "") -> "OpenAIEndpoint | LocalPolicy | None":
    """Where the dream's model answers; None where settings name none. To be closed by who opens it.

    `role`: as for `open_endpoint`; such a model is never a directory.

    Raises:
        MissingExtra: it is a directory, and the packages of the extra `train` are not installed.
        UserError: it cannot be used; says which file or setting, and what to do.
    """
    folder = None if role else directory_of(settings)
    if folder is not None and not folder.is_dir():
        raise UserError(f"{settings.where('experience', 'dir')}: {folder}: is no model directory.")
    if folder is not None:
        return open_directory(folder)
    return open_endpoint(settings, role=role)


def open_endpoint(
    settings: Settings, *, role: str = "", environ: Mapping[str, str] | None = None
) -> "OpenAIEndpoint | None":
    """The endpoint that settings name; None where they name none. Nothing is sent yet.

    `role`: "judge", "user" or "teacher", which may have a model of their own.

    Raises:
        UserError: a URL, the model or the key's variable is missing or wrong.
    """
    experience = settings.experience.of(role) if role else settings.experience
    if not experience.urls:
        if experience.model is not None:
            raise UserError(
                f"{settings.where('experience', 'model')}: experience.model is the name of a served model, "
                "and experience.urls names no server; a directory is experience.dir."
            )
        return None
    if experience.model is None:
        if experience.dir is not None:
            return None
        raise UserError(
            f"{settings.where('experience')}: experience.urls is set, but neither experience.model (a served "
            "name) nor experience.dir (the directory that is served)."
        )
    from dreamgym_kit.adapters.models.endpoint import OpenAIEndpoint

    source = settings.where("experience", "urls")
    addresses = tuple(read_address(url, source=source) for url in experience.urls)
    key_source = settings.where("experience", "key_env" if experience.key_env is not None else "key_file")
    key = read_key(experience.key_env, file=experience.key_file, source=key_source, environ=environ)
    return OpenAIEndpoint(addresses, experience, key)


async def check_endpoint(endpoint: ChatEndpoint) -> None:
    """Ask once, before a run begins.

    Raises:
        UserError: it gave no usable answer; nothing was run.
    """
    try:
        await endpoint.chat(ChatRequest([ChatMessage("user", "Say: ready")], max_tokens=16))
    except EndpointError as error:
        raise UserError(f"the dream's model cannot be asked: {error}. Nothing was run.") from None


def open_directory(folder: Path) -> "LocalPolicy":
    """A model directory in this process, on a GPU where there is one."""
    from dreamgym_kit.adapters.models.folders import require_extra
    from dreamgym_kit.adapters.models.local import open_local

    require_extra("an experience model in process")
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    return open_local(folder, version=folder.name, device=device)


def gate_of_settings(settings: Settings) -> Gate | None:
    """The gate that the dream's model has passed; None: it was never tried.

    Raises:
        UserError: the file that settings name cannot be read, or is of other weights.
    """
    folder, named = directory_of(settings), settings.experience.acceptance
    path = settings.resolve(named) if named is not None else folder / FILE if folder is not None else None
    if path is None or (named is None and not path.exists()):
        return None
    return read_gate(path, weights=None if folder is None else digest_of_folder(folder))


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


class NamedPolicy:
    """Stands for a policy that workers open by its name; in this process nobody asks it."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def chat(self, request: ChatRequest) -> ChatReply:  # noqa: ARG002  the port's form
        """See `ChatEndpoint.chat`."""
        raise UserError(f"the policy {self.name} answers in workers only")


def with_policy(policy: Named, settings: Settings) -> Settings:
    """Settings in which `policy.model` is the named one; a directory is looked up from the current folder."""
    if not isinstance(policy, (str, Path)):
        return settings
    name = str(policy) if settings.policy.urls else str(Path(policy).absolute())
    return settings.with_overrides({"policy.model": name})


def weights_digest(policy: Named, settings: Settings) -> str:
    """The digest of the model directory that is named; "" where another one answers, or a server does.

    `settings`: those that `with_policy` gave.
    """
    section = settings.policy
    if not isinstance(policy, (str, Path)) or section.urls or section.model is None:
        return ""
    return model_digest(Path(section.model))


@contextmanager
def opened_policy(policy: Named, settings: Settings) -> Iterator[ChatEndpoint | None]:
    """An endpoint of the caller's stays open; a policy that is named is opened, and closed again.

    `settings`: those that `with_policy` gave.

    Raises:
        MissingExtra: the packages of the extra `train` are not installed.
        UserError: it is no model that can be used, or a server lacks what a policy needs; says what to do.
    """
    if policy is None or not isinstance(policy, (str, Path)):
        yield policy
        return
    section = settings.policy
    if section.model is None:
        raise UserError("no policy is named")
    if settings.workers.elsewhere:
        yield NamedPolicy(section.model)
        return
    if section.urls:
        from dreamgym_kit.adapters.models.remote import open_remote

        with closing(open_remote(section, source=settings.where("policy"))) as remote:
            remote.check(temperature=section.temperature)
            yield remote
        return
    from dreamgym_kit.adapters.models.local import open_local

    with closing(open_local(Path(section.model))) as local:
        yield local
