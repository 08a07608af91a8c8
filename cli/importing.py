"""`buffer import` of what is not the kit's own form, or is to be changed on the way in."""

import shlex
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from dreamgym_kit.cli import options
from dreamgym_kit.cli.output import say, say_json, tell
from dreamgym_kit.errors import UserError
from dreamgym_kit.report.sanitize import one_line

if TYPE_CHECKING:
    from dreamgym_kit.adapters.traces.importing import TraceReport
    from dreamgym_kit.settings.buffer_url import Place
    from dreamgym_kit.settings.schema import Settings
    from dreamgym_kit.types import Effect, Environment

_LISTED = 20


class FormName(StrEnum):
    """The names of `adapters.traces.importing.Format`, here without its imports: `--help` must be quick."""

    AUTO = "auto"
    TRANSITIONS = "transitions"
    MESSAGES = "messages"
    TRL = "trl"
    LANGSMITH = "langsmith"
    SPANS = "spans"
    LANGFUSE = "langfuse"


Form = Annotated[FormName, typer.Option("--format", help="What FILE is; auto asks each record.")]
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


class Wanted(NamedTuple):
    """What the command line says about an import."""

    form: FormName
    redact: tuple[str, ...]
    tenant: str | None
    environment: str | None


def is_trace(file: Path, wanted: Wanted) -> bool:
    """Whether FILE takes the way of traces: another format, or something to change on the way in."""
    from dreamgym_kit.adapters.traces.importing import Format, looks_like

    if wanted.redact or wanted.tenant is not None or wanted.environment is not None:
        return True
    if wanted.form is FormName.AUTO and not file.is_file():  # a pipe can be read only once
        return False
    if wanted.form is FormName.AUTO:
        return looks_like(file) not in (None, Format.TRANSITIONS)
    return wanted.form is not FormName.TRANSITIONS


def import_trace(file: Path, buffer: "Place", settings: "Settings", wanted: Wanted, *, as_json: bool) -> None:
    """Import, and say what became of the file; exit code 2 when something could not be read."""
    from dreamgym_kit.adapters.stores.factory import opened_to_add, waiting_part
    from dreamgym_kit.adapters.traces.importing import Format, import_traces, looks_like
    from dreamgym_kit.adapters.traces.seen import Belonging
    from dreamgym_kit.replay.redaction import parse_rules

    form = Format(wanted.form)
    if form is Format.AUTO and looks_like(file) is Format.TRANSITIONS:
        form = Format.TRANSITIONS
    rules = parse_rules(wanted.redact) if wanted.redact else None
    own = form is Format.TRANSITIONS  # their rows say where they belong
    belonging = Belonging(environment_of(wanted.environment), wanted.tenant if own else settings.tenant)
    with opened_to_add(buffer, settings, tell=tell) as store:
        report = import_traces(
            file, store, form=form, belonging=belonging, effects=_Effects(settings), redaction=rules
        )
        waiting = waiting_part(store)
    _list(report)
    if as_json:
        say_json(report.to_json())
    else:
        _show(report, file, buffer, waiting)
    if report.unread:
        raise typer.Exit(2)


class _Effects:
    """What a person said a tool does; else what its name suggests."""

    def __init__(self, settings: "Settings") -> None:
        named = {name: tool.effect for name, tool in settings.tools.items()}
        functions = {
            function.name or place.rpartition(":")[2]: function.effect
            for place, function in settings.functions.items()
        }
        self._known: Mapping[str, Effect] = {**functions, **named}

    def __call__(self, name: str, description: str) -> "Effect":
        from dreamgym_kit.adapters.traces.seen import guessed

        return self._known.get(name) or guessed(name, description)


def environment_of(text: str | None, flag: str = "--environment") -> "Environment | None":
    """The world that a flag names; None without one."""
    from dreamgym_kit.types import Environment

    if text is None:
        return None
    name, seed = text.rsplit(":", 1) if ":" in text else (text, "0")
    if not name or not (seed.isascii() and seed.isdigit() and len(seed) < 16):
        raise UserError(f"{flag} {text}: expected NAME or NAME:VARIANT, the variant a whole number")
    return Environment(name, int(seed))


def _list(report: "TraceReport") -> None:
    for kind, lines, count in (
        ("error", report.problems, report.unread),
        ("note", report.notes, report.unanswered),
    ):
        for line in lines[:_LISTED]:
            tell(f"{kind}: {one_line(line)}")
        if count > _LISTED:
            tell(f"{kind}: {count - _LISTED} more lines like these; --json lists them")


def _show(report: "TraceReport", file: Path, buffer: "Place", waiting: str) -> None:
    say(f"{report.new} transitions were added to {buffer}{waiting}; {report.duplicates} were there already.")
    say(f" read as   {_counted(report.formats)}")
    if report.passed:
        say(f" no calls  {_counted(report.passed)}")
    if report.redacted:
        say(f" redacted  {_counted(report.redacted)}")
    if report.unanswered:
        tell(f"{report.unanswered} calls have no answer in the trace; they were not stored.")
    if report.unread:
        tell(f"{report.unread} records could not be read; mend them and import {file} again.")
    say(f" Look  dreamgym-kit buffer stats --buffer {shlex.quote(str(buffer))}")


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{one_line(name)} {count}" for name, count in counts.items()) or "nothing"
