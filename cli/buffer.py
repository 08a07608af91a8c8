"""`dreamgym-kit buffer`: recordings into the buffer, out of it, what it holds, what is like a question.

`dreamgym-kit buffer scrub`: masks what was stored before today's rules knew it for a secret.

Shows what it would change; changes it with `--yes`. Nothing that it prints holds a secret.
"""

import json
import shlex
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dreamgym_kit.cli import importing, options
from dreamgym_kit.cli.output import say, say_json, tell
from dreamgym_kit.cli.running import tell_waiting
from dreamgym_kit.errors import ExitCode, StoreError, UnknownName, UserError
from dreamgym_kit.report.percent import format_count
from dreamgym_kit.report.sanitize import one_line

if TYPE_CHECKING:
    from dreamgym_kit.adapters.stores.outbox import Delivered, Outbox
    from dreamgym_kit.interfaces import Hit, HybridQuery, TransitionStore
    from dreamgym_kit.replay.masking import Masker
    from dreamgym_kit.replay.transfer import StoreStats
    from dreamgym_kit.settings.buffer_url import Address, Place
    from dreamgym_kit.settings.schema import Settings
    from dreamgym_kit.types import Episode, Transition

Yes = Annotated[bool, options.option("--yes", "Change it; else it is only shown.")]
_LISTED_IDS = 10
_TEXTS = (".html", ".md", ".xml", ".txt", ".log")
_BATCH = 500
_CHAINED = "each line holds the digest of the one before, so it stays; keep it where nobody else reads it"


@dataclass(frozen=True, slots=True)
class _Part:
    """One place that holds secrets."""

    place: str
    changes: int  # rows, episodes, lines or texts
    noun: str  # "recording"
    apply: Callable[[], None] | None  # None: it cannot be changed, see `why`
    ids: tuple[tuple[str, str], ...] = ()  # of recordings: before and after
    why: str = ""


def scrub_command(buffer: options.Buffer = None, yes: Yes = False, as_json: options.AsJson = False) -> None:
    """Mask what today's rules find in the buffer, in run directories and cassettes.

    Without --yes nothing is changed. Recordings that change their ids are named.
    """
    from dreamgym_kit.settings.buffer_url import buffer_of

    settings = options.settings_for(buffer=buffer)
    parts = [*_buffer(buffer_of(settings), settings), *_runs(settings), *_cassettes(settings)]
    for part in parts if yes else ():
        if part.apply is not None:
            part.apply()
    if as_json:
        say_json(
            {
                "changed": yes,
                "places": [
                    {"place": each.place, "changes": each.changes, "ids": dict(each.ids), "left": each.why}
                    for each in parts
                ],
            }
        )
        return
    for part in parts:
        _show_part(part, done=yes)
    if not parts:
        say("Nothing to mask: the buffer, the runs and the cassettes hold nothing that today's rules find.")
    elif not yes:
        say("Nothing was changed; add --yes to do so. Back up first what you cannot record again.")


def _show_part(part: _Part, *, done: bool) -> None:
    verb = "holds" if part.apply is None else "masked in" if done else "would be masked in"
    count = format_count(part.changes, part.noun)
    say(f"{part.place}: {verb} {count}{'; ' if part.why else ''}{part.why}")
    for before, after in part.ids[:_LISTED_IDS]:
        say(f"  {before} is {after}" if done else f"  {before} becomes {after}")
    if len(part.ids) > _LISTED_IDS:
        say(f"  ... and {len(part.ids) - _LISTED_IDS} more (--json lists all)")


def _buffer(place: "Place", settings: "Settings") -> Iterator[_Part]:
    from dreamgym_kit.adapters.stores.factory import open_store, salt_of, to_mask, waiting_for
    from dreamgym_kit.replay.masking import process_masker
    from dreamgym_kit.settings.buffer_url import is_missing

    if is_missing(place):
        return
    if waiting_for(place, settings):
        raise UserError(
            f"recordings wait for {place}; deliver them first (dreamgym-kit buffer flush). "
            "Nothing was changed."
        )
    with closing(open_store(place, settings)) as store:
        masker = process_masker(settings.experience.key_env, salt=salt_of(store, settings))
        rows = to_mask(store, masker)
    if rows:
        ids = tuple((before, row.id) for before, row in rows.items())
        yield _Part(str(place), len(rows), "recording", lambda: _rewrite(place, rows, settings), ids)


