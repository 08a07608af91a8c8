"""Open the buffer that settings name, with their embedder and, for writing, their size limits.

A file is an SQLite buffer. A URL is opened by the adapter of its scheme, which is imported only then and only
here.
"""

import json
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
from dreamgym_kit.adapters.stores.outbox import BufferedStore, Outbox, warn_waiting
from dreamgym_kit.adapters.stores.sqlite import SqliteStore
from dreamgym_kit.dream.faults import took_effect
from dreamgym_kit.errors import RunDirectoryError, UserError, require_extra
from dreamgym_kit.guard import egress
from dreamgym_kit.interfaces import Embedder, Room, TransitionStore
from dreamgym_kit.replay.eviction import room_of
from dreamgym_kit.replay.masking import Masker, masked_answer, process_masker, rules_digest
from dreamgym_kit.replay.records import dump_transition
from dreamgym_kit.rollout.atomic_files import read_sealed, write_atomically, write_sealed
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.settings.buffer_url import Address, Place, place_of
from dreamgym_kit.settings.schema import Settings
from dreamgym_kit.types import Reply, Transition, history_digest

OUTBOX_FOLDER = ".spool"  # a folder in the runs directory
MOST_CHECKED = 20_000  # rows; about a second
SALT = ".salt"  # suffix of a salt file
_SALT_BYTES = 32
_MAX_PROGRAM_SETS = 3  # sets of programs in a file, by state of the buffer and tools
_OWN_SALT = secrets.token_bytes(_SALT_BYTES)  # for buffers that exist only in this process
_ADDRESSES: WeakKeyDictionary[TransitionStore, Address] = WeakKeyDictionary()  # of stores opened here


def open_store(
    place: Place,
    settings: Settings,
    *,
    read_only: bool = True,
    embedder: Embedder | None = None,
    room: Room | None = None,
) -> TransitionStore:
    """Open the buffer at a place; without an embedder it can be scanned but not searched.

    Raises:
        StoreError: it cannot be opened; `StoreUnavailable` if its server does not answer.
        MissingExtra: the scheme's package is not installed.
    """
    if not isinstance(place, Address):
        return SqliteStore(place, read_only=read_only, embedder=embedder, room=room)
    module, function = place.kind.opens
    require_extra(place.kind.extra, needed_by=f"the buffer {place}")
    opens: Callable[..., TransitionStore] = getattr(import_module(module), function)
    opened = opens(place, settings, read_only=read_only, embedder=embedder, room=room)
    _ADDRESSES[opened] = place
    return opened


def open_to_search(place: Place, settings: Settings) -> TransitionStore:
    """Open a buffer read-only for search.

    Raises:
        StoreError: it cannot be opened, or its vectors come from another embedder than that of the settings.
        UserError: the embedder of the settings is not available.
    """
    return open_store(place, settings, embedder=embedder_of(settings))


def foreign_embedder(store: TransitionStore) -> str | None:
    """Return the name of a store's embedder if it is missing, so that search uses words only; else None."""
    foreign = getattr(store, "foreign_embedder", None)
    return foreign if isinstance(foreign, str) else None


def is_far(store: TransitionStore | None) -> bool:
    """Return whether reads of a store use the network, so that an event loop must not block on them."""
    return bool(getattr(store, "far", False))


def outbox_of(address: Address, settings: Settings) -> Outbox:
    """Return the outbox of a server, in the runs directory."""
    return Outbox(settings.resolve(settings.runs) / OUTBOX_FOLDER / f"{address.name}.jsonl")


@contextmanager
def opened_to_add(
    place: Place, settings: Settings, *, tell: Callable[[str], None] | None = None
) -> Iterator[SqliteStore | BufferedStore]:
    """Open a buffer to add rows, with the size limits of the settings, and deliver its outbox.

    An unreachable server raises nothing: rows wait in the outbox. On leaving, rows beyond the limits are
    evicted. `tell` reports their number, and how to deliver the rows that still wait.

    Raises:
        StoreError: see `open_to_search`.
        UserError: see `open_to_search`.
    """
    opened = _open_to_add(place, settings, room=room_of(settings.replay), tell=tell or warn_waiting)
    with closing(opened) as store:
        yield store
        left = store.make_room()
        if left and tell is not None:
            tell(
                f"{left} recordings were evicted from {place}: it reached a limit of [replay] (rows, "
                "dreamt_share or dreamt_days). Real recordings are evicted last."
            )
        if isinstance(place, Address) and isinstance(store, BufferedStore) and store.waiting:
            (tell or warn_waiting)(format_waiting(store.waiting, place, settings))


