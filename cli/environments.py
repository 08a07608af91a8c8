"""`dreamgym-kit environments`: show or delete the imagined answers of an environment."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from dreamgym_kit.cli import options
from dreamgym_kit.cli.output import say, say_json
from dreamgym_kit.errors import UnknownName, UserError
from dreamgym_kit.report.percent import format_count
from dreamgym_kit.report.sanitize import one_line

if TYPE_CHECKING:
    from dreamgym_kit.dream.environment_facts import Book
    from dreamgym_kit.types import Environment

EXAMPLES = (
    "dreamgym-kit environments show",
    "dreamgym-kit environments show shop:3 --json",
    "dreamgym-kit environments reset shop:3",
)
Name = Annotated[str | None, options.argument("NAME", "NAME or NAME:VARIANT (default: list all).")]
Reset = Annotated[str, options.argument("NAME", "NAME or NAME:VARIANT.")]
app = options.group("Show or reset imagined environments.", EXAMPLES)


@app.command("show")
def show(
    name: Name = None,
    buffer: options.Buffer = None,
    tenant: options.Tenant = None,
    as_json: options.AsJson = False,
) -> None:
    """List imagined environments, or show every imagined answer of one."""
    from dreamgym_kit.dream.environment_facts import book_to_json, read_book

    folder, paths = _imagined_environments(buffer, tenant)
    if name is not None:
        environment, path = _named(name, paths)
        paths = {environment: path}
    books = {environment: read_book(path.read_bytes()) for environment, path in paths.items()}
    if as_json:
        say_json({str(environment): book_to_json(book) for environment, book in books.items()})
        return
    if not books:
        say(f"No imagined environments in {folder}.")
    for environment, book in books.items():
        _show(environment, book, facts=name is not None)


@app.command("reset")
def reset(
    name: Reset,
    buffer: options.Buffer = None,
    tenant: options.Tenant = None,
    as_json: options.AsJson = False,
) -> None:
    """Delete the imagined answers of an environment. Recordings stay."""
    from dreamgym_kit.rollout.environment_files import EnvironmentFile

    _, paths = _imagined_environments(buffer, tenant)
    environment, path = _named(name, paths)
    if not EnvironmentFile(path).remove():
        raise UserError(f"a run uses {environment}. Reset it after the run ends. Nothing was changed.")
    if as_json:
        say_json({"reset": str(environment), "file": str(path)})
    else:
        say(f"Deleted all imagined answers of {one_line(str(environment))}.")


def _imagined_environments(buffer: str | None, tenant: str | None) -> "tuple[Path, dict[Environment, Path]]":
    from dreamgym_kit.rollout.environment_files import environments_folder, environments_in

    folder = environments_folder(options.settings_for(buffer=buffer, tenant=tenant))
    return folder, dict(environments_in(folder))


def _named(name: str, paths: "dict[Environment, Path]") -> "tuple[Environment, Path]":
    for environment, path in paths.items():
        if name in (str(environment), environment.name if environment.variant == 0 else ""):
            return environment, path
    names = [str(environment) for environment in paths]
    raise UnknownName("environment", name, known=names, source="NAME", where="imagined environments")


def _show(environment: "Environment", book: "Book", *, facts: bool) -> None:
    models = sorted({fact.model for fact in book.facts.values() if fact.model})
    say(
        f"{one_line(str(environment))}  {format_count(len(book.facts), 'imagined answer')}, "
        f"{format_count(len(book.seeded), 'task')} seeded, by {one_line(', '.join(models)) or 'no model'}"
    )
    for row in book.replaced:
        say(f"  replaced by a recording: {one_line(row.call)}: {one_line(row.why)}")
    for fact in book.facts.values() if facts else ():
        after = "after writes: " if fact.after else ""
        say(f"  {after}{one_line(str(fact))}  [{fact.origin}, {fact.date}]")