def _rewrite(place: "Place", rows: "dict[str, Transition]", settings: "Settings") -> None:
    """Put the rows in place. A file is written anew, since SQLite keeps what was deleted in free pages."""
    from dreamgym_kit.adapters.embedders.choosing import embedder_of
    from dreamgym_kit.adapters.stores.factory import open_store, program_file, put_in_place, salt_file
    from dreamgym_kit.replay.transfer import batches

    embedder = embedder_of(settings)
    _delete(program_file(place, settings))  # constants of programs are what was recorded
    if not isinstance(place, Path):
        with closing(open_store(place, settings, read_only=False, embedder=embedder)) as store:
            put_in_place(store, rows, salt_file(place, settings).with_suffix(".scrub.jsonl"))
        return
    place = place.resolve()  # of a link, what it leads to
    made = place.with_name(f"{place.name}.scrub")
    _delete(made)
    with (
        closing(open_store(place, settings)) as old,
        closing(open_store(made, settings, read_only=False, embedder=embedder)) as new,
    ):
        for batch in batches(((rows.get(row.id, row), 1) for row in old.scan()), _BATCH):
            new.put(batch)
    shutil.copymode(place, made)
    made.replace(place)
    for beside in ("-wal", "-shm"):  # of the old file; the new one's were written into it when it was closed
        place.with_name(place.name + beside).unlink(missing_ok=True)
    _delete(made)


def _delete(file: Path) -> None:
    for name in ("", "-wal", "-shm"):
        file.with_name(file.name + name).unlink(missing_ok=True)


def _runs(settings: "Settings") -> Iterator[_Part]:
    """The files of run directories. A run that is still going holds its lock: its files stay."""
    from dreamgym_kit.adapters.stores.factory import open_store, salt_of
    from dreamgym_kit.replay.masking import process_masker
    from dreamgym_kit.settings.buffer_url import buffer_of, is_missing
    from dreamgym_kit.supervision.audit import AUDIT

    place = buffer_of(settings)
    salt = None
    if not is_missing(place):
        with closing(open_store(place, settings)) as store:
            salt = salt_of(store, settings)
    masker = process_masker(settings.experience.key_env, salt=salt)
    root = settings.resolve(settings.runs)
    for manifest in sorted(root.glob("**/manifest.json")):
        folder = manifest.parent
        for file in sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()):
            if file.name == "episodes.jsonl":
                yield from _journal(file, masker)
            elif file.name == AUDIT or file.suffix in (".json", ".jsonl", *_TEXTS):
                for part in _file(file, masker, stays=_CHAINED if file.name == AUDIT else ""):
                    yield replace(part, apply=part.apply and partial(_under_lock, folder, part.apply))


def _under_lock(folder: Path, apply: Callable[[], None]) -> None:
    from dreamgym_kit.rollout.atomic_files import RunLock

    with RunLock(folder / "lock"):
        apply()


def _journal(file: Path, masker: "Masker") -> Iterator[_Part]:
    from dreamgym_kit.adapters.stores.factory import masked_rows
    from dreamgym_kit.rollout.journal import JournalReader, masked_episode

    episodes: list[Episode] = []
    ids: list[tuple[str, str]] = []
    changes = 0
    for episode in JournalReader(file):
        rows = masked_rows(episode.transitions, masker)
        made = replace(masked_episode(episode, masker), transitions=tuple(rows))
        ids += [
            (old.id, new.id) for old, new in zip(episode.transitions, rows, strict=True) if new is not old
        ]
        changes += made != episode
        episodes.append(made)

    def apply() -> None:
        from dreamgym_kit.rollout.journal import Journal

        beside = file.with_name(f"{file.name}.scrub")
        beside.unlink(missing_ok=True)
        with closing(Journal(beside)) as journal:
            for episode in episodes:
                journal.append(episode)
        beside.replace(file)

    if changes:
        yield _Part(str(file), changes, "episode", partial(_under_lock, file.parent, apply), tuple(ids))


def _file(file: Path, masker: "Masker", *, stays: str = "") -> Iterator[_Part]:
    """A file of JSON, of JSON lines, or of text; `stays`: why it cannot be changed."""
    from dreamgym_kit.rollout.atomic_files import write_atomically

    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return
    lines = text.splitlines(keepends=True) if file.suffix == ".jsonl" else [text]
    masked = [_masked(line, masker, data=file.suffix not in _TEXTS) for line in lines]
    changes = sum(new != old for new, old in zip(masked, lines, strict=True))
    if changes:
        apply = partial(write_atomically, file, "".join(masked).encode("utf-8"))
        yield _Part(str(file), changes, "line", None if stays else apply, why=stays)