def _open_to_add(
    place: Place, settings: Settings, *, room: Room | None, tell: Callable[[str], None]
) -> SqliteStore | BufferedStore:
    embedder = embedder_of(settings)
    if not isinstance(place, Address):
        return SqliteStore(place, embedder=embedder, room=room)
    opened = BufferedStore(
        lambda: open_store(place, settings, read_only=False, embedder=embedder, room=room),
        outbox_of(place, settings),
        tell=tell,
    )
    _ADDRESSES[opened] = place
    return opened


def salt_file(place: Place, settings: Settings) -> Path:
    """Return the path of a buffer's salt: next to the file, or for a server in the runs directory."""
    if isinstance(place, Address):
        return settings.resolve(settings.runs) / OUTBOX_FOLDER / f"{place.name}{SALT}"
    return place.with_name(f"{place.name}{SALT}")


class ProgramFile:
    """Implements `KeptPrograms` by a file beside the buffer, with what was mined of its last few states."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, digest: str) -> JsonValue:
        """See `KeptPrograms`."""
        return next((json.loads(line)[1] for line in self._lines() if digest.encode() in line[:80]), None)

    def write(self, digest: str, mined: JsonValue) -> None:
        """See `KeptPrograms`."""
        others = [line for line in self._lines() if digest.encode() not in line[:80]]
        lines = [json.dumps([digest, mined]).encode(), *others[: _MAX_PROGRAM_SETS - 1]]
        with suppress(OSError, RunDirectoryError), egress.exempt():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_sealed(self.path, b"\n".join(lines))

    def _lines(self) -> list[bytes]:
        with suppress(OSError, RunDirectoryError), egress.exempt():
            return (read_sealed(self.path) or b"").splitlines()
        return []


def program_file(place: Place, settings: Settings) -> Path:
    """Return the path of what was mined from a buffer; like `salt_file`."""
    return salt_file(place, settings).with_suffix(".programs")


def kept_programs(store: TransitionStore | None, settings: Settings) -> ProgramFile | None:
    """Return what keeps the programs that are mined from a buffer; None if only this process has it."""
    place = _place_of(getattr(store, "store", store))
    return ProgramFile(program_file(place, settings)) if place is not None else None


def _place_of(store: TransitionStore | None) -> Place | None:
    if isinstance(store, SqliteStore):
        return store.path
    return _ADDRESSES.get(store) if store is not None else None


def salt_of(store: TransitionStore | None, settings: Settings) -> bytes | None:
    """Return the salt for the marks that replace secrets in a buffer; only its owner can read a new one.

    A buffer that no other process can open uses this process's salt, and so does one whose salt file cannot
    be
    written: recorded marks then match no secret, and calls with secrets are unanswered. None: marks do not
    distinguish secrets.

    Raises:
        UserError: the file is not a salt.
    """
    store = getattr(store, "store", store)  # unwrap a view
    if not getattr(store, "salted", True):
        return None
    place = _place_of(store)
    return (salt_at(salt_file(place, settings)) if place is not None else None) or _OWN_SALT


def salt_at(path: Path) -> bytes | None:
    """Return the salt in a file, created if it is absent; None if it can be neither created nor read.

    Raises:
        UserError: the file is not a salt.
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
            f"{path} is not a salt (64 hex digits). Restore the one with which the buffer was recorded, or "
            "delete the file: then recorded marks match no secret, and calls with secrets are unanswered."
        )
    return salt


