"""A buffer as settings want it, wherever it lies: with their embedder and, where it is written, their room.

Decides which store stands behind a place: a file is SQLite; an address is opened by the adapter of its
scheme, which is imported here and nowhere else, and only then.
"""

import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from dreamgym_kit.adapters.embedders.choosing import embedder_of
from dreamgym_kit.adapters.stores.outbox import BufferedStore, Spool, warned
from dreamgym_kit.adapters.stores.sqlite import SqliteStore
from dreamgym_kit.errors import UserError, require_extra
from dreamgym_kit.interfaces import Embedder, Room, TransitionStore
from dreamgym_kit.replay.eviction import room_of
from dreamgym_kit.settings.buffer_url import SCHEMES, Address, Place, place_of
from dreamgym_kit.settings.schema import Settings

# Module, function and extra of what opens the addresses of a scheme. It is given what `open_store` is given,
# and connects before it returns. It raises `StoreUnavailable` where no server answers in time, another
# `StoreError` or `UserError` where asking again cannot help: a wrong key, a tenant that there is not.
_WEAVIATE = ("dreamgym_kit.adapters.stores.weaviate", "open_weaviate", "weaviate")
_ADAPTERS = dict.fromkeys(SCHEMES, _WEAVIATE)

SPOOLS = ".spool"  # a folder beside the runs
_ADDRESSES: WeakKeyDictionary[TransitionStore, Address] = WeakKeyDictionary()  # of what was opened here


def open_store(
    place: Place,
    settings: Settings,
    *,
    read_only: bool = True,
    embedder: Embedder | None = None,
    room: Room | None = None,
) -> TransitionStore:
    """Open the buffer at a place; without an embedder it is for reading in order, not for questions.

    Raises:
        StoreError: it cannot be opened; `StoreUnavailable` where its server does not answer.
        MissingExtra: the scheme's package is not installed.
    """
    if not isinstance(place, Address):
        return SqliteStore(place, read_only=read_only, embedder=embedder, room=room)
    module, function, extra = _ADAPTERS[place.scheme]
    require_extra(extra, needed_by=f"the buffer {place}")
    opens: Callable[..., TransitionStore] = getattr(import_module(module), function)
    opened = opens(place, settings, read_only=read_only, embedder=embedder, room=room)
    _ADDRESSES[opened] = place
    return opened


def open_to_search(place: Place, settings: Settings) -> TransitionStore:
    """Open a buffer for questions; it is not written.

    Raises:
        StoreError: it cannot be opened, or its vectors are those of another embedder than settings name.
        UserError: settings name no embedder that can be had.
    """
    return open_store(place, settings, embedder=embedder_of(settings))


def foreign_embedder(store: TransitionStore) -> str | None:
    """Names the embedder of a store's vectors where it was not given: then search goes by words only."""
    foreign = getattr(store, "foreign_embedder", None)
    return foreign if isinstance(foreign, str) else None


def is_far(store: TransitionStore | None) -> bool:
    """Whether a question to a store goes over a network; an event loop is not to wait for that."""
    return bool(getattr(store, "far", False))


def spool_of(address: Address, settings: Settings) -> Spool:
    """The file beside the runs in which rows wait for a server."""
    return Spool(settings.resolve(settings.runs) / SPOOLS / f"{address.name}.jsonl")


@contextmanager
def opened_to_add(
    place: Place, settings: Settings, *, tell: Callable[[str], None] | None = None
) -> Iterator[SqliteStore | BufferedStore]:
    """Open a buffer to add rows, with the room that settings give it; what waits for its server is delivered.

    A server that is away is no error: rows wait in a file until it answers. What has no room leaves at the
    latest when this ends, and is told; so is what still waits for a server then, with what to type.

    Raises:
        StoreError: see `open_to_search`.
        UserError: see `open_to_search`.
    """
    opened = _open_to_add(place, settings, room=room_of(settings.replay), tell=tell or warned)
    with closing(opened) as store:
        yield store
        left = store.make_room()
        if left and tell is not None:
            tell(
                f"{left} transitions left {place} for want of room: settings [replay] rows, dreamt_share and "
                "dreamt_days say how much there is, and real ones leave last."
            )
        if isinstance(place, Address) and isinstance(store, BufferedStore) and store.waiting:
            (tell or warned)(format_waiting(store.waiting, place, settings))


def _open_to_add(
    place: Place, settings: Settings, *, room: Room | None, tell: Callable[[str], None]
) -> SqliteStore | BufferedStore:
    embedder = embedder_of(settings)
    if not isinstance(place, Address):
        return SqliteStore(place, embedder=embedder, room=room)
    opened = BufferedStore(
        lambda: open_store(place, settings, read_only=False, embedder=embedder, room=room),
        spool_of(place, settings),
        tell=tell,
    )
    _ADDRESSES[opened] = place
    return opened


def address_of(store: TransitionStore) -> str:
    """By what another process opens the same buffer.

    Raises:
        UserError: it is in this process alone.
    """
    if isinstance(store, SqliteStore):
        return str(store.path.absolute())
    if store in _ADDRESSES:
        return str(_ADDRESSES[store])
    raise UserError(
        f"a buffer of type {type(store).__name__} is in this process alone, and workers run in processes of "
        "their own; give it as a file or an address. Nothing was run."
    )


@contextmanager
def opened_again(spec: Mapping[str, Any] | None, settings: Settings) -> Iterator[TransitionStore | None]:
    """The buffer of `address_of` in another process; what has no room leaves with the first one's closing.

    Args:
        spec: its "address", and whether to "write" to it; None: there is none.
        settings: whose embedder it is searched with.
    """
    if spec is None:
        yield None
        return
    place = place_of(spec["address"], Path())
    opened: TransitionStore
    if spec["write"]:
        opened = _open_to_add(place, settings, room=None, tell=_tell_stderr)
    else:
        opened = open_store(place, settings)
    with closing(opened) as store:
        yield store


def _tell_stderr(text: str) -> None:
    """A worker has nobody but its stderr to tell."""
    sys.stderr.write(f"{text}\n")


def added_since(store: SqliteStore | BufferedStore) -> Callable[[], int]:
    """Counts the rows that are put from now on and were new; those that wait for their server too."""

    def count() -> int:
        return store.added if isinstance(store, BufferedStore) else store.count()

    before = count()
    return lambda: count() - before


def waiting_part(store: SqliteStore | BufferedStore) -> str:
    """What is to be said behind "were added to ...": how many of all rows wait; nothing where none does."""
    waiting = store.waiting if isinstance(store, BufferedStore) else 0
    return f" ({waiting} wait for it)" if waiting else ""


def waiting_for(place: Place, settings: Settings) -> int:
    """How many rows wait for the server of a place."""
    return len(spool_of(place, settings).ids()) if isinstance(place, Address) else 0


def format_waiting(count: int, address: Address, settings: Settings) -> str:
    """That rows wait for a server, and what to type."""
    file = shlex.quote(str(spool_of(address, settings).path))
    typed = f"dreamgym-kit buffer flush {file} --buffer {shlex.quote(str(address))}"
    return f"recordings that wait for {address} and are not in it yet: {count}; deliver them: {typed}"