def _masked(text: str, masker: "Masker", *, data: bool) -> str:
    if not data:
        return masker.text(text)
    try:
        value: Any = json.loads(text)
    except ValueError:
        return text
    made = masker.plain(value)
    if made is value:
        return text
    compact = not text.startswith("{\n")
    spelled = json.dumps(made, separators=(",", ":") if compact else None, indent=None if compact else 2)
    return spelled + ("\n" if text.endswith("\n") else "")


def _cassettes(settings: "Settings") -> Iterator[_Part]:
    """Cassettes have marks without identity: a cassette is shared, a salt is not."""
    from dreamgym_kit.replay.masking import process_masker

    masker = process_masker(settings.experience.key_env)
    for file in sorted(settings.folder.glob("**/cassettes/**/*.jsonl")):
        if file.name.endswith(".models.jsonl"):
            why = "its turns name each other by digests; record the test again"
            yield from _file(file, masker, stays=why)
        else:
            yield from _cassette(file, masker)


def _cassette(file: Path, masker: "Masker") -> Iterator[_Part]:
    from dreamgym_kit.adapters.pytest_plugin.cassette import Cassette, Recording
    from dreamgym_kit.adapters.stores.factory import masked_rows

    cassette = Cassette(file)
    try:
        calls = cassette.calls()
    except UserError:  # another tool's
        return
    tasks: dict[str, list[Transition]] = {}
    for call in calls:
        tasks.setdefault(call.task, []).append(call)
    changed: dict[str, Sequence[Transition]] = {}
    count = 0
    for task, rows in tasks.items():
        masked = masked_rows(rows, masker)
        if changes := sum(new is not old for new, old in zip(masked, rows, strict=True)):
            changed[task] = masked
            count += changes

    def apply() -> None:
        for task, rows in changed.items():
            turns = tuple(turn for turn in cassette.turns() if turn.task == task)
            cassette.write(Recording(task, tuple(rows), turns), instead_of=task.__eq__)

    if changed:
        yield _Part(str(file), count, "call", apply)


EXAMPLES = (
    "dreamgym-kit buffer import recordings.jsonl",
    "dreamgym-kit buffer import langsmith_runs.jsonl --redact email --redact field:customer_name",
    "dreamgym-kit buffer export backup.jsonl --overwrite",
    "dreamgym-kit buffer stats --json",
    "dreamgym-kit buffer search 'refund of a damaged order' --tool refund_payment",
    "dreamgym-kit buffer migrate dreamgym.db 'weaviate://localhost?tenant=shop'",
    "dreamgym-kit buffer flush --buffer 'weaviate://localhost?tenant=shop'",
    "dreamgym-kit buffer scrub --yes",
    "dreamgym-kit buffer check --repair --buffer 'weaviate://localhost?tenant=shop'",
)
_LISTED = 20
_WIDE = 100  # characters of an answer that are shown

Target = Annotated[Path, typer.Argument(metavar="FILE", help="The JSON lines file to write.")]
Overwrite = Annotated[bool, options.option("--overwrite", "Replace FILE where it exists.")]
Words = Annotated[str, typer.Argument(metavar="QUERY", help="Words, numbers or names to search for.")]
Tool = Annotated[str | None, options.option("--tool", "Only calls of this tool.")]
SpoolFile = Annotated[Path | None, options.argument("FILE", "Outbox to send (default: next to the runs).")]
Repair = Annotated[bool, options.option("--repair", "Send rows that cannot be found again.")]
EveryVector = Annotated[bool, options.option("--all-vectors", "Look for each row's vector, not a sample's.")]
InWorld = Annotated[str | None, options.option("--environment", "Only this environment.", "NAME[:SEED]")]
Most = Annotated[int, typer.Option("--k", min=1, max=1000, help="Maximum number of hits.")]

app = options.group("Manage recordings.", EXAMPLES)


app.command("import")(importing.command)


@app.command("export")
def export_command(
    file: Target,
    buffer: options.Buffer = None,
    overwrite: Overwrite = False,
    as_json: options.AsJson = False,
) -> None:
    """Write every recording of the buffer to FILE, in the order recorded."""
    from dreamgym_kit.adapters.stores.factory import open_store
    from dreamgym_kit.replay.transfer import export_jsonl
    from dreamgym_kit.settings.buffer_url import buffer_of

    settings = options.settings_for(buffer=buffer)
    path = buffer_of(settings)
    with closing(open_store(path, settings)) as store:
        count = export_jsonl(store, file, overwrite=overwrite)
    if as_json:
        say_json({"transitions": count, "file": str(file)})
        return
    say(f"{count} transitions of {path} are in {file}.")
    say(f" Back  dreamgym-kit buffer import {shlex.quote(str(file))}")


