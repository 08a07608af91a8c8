"""`dreamgym-kit buffer migrate`: all rows of one buffer into another, read back and compared."""

import shlex
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dreamgym_kit.cli import options
from dreamgym_kit.cli.output import say, say_json, tell
from dreamgym_kit.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable

    from dreamgym_kit.replay.transfer import MigrationReport
    from dreamgym_kit.settings.buffer_url import Place

From = Annotated[
    str, typer.Argument(metavar="FROM", help="A buffer: a file, or weaviate://host?tenant=shop.")
]
To = Annotated[str, typer.Argument(metavar="TO", help="The buffer that is filled; made where it is a file.")]


def command(
    from_: From,
    to: To,
    as_json: options.AsJson = False,
) -> None:
    """Copy all rows of FROM into TO and compare what arrived; after a break-off, do it again.

    Ends with code 1 where a row of FROM is not in TO as it is in FROM. FROM is only read.
    """
    from dreamgym_kit.adapters.embedders.choosing import embedder_of
    from dreamgym_kit.adapters.stores.factory import open_store
    from dreamgym_kit.cli.flushing import tell_waiting
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
    if as_json:
        say_json(report.to_json())
    else:
        _show(report, source, target)
    if not report.whole:
        raise typer.Exit(1)


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

    def heard(done: int) -> None:
        nonlocal reported
        if done - reported >= of / 20 or done >= of:
            reported = done
            tell(f"{done} of {of} transitions put")

    return heard


def _show(report: "MigrationReport", source: "Place", target: "Place") -> None:
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
