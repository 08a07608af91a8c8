"""`dreamgym-kit buffer`: recordings into the buffer, out of it, what it holds, what is like a question."""

import json
import shlex
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dreamgym_kit.cli import flushing, importing, migrating, options
from dreamgym_kit.cli.output import say, say_json, tell
from dreamgym_kit.errors import UnknownName, UserError
from dreamgym_kit.report.sanitize import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dreamgym_kit.interfaces import Hit, HybridQuery, TransitionStore
    from dreamgym_kit.replay.stats import StoreStats
    from dreamgym_kit.settings.buffer_url import Place
    from dreamgym_kit.types import Environment

EXAMPLES = (
    "dreamgym-kit buffer import recordings.jsonl",
    "dreamgym-kit buffer import langsmith_runs.jsonl --redact email --redact field:customer_name",
    "dreamgym-kit buffer export backup.jsonl --overwrite",
    "dreamgym-kit buffer stats --json",
    "dreamgym-kit buffer search 'refund of a damaged order' --tool refund_payment",
    "dreamgym-kit buffer migrate dreamgym.db 'weaviate://localhost?tenant=shop'",
    "dreamgym-kit buffer flush --buffer 'weaviate://localhost?tenant=shop'",
)
_LISTED = 20
_WIDE = 100  # characters of an answer that are shown

FileArgument = Annotated[
    Path,
    typer.Argument(metavar="FILE", help="The kit's recordings, or traces of other tools (docs/traces.md)."),
]
Target = Annotated[Path, typer.Argument(metavar="FILE", help="The JSON lines file to write.")]
Overwrite = Annotated[bool, options.option("--overwrite", "Replace FILE where it exists.")]
Words = Annotated[str, typer.Argument(metavar="QUERY", help="Words, numbers, names: what to look for.")]
Tool = Annotated[str | None, options.option("--tool", "Only calls of this tool.")]
InWorld = Annotated[str | None, options.option("--environment", "Only this environment.", "NAME[:SEED]")]
Most = Annotated[int, typer.Option("--k", min=1, max=1000, help="Most hits.")]

app = typer.Typer(
    help="Manage recordings.",
    epilog=options.examples(EXAMPLES),
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command("import")
def import_command(
    file: FileArgument,
    buffer: options.Buffer = None,
    form: importing.Form = importing.FormName.AUTO,
    redact: importing.Redact = None,
    tenant: options.Tenant = None,
    environment: importing.WorldOption = None,
    as_json: options.AsJson = False,
) -> None:
    """Add the transitions of FILE to the buffer; those it has already are passed over."""
    from dreamgym_kit.adapters.stores.factory import opened_to_add, waiting_part
    from dreamgym_kit.replay.transfer import import_jsonl
    from dreamgym_kit.settings.buffer_url import buffer_of

    settings = options.settings_for(buffer=buffer, tenant=tenant)
    path = buffer_of(settings)
    if not file.exists():
        raise UserError(f"{file}: does not exist; nothing was imported")
    wanted = importing.Wanted(form, tuple(redact or ()), tenant, environment)
    if importing.is_trace(file, wanted):
        importing.import_trace(file, path, settings, wanted, as_json=as_json)
        return
    with opened_to_add(path, settings, tell=tell) as store:
        report = import_jsonl(file, store)
        waiting = waiting_part(store)
    for problem in report.problems:
        tell(f"error: {one_line(problem)}")
    if report.unread and not report.read:
        tell(
            "error: none of its lines is a recording of dreamgym-kit; is it the trace of another tool? "
            "Name its form with --format, see docs/traces.md"
        )
    if report.unread > len(report.problems):
        tell(f"error: {report.unread - len(report.problems)} more lines like these")
    if as_json:
        say_json(report.to_json())
    else:
        say(
            f"{report.new} transitions were added to {path}{waiting}; {report.duplicates} were there already."
        )
        if report.unread:
            tell(f"{_lines(report.unread)} could not be read; mend and import {file} again.")
        say(f" Look  dreamgym-kit buffer stats --buffer {shlex.quote(str(path))}")
    if report.unread:
        raise typer.Exit(2)


@app.command("export")
def export_command(
    file: Target,
    buffer: options.Buffer = None,
    overwrite: Overwrite = False,
    as_json: options.AsJson = False,
) -> None:
    """Write every transition of the buffer to FILE, in the order recorded."""
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
def stats_command(
    buffer: options.Buffer = None,
    as_json: options.AsJson = False,
) -> None:
    """Count what the buffer holds, by tool, world and tenant."""
    from dreamgym_kit.adapters.stores.factory import open_store
    from dreamgym_kit.cli.flushing import tell_waiting
    from dreamgym_kit.replay.stats import count_transitions
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


app.command("migrate")(migrating.command)
app.command("flush")(flushing.command)


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
    """Find the transitions most like QUERY, as a dream would; those held out are never shown."""
    from dreamgym_kit.adapters.stores.factory import foreign_embedder, open_to_search
    from dreamgym_kit.interfaces import HybridQuery
    from dreamgym_kit.replay.records import transition_to_record
    from dreamgym_kit.settings.buffer_url import buffer_of

    settings = options.settings_for(buffer=buffer, tenant=tenant)
    path = buffer_of(settings)
    place = None if environment is None else _environment(environment)
    with closing(open_to_search(path, settings)) as store:
        foreign = foreign_embedder(store)
        search = HybridQuery(
            query, tool=tool, environment=place, tenant=settings.tenant, k=k, words_only=foreign is not None
        )
        hits = store.search(search)
        if not hits:
            _check_names(store, search, path)
    if foreign is not None:
        tell(f"By words only: the vectors of {path} are of embedder {one_line(foreign)}.")
    if as_json:
        records = [
            {
                "score": hit.score,
                "places": dict(hit.places),
                "transition": transition_to_record(hit.transition),
            }
            for hit in hits
        ]
        say_json({"query": query, "hits": records})
    else:
        _show_hits(hits, query)


def _check_names(store: "TransitionStore", query: "HybridQuery", path: "Place") -> None:
    """Nothing was found: is there such a tool, world or tenant at all?"""
    from dreamgym_kit.replay.stats import count_transitions

    environment = (
        None if query.environment is None else query.environment.name
    )  # of a known name any seed may be asked for
    if (query.tool, environment, query.tenant) == (None, None, "default"):
        return
    held = count_transitions(store)
    named = (
        ("tool", query.tool, held.tools),
        ("environment", environment, {label.rpartition(":")[0]: 1 for label in held.environments}),
        ("tenant", query.tenant, held.tenants),
    )
    for kind, name, known in named:
        if held.transitions and name is not None and name not in known:
            listed = [one_line(label) for label in known]
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


def _environment(text: str) -> "Environment":
    from dreamgym_kit.types import Environment

    name, colon, seed = text.rpartition(":")
    if not colon:
        return Environment(text)
    try:
        return Environment(name, int(seed))
    except ValueError:
        raise UserError(f"--environment {text!r}: expected NAME or NAME:VARIANT, such as shop:2") from None


def _lines(count: int) -> str:
    return f"{count} line" if count == 1 else f"{count} lines"


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
    say(f"\n environments   {_most(stats.environments)}")
    say(f" tenants  {_most(stats.tenants)}")
    say(f" answers  {_most(stats.sources)}")


def _most(counts: "Mapping[str, int]") -> str:
    named = [f"{one_line(name)} {count}" for name, count in list(counts.items())[:_LISTED]]
    return ", ".join([*named, "..."] if len(counts) > _LISTED else named)