@app.command("stats")
def stats_command(buffer: options.Buffer = None, as_json: options.AsJson = False) -> None:
    """Count the recordings by tool, environment and tenant."""
    from dreamgym_kit.adapters.stores.factory import open_store
    from dreamgym_kit.replay.transfer import count_transitions
    from dreamgym_kit.settings.buffer_url import buffer_of

    settings = options.settings_for(buffer=buffer)
    path = buffer_of(settings)
    waiting = tell_waiting(path, settings)  # before the server is asked, which may be away
    with closing(open_store(path, settings)) as store:
        stats = count_transitions(store)
    if as_json:
        say_json({**stats.to_json(), "waiting": waiting})
    else:
        _show(stats, path)


app.command("migrate")(importing.migrate_command)
app.command("scrub")(scrub_command)


@app.command("flush")
def flush_command(
    file: SpoolFile = None,
    buffer: options.Buffer = None,
    as_json: options.AsJson = False,
) -> None:
    """Send the outbox to the buffer's server; safe to repeat."""
    from dreamgym_kit.adapters.embedders.choosing import embedder_of
    from dreamgym_kit.adapters.stores.factory import open_store
    from dreamgym_kit.adapters.stores.outbox import Delivered
    from dreamgym_kit.replay.eviction import room_of

    settings = options.settings_for(buffer=buffer)
    address = _address(settings, "flush")
    spool = _spool(file, address, settings)
    waiting = len(spool.ids())
    if not spool.waits():
        _show_flushed(spool, Delivered(), address, as_json=as_json)
        return
    try:
        embedder, room = embedder_of(settings), room_of(settings.replay)
        opened = open_store(address, settings, read_only=False, embedder=embedder, room=room)
        with closing(opened) as store:
            done = spool.deliver(store, lambda sent: tell(f"{sent} of {waiting} recordings delivered"))
    except StoreError as error:
        raise type(error)(
            f"{error}; recordings that still wait in {spool.path}: {len(spool.ids())}"
        ) from error
    _show_flushed(spool, done, address, waited=waiting, as_json=as_json)
    if done.unreadable:
        raise typer.Exit(ExitCode.CANNOT_RUN)


@app.command("check")
def check_command(
    repair: Repair = False,
    all_vectors: EveryVector = False,
    buffer: options.Buffer = None,
    as_json: options.AsJson = False,
) -> None:
    """Find rows that a Weaviate server stores but its indexes miss; --repair restores them."""
    from dreamgym_kit.adapters.stores.factory import open_store

    settings = options.settings_for(buffer=buffer)
    address = _address(settings, "check")
    with closing(open_store(address, settings, read_only=not repair)) as store:
        from dreamgym_kit.adapters.stores.weaviate_check import check_buffer

        report = check_buffer(store, repair=repair, every_vector=all_vectors)
    if as_json:
        say_json(asdict(report))
    else:
        lost = (
            f"{report.not_listed} missing from the property indexes, {report.unknown_ids} from the ID index;"
        )
        say(f"{report.rows} rows of {address}: {lost}")
        say(f" {report.not_near} of {report.vectors_checked} vectors not found by search.")
        say(f" {report.repaired} rows repaired." if repair else " --repair restores missing rows.")
    if not report.sound:
        raise typer.Exit(ExitCode.FAILED)


@app.command("search")
def search_command(
    query: Words,
    tool: Tool = None,
    environment: InWorld = None,
    k: Most = 8,
    tenant: options.Tenant = None,
    buffer: options.Buffer = None,
    as_json: options.AsJson = False,
) -> None:
    """Find the recordings most like QUERY, as a dream does. Held-out ones are never shown."""
    from dreamgym_kit.adapters.stores.factory import foreign_embedder, open_to_search
    from dreamgym_kit.interfaces import HybridQuery
    from dreamgym_kit.replay.records import transition_to_record
    from dreamgym_kit.settings.buffer_url import buffer_of

    settings = options.settings_for(buffer=buffer, tenant=tenant)
    path = buffer_of(settings)
    place = importing.environment_of(environment) if environment is not None else None
    with closing(open_to_search(path, settings)) as store:
        foreign = foreign_embedder(store)
        words_only, tenant = foreign is not None, settings.tenant
        search = HybridQuery(query, tool=tool, environment=place, tenant=tenant, k=k, words_only=words_only)
        hits = store.search(search)
        if not hits:
            _check_names(store, search, path)
    if foreign is not None:
        tell(f"By words only: the vectors of {path} are of embedder {one_line(foreign)}.")
    if as_json:
        records = [
            {"score": hit.score, "places": {**hit.places}, "transition": transition_to_record(hit.transition)}
            for hit in hits
        ]
        say_json({"query": query, "hits": records})
    else:
        _show_hits(hits, query)


