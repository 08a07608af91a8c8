"""The command reference, from the commands themselves: what `--help` says, laid out as a page."""

from collections.abc import Iterator
from typing import Any

from markdown_pages import code, page_of, row, text
from sphinx.application import Sphinx
from typer.main import get_command

from dreamgym_kit.cli.main import app as commands


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.add_directive("command-reference", page_of(commands_page))
    return {"parallel_read_safe": True}


def commands_page() -> Iterator[str]:
    """The lines of the page."""
    for name, command in all_commands():
        yield from _section(name, command)


def all_commands() -> Iterator[tuple[str, Any]]:
    """Every command with its whole name, groups before what they hold."""
    yield from _below("dreamgym-kit", get_command(commands))


def _below(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    yield name, command
    for inner, below in getattr(command, "commands", {}).items():
        yield from _below(f"{name} {inner}", below)


def _section(name: str, command: Any) -> Iterator[str]:
    yield from (f"## {name}", "")
    for paragraph in (command.help or "").split("\n\n"):
        yield from (text(paragraph), "")
    context = command.make_context(name, [], resilient_parsing=True)
    usage = " ".join(command.collect_usage_pieces(context))
    yield from ("```text", f"{name} {usage}", "```", "")
    inner = getattr(command, "commands", {})
    if inner:
        yield from ("| command | what it does |", "| --- | --- |")
        for below, known in inner.items():
            yield row(f"[{name} {below}](#{f'{name} {below}'.replace(' ', '-')})", text(_first(known.help)))
        yield ""
    yield from _options(command, context)
    yield from _epilog(command.epilog or "")


def _options(command: Any, context: Any) -> Iterator[str]:
    told = [record for option in command.params if (record := option.get_help_record(context))]
    if not told:
        return
    yield from ("| option | what it says |", "| --- | --- |")
    for names, said in told:
        yield row(code(names.replace(" range>", ">")), text(said))
    yield ""


def _epilog(epilog: str) -> Iterator[str]:
    for part in epilog.replace("\b\n", "").split("\n\n"):
        if part.startswith("Examples:"):
            examples = [line.strip() for line in part.splitlines()[1:]]
            yield from ("Examples:", "", "```console", *examples, "```", "")
        elif part:
            yield from (text(part), "")


def _first(said: str | None) -> str:
    return (said or "").split("\n\n")[0]
