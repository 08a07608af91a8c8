"""A buffer as settings want it, wherever it lies: with their embedder and, where it is written, their room.

Decides which store stands behind a place: a file is SQLite; an address is opened by the adapter of its
scheme, which is imported here and nowhere else, and only then.
"""

import os
import secrets
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from dreamgym_kit.adapters.embedders.choosing import embedder_of
from dreamgym_kit.adapters.stores.outbox import BufferedStore, Spool, warned
from dreamgym_kit.adapters.stores.sqlite import SqliteStore
from dreamgym_kit.dream.faults import took_effect
from dreamgym_kit.errors import RunDirectoryError, UserError, require_extra
from dreamgym_kit.interfaces import Embedder, Room, TransitionStore
from dreamgym_kit.replay.eviction import room_of
from dreamgym_kit.replay.masking import Masker, masked_answer, process_masker, rules_digest
from dreamgym_kit.replay.records import dump_transition
from dreamgym_kit.rollout.atomic_files import write_atomically
from dreamgym_kit.settings.buffer_url import SCHEMES, Address, Place, place_of
from dreamgym_kit.settings.schema import Settings
from dreamgym_kit.types import Reply, Transition, history_digest

# Module, function and extra of what opens the addresses of a scheme. It is given what `open_store` is given,
# and connects before it returns. It raises `StoreUnavailable` where no server answers in time, another
# `StoreError` or `UserError` where asking again cannot help: a wrong key, a tenant that there is not.
_WEAVIATE = ("dreamgym_kit.adapters.stores.weaviate", "open_weaviate", "weaviate")
_ADAPTERS = dict.fromkeys(SCHEMES, _WEAVIATE)

SPOOLS = ".spool"  # a folder beside the runs
MOST_CHECKED = 20_000  # rows; about a second
SALT = ".salt"  # what the name of a buffer's salt ends with
_SALT_BYTES = 32
_OWN_SALT = secrets.token_bytes(_SALT_BYTES)  # of buffers that are in this process alone
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


def salt_file(place: Place, settings: Settings) -> Path:
    """Where the salt of a buffer's marks is kept: beside the file, or for a server beside the runs."""
    if isinstance(place, Address):
        return settings.resolve(settings.runs) / SPOOLS / f"{place.name}{SALT}"
    return place.with_name(f"{place.name}{SALT}")


def salt_of(store: TransitionStore | None, settings: Settings) -> bytes | None:
    """What marks of secrets are made with in a buffer; made when first asked for, readable by its owner.

    A buffer that no other process can open has the salt of this one; so has one beside which nothing can be
    written: there no recorded mark is met again, and calls with secrets are unanswered. None: marks keep no
    identity.

    Raises:
        UserError: the file is no salt.
    """
    store = getattr(store, "store", store)  # a view of it
    if not getattr(store, "salted", True):
        return None
    if store is None or not (isinstance(store, SqliteStore) or store in _ADDRESSES):
        return _OWN_SALT
    place = store.path if isinstance(store, SqliteStore) else _ADDRESSES[store]
    return salt_at(salt_file(place, settings)) or _OWN_SALT


def salt_at(path: Path) -> bytes | None:
    """The salt in a file, which is made if it is not there; None where it can be neither made nor read.

    Raises:
        UserError: the file is no salt.
    """
    try:
        if not path.exists():
            _make_salt(path)
        salt = bytes.fromhex(path.read_text("ascii").split("\n")[0])
    except OSError:
        return None
    except ValueError:
        salt = b""
    if len(salt) != _SALT_BYTES:
        raise UserError(
            f"{path} is no salt (64 hex digits); put back the one that the buffer's marks were made with, or "
            "delete it: then no recorded secret is met again."
        )
    return salt


