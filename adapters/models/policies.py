"""The policy that a caller names, open for a block: a model directory in this process, or an endpoint."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from dreamgym_kit.errors import UserError
from dreamgym_kit.ports import ChatEndpoint
from dreamgym_kit.settings.model import Settings


@contextmanager
def opened_policy(
    policy: ChatEndpoint | str | Path | None, settings: Settings
) -> Iterator[ChatEndpoint | None]:
    """A policy of the caller's stays open; a model directory that is named is opened, and closed again.

    Raises:
        MissingExtra: the packages of the extra `train` are not installed.
        UserError: it is no model that can be used; says which file, and what to do.
    """
    if policy is None or not isinstance(policy, (str, Path)):
        yield policy
        return
    if settings.policy.urls:
        raise UserError(
            f"{settings.where('policy', 'urls')}: a policy behind a server cannot stand in for the agent's "
            "models yet; leave policy.urls out and name its directory."
        )
    from dreamgym_kit.adapters.models.local import open_local

    with closing(open_local(settings.resolve(str(policy)))) as opened:
        yield opened
