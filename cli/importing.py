"""`buffer import` and `buffer migrate`: recordings from files and from other buffers into a buffer."""

import shlex
import shutil
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dreamgym_kit.cli import options
from dreamgym_kit.cli.output import say, say_json, tell
from dreamgym_kit.cli.running import tell_waiting
from dreamgym_kit.errors import ExitCode, UserError
from dreamgym_kit.replay.trace_formats import Format
from dreamgym_kit.report.percent import format_count, format_some
from dreamgym_kit.report.sanitize import one_line

if TYPE_CHECKING:
    from dreamgym_kit.adapters.traces.importing import TraceReport
    from dreamgym_kit.adapters.traces.seen import Effects
    from dreamgym_kit.replay.transfer import MigrationReport
    from dreamgym_kit.settings.buffer_url import Place
    from dreamgym_kit.settings.schema import Settings
    from dreamgym_kit.types import Environment

_LISTED = 20


Form = Annotated[Format, typer.Option("--format", help="What FILE is; auto asks each record.")]
Redact = Annotated[
    list[str] | None,
    options.option(
        "--redact",
        "Take out before storing: email, key, card, all, field:NAME or regex:PATTERN. Can be repeated.",
        "RULE",
    ),
]
WorldOption = Annotated[
    str | None, options.option("--environment", "Environment of the recordings.", "NAME[:SEED]")
]


FileArgument = Annotated[
    Path,
    typer.Argument(
        metavar="FILE", help="The kit's recordings, or traces of other tools (docs/recordings.md)."
    ),
]


def command(
    file: FileArgument,
    buffer: options.Buffer = None,
    form: Form = Format.AUTO,
    redact: Redact = None,
    tenant: options.Tenant = None,
    environment: WorldOption = None,
    as_json: options.AsJson = False,
) -> None:
    """Add the transitions of FILE to the buffer; those it has already are passed over."""
    from dreamgym_kit.settings.buffer_url import buffer_of

    settings = options.settings_for(buffer=buffer, tenant=tenant)
    place = buffer_of(settings)
    if not file.exists():
        raise UserError(f"{file}: does not exist; nothing was imported")
    if redact or tenant is not None or environment is not None or _is_trace(file, form):
        world = environment_of(environment) if environment is not None else None
        unread = _import_trace(file, form, place, settings, redact, tenant, world, as_json=as_json)
    else:
        unread = _import_own(file, place, settings, as_json=as_json)
    if unread:
        raise typer.Exit(ExitCode.CANNOT_RUN)


def _is_trace(file: Path, form: Format) -> bool:
    """Whether FILE has another form than the kit's own."""
    from dreamgym_kit.replay.transfer import is_own_form

    if form is not Format.AUTO:
        return form is not Format.TRANSITIONS
    if not file.is_file() or is_own_form(file):
        return False
    from dreamgym_kit.adapters.traces.importing import looks_like

    return looks_like(file) not in (None, Format.TRANSITIONS)  # a pipe is read only once


def _import_own(file: Path, place: "Place", settings: "Settings", *, as_json: bool) -> int:
    """Import the kit's own form as it is; gives how many lines could not be read."""
    from dreamgym_kit.adapters.stores.factory import opened_to_add, waiting_part
    from dreamgym_kit.replay.transfer import import_jsonl

    with opened_to_add(place, settings, tell=tell) as store:
        report = import_jsonl(file, store)
        waiting = waiting_part(store)
    for problem in report.problems:
        tell(f"error: {one_line(problem)}")
    if report.unread and not report.read:
        tell(
            "error: none of its lines is a recording of dreamgym-kit; is it the trace of another tool? "
            "Name its form with --format, see docs/recordings.md"
        )
    if report.unread > len(report.problems):
        tell(f"error: {report.unread - len(report.problems)} more lines like these")
    if as_json:
        say_json(report.to_json())
        return report.unread
    say(f"{report.new} transitions were added to {place}{waiting}; {report.duplicates} were there already.")
    if report.unread:
        tell(f"{format_count(report.unread, 'line')} could not be read. Correct and import {file} again.")
    say(f" Look  dreamgym-kit buffer stats --buffer {shlex.quote(str(place))}")
    return report.unread


def _import_trace(
    file: Path,
    form: Format,
    place: "Place",
    settings: "Settings",
    redact: list[str] | None,
    tenant: str | None,
    environment: "Environment | None",
    *,
    as_json: bool,
) -> int:
    """Import another form, or the own one changed on the way in; gives how many records were not read."""
    from dreamgym_kit.adapters.stores.factory import opened_to_add, waiting_part
    from dreamgym_kit.adapters.traces.importing import import_traces, looks_like
    from dreamgym_kit.adapters.traces.seen import Belonging
    from dreamgym_kit.replay.redaction import parse_rules

    if form is Format.AUTO and looks_like(file) is Format.TRANSITIONS:
        form = Format.TRANSITIONS
    rules = parse_rules(redact) if redact else None
    own = form is Format.TRANSITIONS  # their rows say where they belong
    with opened_to_add(place, settings, tell=tell) as store:
        report = import_traces(
            file,
            store,
            form=form,
            belonging=Belonging(environment, tenant if own else settings.tenant),
            effects=_effects(settings),
            redaction=rules,
        )
        waiting = waiting_part(store)
    for kind, lines, count in (
        ("error", report.problems, report.unread),
        ("note", report.notes, report.unanswered),
    ):
        for line in lines[:_LISTED]:
            tell(f"{kind}: {one_line(line)}")
        if count > _LISTED:
            tell(f"{kind}: {count - _LISTED} more lines like these; --json lists them")
    if as_json:
        say_json(report.to_json())
    else:
        _show(report, file, place, waiting)
    return report.unread


