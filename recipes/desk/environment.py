"""Desks for episodes: each gets a SQLite file of its own, put up from a seed and taken away again.

The tools find theirs by the tenant in their config, so that many episodes run at once in one process.
Only a desk that was put up here can be opened: a tool that runs outside an episode finds none.
"""

import os
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from dreamgym_kit.canonical import digest
from dreamgym_kit.errors import UserError
from dreamgym_kit.recipes.desk.cases import make_case
from dreamgym_kit.recipes.desk.database import Desk, create_desk, desk_file
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.types import Environment

TENANT = "desk_tenant"
"""The key of `config["configurable"]` that says whose desk a tool works on."""

FOLDER_VARIABLE = "DESK_FOLDER"

_open_desks: dict[str, Path] = {}
_openings = {"desk": 0}
_counting = threading.Lock()  # tools run in threads


def times_opened() -> int:
    """How often a desk was asked for in this process: by calls of real tools, and by the judge of real ends.

    Counted below every gate: a dream that leaves it as it was called no tool.
    """
    return _openings["desk"]


class DeskEnvironment:
    """Implements `interfaces.EnvironmentProvider` for the world "desk".

    Args:
        folder: where the files go; `$DESK_FOLDER` when None, else a folder of this process under the
            system's own for temporary files.
    """

    isolated = True  # each episode has a file of its own

    def __init__(self, folder: Path | None = None) -> None:
        chosen = folder or os.environ.get(FOLDER_VARIABLE)
        self._own_folder = not chosen
        self._folder = (
            Path(chosen) if chosen else Path(tempfile.gettempdir()) / f"dreamgym-desk-{os.getpid()}"
        )

    def configurable(self, environment: Environment, episode: str) -> Mapping[str, JsonValue]:
        """See `EnvironmentProvider.configurable`."""
        return {TENANT: _tenant(environment.variant, episode)}

    async def reset(self, environment: Environment, episode: str) -> None:
        """See `EnvironmentProvider.reset`.

        Raises:
            UserError: the desk has no such seed.
        """
        try:
            rows = make_case(environment.variant).rows
        except ValueError as error:
            raise UserError(f"{environment}: {error}") from None
        await self.close(episode)
        tenant = _tenant(environment.variant, episode)
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{tenant}.db"
        path.unlink(missing_ok=True)  # a killed run left it
        create_desk(path, rows)
        _open_desks[tenant] = path

    async def close(self, episode: str) -> None:
        """See `EnvironmentProvider.close`."""
        ending = _tenant_ending(episode)
        for tenant in [name for name in _open_desks if name.endswith(ending)]:
            _open_desks.pop(tenant).unlink(missing_ok=True)
        if self._own_folder:
            with suppress(OSError):
                self._folder.rmdir()  # only once it is empty


@contextmanager
def open_desk(tenant: object) -> Iterator[Desk]:
    """Open the desk of an episode that is running.

    Raises:
        UserError: there is none of that name.
    """
    with _counting:
        _openings["desk"] += 1
    path = _open_desks.get(tenant) if isinstance(tenant, str) else None
    if path is None:
        raise UserError(
            f"no desk is open for {TENANT} {tenant!r}: call "
            "DeskEnvironment().reset(environment, episode) and give the graph what "
            "DeskEnvironment().configurable(environment, episode) returns as config['configurable']"
        )
    with desk_file(path) as desk:
        yield desk


def _tenant(seed: int, episode: str) -> str:
    return f"desk-{seed}{_tenant_ending(episode)}"


def _tenant_ending(episode: str) -> str:
    return f"-{digest(episode)[:16]}"  # an episode's id may hold anything; a file name may not