def _make_salt(path: Path) -> None:
    made = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(made, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
        file.write(f"{secrets.token_hex(_SALT_BYTES)}\n")
    try:
        os.link(made, path)  # of two processes that make it at once, one does
    except FileExistsError:
        return
    except OSError:  # no links there
        made.rename(path)
    finally:
        made.unlink(missing_ok=True)
    buffer = path.with_suffix("")
    with buffer.open("rb") if buffer.is_file() else nullcontext(()) as lines:
        if any(b"<masked:" in line for line in lines):
            warned(
                f"{path} was not there, and {buffer} holds marks of secrets: none of them is met again. "
                f"Copy the {path.name} that lay beside the buffer over it."
            )


def holds_secrets(store: TransitionStore, place: Place, settings: Settings) -> int:
    """How many rows of a buffer today's rules would mask, once for each set of rules; 0 where that is known.

    A buffer of more rows than `MOST_CHECKED` is not read; `buffer scrub` reads any.
    """
    path, rules = salt_file(place, settings), rules_digest()
    salt = salt_of(store, settings)
    if not path.exists() or path.read_text("ascii").split("\n")[1] == rules or store.count() > MOST_CHECKED:
        return 0
    found = len(to_mask(store, process_masker(settings.experience.key_env, salt=salt)))
    with suppress(RunDirectoryError):  # then it is said again
        write_atomically(path, f"{path.read_text('ascii').split()[0]}\n{rules}\n".encode(), mode=0o600)
    return found


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


def masked_rows(episode: Sequence[Transition], masker: Masker) -> list[Transition]:
    """The recordings of one episode, in order, as a masker has them; the same objects where nothing changes.

    The state that a call met is named by the writes before it, so it changes with their arguments; and so
    does a row's id with all of these.
    """
    states, before, after = {"": ""}, list[str](), list[str]()
    rows = []
    for row in episode:
        call, answer = row.call, masked_answer(row.answer, masker)
        args = masker.plain(call.args)
        replies = tuple(Reply(masker.plain(reply.asked), masker.plain(reply.reply)) for reply in call.replies)
        if args is not call.args or replies != call.replies:
            call = replace(call, args=args, replies=replies)
        met = states.get(row.after, row.after)
        same = call is row.call and answer is row.answer and met == row.after
        rows.append(row if same else replace(row, call=call, answer=answer, after=met))
        if row.writes and took_effect(row.answer):
            before.append(row.call.key)
            after.append(call.key)
            states[history_digest(before)] = history_digest(after)
    return rows


def to_mask(store: TransitionStore, masker: Masker) -> dict[str, Transition]:
    """By id, each row of a store that a masker would have otherwise, as it would have it."""
    touched = {
        _episode(row)
        for row in store.scan()
        if masker.plain(row.call.args) is not row.call.args
        or any(masker.plain(reply.reply) is not reply.reply for reply in row.call.replies)
        or masked_answer(row.answer, masker) is not row.answer
    }
    episodes: dict[tuple[str, ...], list[Transition]] = {}
    for row in store.scan() if touched else ():
        if _episode(row) in touched:
            episodes.setdefault(_episode(row), []).append(row)
    return {
        row.id: masked
        for rows in episodes.values()
        for row, masked in zip(rows, masked_rows(rows, masker), strict=True)
        if masked is not row
    }


def _episode(row: Transition) -> tuple[str, ...]:
    return row.tenant, str(row.environment), row.episode


def put_in_place(store: TransitionStore, masked: Mapping[str, Transition], kept: Path) -> None:
    """Put rows in the place of those with other ids; whole episodes, so that their calls stay in order.

    `kept`: a file that the new rows are in until all of them are stored: import it after a break-off.
    """
    touched = {_episode(row) for row in masked.values()}
    rows = [row for row in store.scan() if _episode(row) in touched]
    new = [masked.get(row.id, row) for row in rows]
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text("".join(f"{dump_transition(row)}\n" for row in new), "ascii")
    store.remove([row.id for row in rows])
    store.put(new)
    kept.unlink()