def _effects(settings: "Settings") -> "Effects":
    """Return a tool's effect from the settings; else a guess from its name."""
    from dreamgym_kit.adapters.traces.seen import guessed

    effects = {
        function.name or place.rpartition(":")[2]: function.effect
        for place, function in settings.functions.items()
    }
    effects |= {name: tool.effect for name, tool in settings.tools.items()}
    return lambda name, description: effects.get(name) or guessed(name, description)


def environment_of(text: str) -> "Environment":
    """The environment that `--environment` names."""
    from dreamgym_kit.types import Environment

    name, seed = text.rsplit(":", 1) if ":" in text else (text, "0")
    if not name or not (seed.isascii() and seed.isdigit() and len(seed) < 16):
        raise UserError(f"--environment {text}: expected NAME or NAME:VARIANT, the variant a whole number")
    return Environment(name, int(seed))


def _show(report: "TraceReport", file: Path, buffer: "Place", waiting: str) -> None:
    say(f"{report.new} transitions were added to {buffer}{waiting}; {report.duplicates} were there already.")
    say(f" read as   {format_counts(report.formats)}")
    if report.passed:
        say(f" no calls  {format_counts(report.passed)}")
    if report.redacted:
        say(f" redacted  {format_counts(report.redacted)}")
    if report.unanswered:
        tell(f"{report.unanswered} calls have no answer in the trace; they were not stored.")
    if report.unread:
        tell(f"{report.unread} records could not be read. Correct them and import {file} again.")
    say(f" Look  dreamgym-kit buffer stats --buffer {shlex.quote(str(buffer))}")


def format_counts(counts: Mapping[str, int]) -> str:
    """The first counts, each behind its name."""
    return format_some([f"{one_line(name)} {count}" for name, count in counts.items()], _LISTED) or "nothing"


From = Annotated[
    str, typer.Argument(metavar="FROM", help="A buffer: a file, or weaviate://host?tenant=shop.")
]
To = Annotated[str, typer.Argument(metavar="TO", help="The buffer that is filled; made where it is a file.")]


def migrate_command(from_: From, to: To, as_json: options.AsJson = False) -> None:
    """Copy all rows of FROM into TO and compare what arrived; after a break-off, do it again.

    Ends with code 1 where a row of FROM is not in TO as it is in FROM. FROM is only read.
    """
    from dreamgym_kit.adapters.embedders.choosing import embedder_of
    from dreamgym_kit.adapters.stores.factory import open_store, salt_file
    from dreamgym_kit.replay.transfer import migrate
    from dreamgym_kit.settings.buffer_url import place_of

    settings = options.settings_for()
    source, target = place_of(from_, Path.cwd(), source="FROM"), place_of(to, Path.cwd(), source="TO")
    _refuse_the_same(source, target)
    tell_waiting(source, settings)
    # The settings' room does not hold here: a row that leaves TO would be one that did not come over.
    with (
        closing(open_store(source, settings)) as read,
        closing(open_store(target, settings, read_only=False, embedder=embedder_of(settings))) as filled,
    ):
        report = migrate(read, filled, _progress(read.count()))
    salt, other = salt_file(source, settings), salt_file(target, settings)
    if salt.exists() and not other.exists():  # so that the marks of secrets keep their meaning
        other.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(salt, other)  # its mode, too
    if as_json:
        say_json(report.to_json())
    else:
        _show_migrated(report, source, target)
    if not report.whole:
        raise typer.Exit(ExitCode.FAILED)


def _refuse_the_same(source: "Place", target: "Place") -> None:
    from dreamgym_kit.settings.buffer_url import Address

    if isinstance(source, Path) and isinstance(target, Path):
        both = source.exists() and target.exists()
        same = source.samefile(target) if both else source.resolve() == target.resolve()
    else:
        same = isinstance(source, Address) and isinstance(target, Address) and source.name == target.name
    if same:
        raise UserError(f"migrate: FROM and TO are the same buffer, {source}; nothing was migrated")


def _progress(of: int) -> "Callable[[int], None]":
    """Tells how far it is, twenty times at most."""
    reported = 0

    def report(done: int) -> None:
        nonlocal reported
        if done - reported >= of / 20 or done >= of:
            reported = done
            tell(f"{done} of {of} transitions put")

    return report


def _show_migrated(report: "MigrationReport", source: "Place", target: "Place") -> None:
    already = report.rows - report.new
    say(f"{report.rows} transitions of {source}: {report.new} came over, {already} were there already.")
    if report.others:
        say(f" {report.others} more are there that {source} does not have.")
    if report.whole:
        say(f" verified  all {report.there} are there as they were read, checksum {report.checksum[:16]}")
        if not report.in_order:
            say(f" order     other than in {source}: some were there before")
        say(f" Use  dreamgym-kit buffer stats --buffer {shlex.quote(str(target))}")
        return
    tell(
        f"error: {target} holds {report.there} of {report.rows} transitions, checksum "
        f"{report.checksum_there[:16]}; read were those of checksum {report.checksum[:16]}"
    )
    for problem, ids in (("missing", report.missing), ("says something else there", report.differing)):
        for name in ids:
            tell(f"error: {name}: {problem}")