def _check_names(store: "TransitionStore", query: "HybridQuery", path: "Place") -> None:
    """Nothing was found: is there such a tool, world or tenant at all?"""
    from dreamgym_kit.replay.transfer import count_transitions

    # of a known name any seed may be asked for
    environment = None if query.environment is None else query.environment.name
    if (query.tool, environment, query.tenant) == (None, None, "default"):
        return
    counts = count_transitions(store)
    named = (
        ("tool", query.tool, counts.tools),
        ("environment", environment, {label.rpartition(":")[0]: 1 for label in counts.environments}),
        ("tenant", query.tenant, counts.tenants),
    )
    for kind, name, names in named:
        if counts.transitions and name is not None and name not in names:
            listed = [one_line(label) for label in names]
            raise UnknownName(kind, one_line(name), known=listed, source=str(path), where="the recordings")


def _show_hits(hits: "Sequence[Hit]", query: str) -> None:
    if not hits:
        say(f" Nothing is like {one_line(query)!r} there; what there is: dreamgym-kit buffer stats")
        return
    for number, hit in enumerate(hits, 1):
        row = hit.transition
        places = ", ".join(f"{name} {place}" for name, place in sorted(hit.places.items()))
        answer = row.answer.content if row.answer.error is None else f"error: {row.answer.error}"
        say(f" {number}  {_short(row.call.tool)} {_short(dict(row.call.args))}")
        say(f"    {_short(answer)}")
        stands = f"environment {_short(str(row.environment))}, episode {_short(row.episode)}"
        say(f"    {row.answer.source}, {stands}; by {places}")


def _short(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return one_line(text if len(text) <= _WIDE else f"{text[: _WIDE - 3]}...")


def _show(stats: "StoreStats", path: "Place") -> None:
    say(f" {path}: {stats.transitions} transitions in {stats.episodes} episodes")
    if not stats.transitions:
        say(" Fill  dreamgym-kit record")
        return
    rows = [
        (one_line(name), tool.effect, tool.transitions, tool.calls, tool.errors)
        for name, tool in list(stats.tools.items())[:_LISTED]
    ]
    width = max(len("tool"), *(len(row[0]) for row in rows))
    say(f"\n {'tool':{width}}  {'effect':11}  {'recorded':>8}  {'calls':>6}  {'errors':>6}")
    for name, effect, transitions, calls, errors in rows:
        say(f" {name:{width}}  {effect:11}  {transitions:8}  {calls:6}  {errors:6}")
    if len(stats.tools) > _LISTED:
        say(f" and {len(stats.tools) - _LISTED} more tools: --json lists all")
    say(f"\n environments   {importing.format_counts(stats.environments)}")
    say(f" tenants  {importing.format_counts(stats.tenants)}")
    say(f" answers  {importing.format_counts(stats.sources)}")


def _address(settings: "Settings", command: str) -> "Address":
    from dreamgym_kit.settings.buffer_url import Address, buffer_of

    place = buffer_of(settings)
    if not isinstance(place, Address):
        raise UserError(
            f"{command}: the buffer {place} is a file, and this command needs a server: "
            "--buffer weaviate://HOST. Nothing was done."
        )
    return place


def _spool(file: Path | None, address: "Address", settings: "Settings") -> "Outbox":
    from dreamgym_kit.adapters.stores.factory import outbox_of
    from dreamgym_kit.adapters.stores.outbox import Outbox

    own = outbox_of(address, settings)
    if file is None:
        return own
    if file.name != own.path.name:
        raise UserError(
            f"{file}: does not wait for {address}, whose file is called {own.path.name}; nothing was "
            "delivered. `buffer import` adds any file of recordings."
        )
    return Outbox(file.absolute())


def _show_flushed(
    spool: "Outbox", done: "Delivered", address: "Address", *, waited: int | None = None, as_json: bool
) -> None:
    """Show what was delivered; `waited` is None where nothing was."""
    left = len(spool.ids())
    if as_json:
        counts = {"waited": waited or 0, "sent": done.sent, "new": done.new}
        say_json({**counts, "waiting": left, "unreadable": list(done.unreadable)})
        return
    if waited is None:
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
