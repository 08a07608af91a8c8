"""`deployed`: the block in which an agent works with what is deployed, recorded where that was asked for."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dreamgym_kit.adapters.langgraph.run.api import recording
from dreamgym_kit.deployment.model_registry import read_use, version_in_use
from dreamgym_kit.settings.schema import Settings
from dreamgym_kit.types import Environment


@contextmanager
def deployed(
    folder: str | Path = "deployed",
    *,
    environment: Environment | None = None,
    settings: Settings | None = None,
) -> Iterator[str]:
    """Run one piece of the agent's work on the real tools; gives the name of the version in use.

    While `dreamgym-kit deploy promote --record BUFFER` is in force each tool call of the block is kept
    there, as an episode that is called after the version: the next training begins with it. Otherwise
    nothing is kept, and nothing is hooked. The tools run for real either way.

    Args:
        folder: the folder of versions.
        environment: what the tools act on, for later dreams.
        settings: default: the nearest dreamgym.toml, if there is one.

    Raises:
        UserError: nothing is deployed there.
    """
    place = Path(folder)
    version, use = version_in_use(place), read_use(place)
    if not use.record:
        yield version
        return
    episode = f"{use.name}-{version}-{uuid.uuid4().hex[:12]}"
    with recording(use.record, environment=environment, episode=episode, settings=settings):
        yield version
