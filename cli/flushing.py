"""`dreamgym-kit buffer flush`: what waits for a server is delivered to it, once."""

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dreamgym_kit.cli import options
from dreamgym_kit.cli.output import say, say_json, tell
from dreamgym_kit.errors import StoreError, UserError

if TYPE_CHECKING:
    from dreamgym_kit.adapters.stores.outbox import Delivered, Spool
    from dreamgym_kit.settings.buffer_url import Address, Place
    from dreamgym_kit.settings.schema import Settings

SpoolFile = Annotated[Path | None, options.argument("FILE", "What waits; else the file beside the runs.")]


def command(
    file: SpoolFile = None,
    buffer: options.Buffer = None,
    as_json: options.AsJson = False,
) -> None:
    """Deliver the recordings that wait for the buffer's server; done again, nothing is there twice."""
    from dreamgym_kit.adapters.embedders.choosing import embedder_of
    from dreamgym_kit.adapters.stores.factory import open_store
    from dreamgym_kit.replay.eviction import room_of

    settings = options.settings_for(buffer=buffer)
    address = _address(settings)
    spool = _spool(file, address, settings)
    waiting = len(spool.ids())
    if not spool.waits():
        _show(0, spool, None, address, as_json=as_json)
        return
    try:
        opened = open_store(
            address,
            settings,
            read_only=False,
            embedder=embedder_of(settings),
            room=room_of(settings.replay),
        )
        with closing(opened) as store:
            done = spool.deliver(store, lambda sent: tell(f"{sent} of {waiting} recordings delivered"))
    except StoreError as error:
        raise type(error)(
            f"{error}; recordings that still wait in {spool.path}: {len(spool.ids())}"
        ) from error
    _show(waiting, spool, done, address, as_json=as_json)
    if done.unreadable:
        raise typer.Exit(2)


def tell_waiting(place: "Place", settings: "Settings") -> int:
    """Warn that recordings wait for a buffer, which is without them; gives how many."""
    from dreamgym_kit.adapters.stores.factory import format_waiting, waiting_for
    from dreamgym_kit.settings.buffer_url import Address

    waiting = waiting_for(place, settings)
    if waiting and isinstance(place, Address):
        tell(f"warning: {format_waiting(waiting, place, settings)}")
    return waiting


def _address(settings: "Settings") -> "Address":
    from dreamgym_kit.settings.buffer_url import Address, buffer_of

    place = buffer_of(settings)
    if not isinstance(place, Address):
        raise UserError(
            f"flush: the buffer {place} is a file, and nothing waits for a file; name a server: "
            "--buffer weaviate://HOST. Nothing was delivered."
        )
    return place


def _spool(file: Path | None, address: "Address", settings: "Settings") -> "Spool":
    from dreamgym_kit.adapters.stores.factory import spool_of
    from dreamgym_kit.adapters.stores.outbox import Spool

    own = spool_of(address, settings)
    if file is None:
        return own
    if file.name != own.path.name:
        raise UserError(
            f"{file}: does not wait for {address}, whose file is called {own.path.name}; nothing was "
            "delivered. `buffer import` adds any file of recordings."
        )
    return Spool(file.absolute())


def _show(
    waited: int, spool: "Spool", done: "Delivered | None", address: "Address", *, as_json: bool
) -> None:
    left = len(spool.ids())
    if as_json:
        counts = {"sent": done.sent if done else 0, "new": done.new if done else 0}
        unreadable = list(done.unreadable) if done else []
        say_json({"waited": waited, **counts, "waiting": left, "unreadable": unreadable})
        return
    if done is None:
        say(f"Nothing waits for {address}.")
        others = sorted(path for path in spool.path.parent.glob("*.jsonl") if path != spool.path)
        for other in others:
            say(f" of another address: {other}")
        return
    say(f"{done.sent} recordings were delivered to {address}; {done.sent - done.new} were there already.")
    for line in done.unreadable:
        tell(f"error: {line}; it stays there until you mend or remove it")
    if left:
        say(f" {left} were added meanwhile and wait; deliver them with the same command.")