def _make_salt(path: Path) -> None:
    made = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(made, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
        file.write(f"{secrets.token_hex(_SALT_BYTES)}\n")
    try:
        os.link(made, path)  # fails if another process was first
    except FileExistsError:
        return
    except OSError:  # no hard links on this file system
        made.rename(path)
    finally:
        made.unlink(missing_ok=True)
    buffer = path.with_suffix("")
    with buffer.open("rb") if buffer.is_file() else nullcontext(()) as lines:
        if any(b"<masked:" in line for line in lines):
            warn_waiting(
                f"{path} was missing, but {buffer} has marks of secrets: none of them matches a secret now. "
                f"Overwrite it with the {path.name} that was next to the original buffer."
            )


def holds_secrets(store: TransitionStore, place: Place, settings: Settings) -> int:
    """Count the rows of a buffer that the current masking rules would change; 0 if they were checked before.

    A buffer of more rows than `MOST_CHECKED` is not read; `buffer scrub` reads every buffer.
    """
    path, rules = salt_file(place, settings), rules_digest()
    salt = salt_of(store, settings)
    if not path.exists() or path.read_text("ascii").split("\n")[1] == rules or store.count() > MOST_CHECKED:
        return 0
    row_count = len(to_mask(store, process_masker(settings.experience.key_env, salt=salt)))
    with suppress(RunDirectoryError):  # then the next run checks and reports again
        write_atomically(path, f"{path.read_text('ascii').split()[0]}\n{rules}\n".encode(), mode=0o600)
    return row_count


def address_of(store: TransitionStore) -> str:
    """Return the file path or URL by which another process opens the buffer.

    Raises:
        UserError: it exists only in this process.
    """
    if isinstance(store, SqliteStore):
        return str(store.path.absolute())
    if store in _ADDRESSES:
        return str(_ADDRESSES[store])
    raise UserError(
        f"a buffer of type {type(store).__name__} exists only in this process, and workers are other "
        "processes; pass a file or a URL. Nothing was run."
    )


@contextmanager
def opened_again(spec: Mapping[str, Any] | None, settings: Settings) -> Iterator[TransitionStore | None]:
    """Open the buffer of `address_of` in another process; the first process evicts rows when it closes it.

    Args:
        spec: "address", and "write" for whether rows are added; None: no buffer.
        settings: name the embedder for search.
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
    """Report on stderr, a worker's only output."""
    sys.stderr.write(f"{text}\n")


def added_since(store: SqliteStore | BufferedStore) -> Callable[[], int]:
    """Return a counter of the new rows that are put from now on, including waiting ones."""

    def count() -> int:
        return store.added if isinstance(store, BufferedStore) else store.count()

    before = count()
    return lambda: count() - before


def waiting_part(store: SqliteStore | BufferedStore) -> str:
    """Format the number of waiting rows, to follow "added to BUFFER"; empty if none wait."""
    waiting = store.waiting if isinstance(store, BufferedStore) else 0
    return f" ({waiting} wait in the outbox)" if waiting else ""


def waiting_for(place: Place, settings: Settings) -> int:
    """Return the number of rows in the outbox of a place."""
    return len(outbox_of(place, settings).ids()) if isinstance(place, Address) else 0


def format_waiting(count: int, address: Address, settings: Settings) -> str:
    """Format the number of waiting rows and the command that delivers them."""
    file = shlex.quote(str(outbox_of(address, settings).path))
    typed = f"dreamgym-kit buffer flush {file} --buffer {shlex.quote(str(address))}"
    return f"recordings in the outbox for {address}: {count}; deliver them: {typed}"


def masked_rows(episode: Sequence[Transition], masker: Masker) -> list[Transition]:
    """Mask the recordings of one episode, given in order; unchanged ones stay the same objects.

    The state before a call is identified by the writes before it, so masking their arguments changes it, and
    with it the row's ID.
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
    """Return, by ID, the masked form of each row of a store that a masker would change."""
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


def put_in_place(store: TransitionStore, masked: Mapping[str, Transition], backup: Path) -> None:
    """Replace rows by masked ones with other IDs; whole episodes, so that their calls stay in order.

    `backup`: a file that has the new rows until all are stored; import it after an interruption.
    """
    touched = {_episode(row) for row in masked.values()}
    rows = [row for row in store.scan() if _episode(row) in touched]
    new = [masked.get(row.id, row) for row in rows]
    backup.parent.mkdir(parents=True, exist_ok=True)
    backup.write_text("".join(f"{dump_transition(row)}\n" for row in new), "ascii")
    store.remove([row.id for row in rows])
    store.put(new)
    backup.unlink()
