"""The policy that a caller names, open for a block: a model directory in this process, or a server."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from dreamgym_kit.chat import ChatReply, ChatRequest
from dreamgym_kit.deployment.digests import model_digest
from dreamgym_kit.errors import UserError
from dreamgym_kit.ports import ChatEndpoint
from dreamgym_kit.settings.schema import Settings

Named = ChatEndpoint | str | Path | None
"""An endpoint of one's own; a model directory; or, where `policy.urls` are set, what the server calls it."""


class NamedPolicy:
    """Stands for a policy that workers open by its name; in this process nobody asks it.

    Attributes:
        name: a model directory, or what the server calls it.
    """

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


def weights_of(policy: Named, settings: Settings) -> str:
    """The digest of the model directory that is named; "" where another one answers, or a server does.

    `settings`: those that `with_policy` gave.
    """
    said = settings.policy
    if not isinstance(policy, (str, Path)) or said.urls or said.model is None:
        return ""
    return model_digest(Path(said.model))


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
    said = settings.policy
    if said.model is None:
        raise UserError("no policy is named")
    if settings.workers.elsewhere:
        yield NamedPolicy(said.model)
        return
    if said.urls:
        from dreamgym_kit.adapters.models.remote import open_remote

        with closing(open_remote(said, source=settings.where("policy"))) as remote:
            remote.check(temperature=said.temperature)
            yield remote
        return
    from dreamgym_kit.adapters.models.local import open_local

    with closing(open_local(Path(said.model))) as local:
        yield local
