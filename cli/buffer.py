"""`dreamgym-kit buffer`: recordings into the buffer, out of it, and what it holds."""

import shlex
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dreamgym_kit.cli import options
from dreamgym_kit.cli.output import say, say_json, tell

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dreamgym_kit.replay.stats import StoreStats

EXAMPLES = (
    "dreamgym-kit buffer import recordings.jsonl",
    "dreamgym-kit buffer export backup.jsonl --overwrite",
    "dreamgym-kit buffer stats --json",
)
_LISTED = 20

Source = Annotated[Path, typer.Argument(metavar="FILE", help="Transitions, one JSON object a line.")]
Target = Annotated[Path, typer.Argument(metavar="FILE", help="The JSON lines file to write.")]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace FILE where it exists.", show_default=False)
]

app = typer.Typer(
    help="Recordings: import them, export them, see what there is.",
    epilog="\b\nExamples:\n" + "\n".join(f"  {line}" for line in EXAMPLES),
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command("import")
def import_command(
    file: Source,
    buffer: options.Buffer = None,
    settings_file: options.SettingsFile = None,
    as_json: options.AsJson = False,
) -> None:
    """Add the transitions of FILE to the buffer; those it has already are passed over."""
    from dreamgym_kit.adapters.stores.sqlite import SqliteStore
    from dreamgym_kit.errors import UserError
    from dreamgym_kit.replay.jsonl import import_jsonl

    path = _path(buffer, settings_file)
    if not file.exists():
        raise UserError(f"{file}: does not exist; nothing was imported")
    with closing(SqliteStore(path)) as store:
        report = import_jsonl(file, store)
    for problem in report.problems:
        tell(f"error: {_one_line(problem)}")
    if report.unread > len(report.problems):
        tell(f"error: {report.unread - len(report.problems)} more lines like these")
    if as_json:
        say_json(report.to_json())
    else:
        say(f"{report.new} transitions were added to {path}; {report.duplicates} were there already.")
        if report.unread:
            tell(f"{report.unread} lines could not be read; mend them and import {file} again.")
        say(f" Look  dreamgym-kit buffer stats --buffer {shlex.quote(str(path))}")
    if report.unread:
        raise typer.Exit(2)


@app.command("export")
def export_command(
    file: Target,
    buffer: options.Buffer = None,
    settings_file: options.SettingsFile = None,
    overwrite: Overwrite = False,
    as_json: options.AsJson = False,
) -> None:
    """Write every transition of the buffer to FILE, in the order recorded."""
    from dreamgym_kit.adapters.stores.sqlite import SqliteStore
    from dreamgym_kit.replay.jsonl import export_jsonl

    path = _path(buffer, settings_file)
    with closing(SqliteStore(path, read_only=True)) as store:
        count = export_jsonl(store, file, overwrite=overwrite)
    if as_json:
        say_json({"transitions": count, "file": str(file)})
        return
    say(f"{count} transitions of {path} are in {file}.")
    say(f" Back  dreamgym-kit buffer import {shlex.quote(str(file))}")


@app.command("stats")
def stats_command(
    buffer: options.Buffer = None,
    settings_file: options.SettingsFile = None,
    as_json: options.AsJson = False,
) -> None:
    """Count what the buffer holds, by tool, world and tenant."""
    from dreamgym_kit.adapters.stores.sqlite import SqliteStore
    from dreamgym_kit.replay.stats import count_transitions

    path = _path(buffer, settings_file)
    with closing(SqliteStore(path, read_only=True)) as store:
        stats = count_transitions(store)
    if as_json:
        say_json(stats.to_json())
    else:
        _show(stats, path)


def _path(buffer: Path | None, file: Path | None) -> Path:
    settings = options.settings_for(None, file, {"buffer": buffer})
    return settings.resolve(settings.buffer)


def _show(stats: "StoreStats", path: Path) -> None:
    say(f" {path}: {stats.transitions} transitions in {stats.episodes} episodes")
    if not stats.transitions:
        say(" Fill  dreamgym-kit record")
        return
    rows = [
        (_one_line(name), tool.effect, tool.transitions, tool.calls, tool.errors)
        for name, tool in list(stats.tools.items())[:_LISTED]
    ]
    width = max(len("tool"), *(len(row[0]) for row in rows))
    say(f"\n {'tool':{width}}  {'effect':11}  {'recorded':>8}  {'calls':>6}  {'errors':>6}")
    for name, effect, transitions, calls, errors in rows:
        say(f" {name:{width}}  {effect:11}  {transitions:8}  {calls:6}  {errors:6}")
    if len(stats.tools) > _LISTED:
        say(f" and {len(stats.tools) - _LISTED} more tools: --json lists all")
    say(f"\n worlds   {_most(stats.worlds)}")
    say(f" tenants  {_most(stats.tenants)}")
    say(f" answers  {_most(stats.provenances)}")


def _most(counts: "Mapping[str, int]") -> str:
    named = [f"{_one_line(name)} {count}" for name, count in list(counts.items())[:_LISTED]]
    return ", ".join([*named, "..."] if len(counts) > _LISTED else named)


def _one_line(text: str) -> str:
    from dreamgym_kit.report.clean import one_line

    return one_line(text)
