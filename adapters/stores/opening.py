"""A buffer as settings want it: with their embedder, and, where it is written, with the room they give it."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from dreamgym_kit.adapters.embedders.choosing import embedder_of
from dreamgym_kit.adapters.stores.sqlite import SqliteStore
from dreamgym_kit.replay.eviction import room_of
from dreamgym_kit.settings.model import Settings


def open_to_search(path: Path, settings: Settings) -> SqliteStore:
    """Open a buffer for questions; it is not written.

    Raises:
        StoreError: it cannot be opened, or its vectors are those of another embedder than settings name.
        UserError: settings name no embedder that can be had.
    """
    return SqliteStore(path, read_only=True, embedder=embedder_of(settings))


@contextmanager
def opened_to_add(
    path: Path, settings: Settings, *, tell: Callable[[str], None] = lambda _: None
) -> Iterator[SqliteStore]:
    """Open a buffer to add rows; what has no room leaves at the latest when this ends, and is told.

    Raises:
        StoreError: see `open_to_search`.
        UserError: see `open_to_search`.
    """
    embedder, room = embedder_of(settings), room_of(settings.replay)
    with closing(SqliteStore(path, embedder=embedder, room=room)) as store:
        yield store
        left = store.make_room()
        if left:
            tell(
                f"{left} transitions left {path} for want of room: settings [replay] rows, dreamt_share and "
                "dreamt_days say how much there is, and real ones leave last."
            )
