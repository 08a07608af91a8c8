"""`dreamgym-kit buffer`: recordings into the buffer, out of it, what it holds, what is like a question."""

import json
import shlex
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dreamgym_kit.cli import importing, options, scrub
from dreamgym_kit.cli.output import say, say_json, tell
from dreamgym_kit.cli.running import tell_waiting
from dreamgym_kit.errors import ExitCode, StoreError, UnknownName, UserError
from dreamgym_kit.report.sanitize import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dreamgym_kit.adapters.stores.outbox import Delivered, Outbox
    from dreamgym_kit.interfaces import Hit, HybridQuery, TransitionStore
    from dreamgym_kit.replay.transfer import StoreStats
    from dreamgym_kit.settings.buffer_url import Address, Place
    from dreamgym_kit.settings.schema import Settings

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
app.command("scrub")(scrub.command)


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
