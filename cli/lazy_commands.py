"""How much of the commands is built: what was typed needs, no more, since reading options takes longest."""

from collections.abc import Callable, Iterable, Sequence
from copy import copy

import typer
from typer.models import CommandInfo, TyperInfo


def lean(app: typer.Typer, arguments: Sequence[str]) -> typer.Typer:
    """The app for these arguments: with one command whole, or with all of them by name for a list of them."""
    if list(arguments) in ([], ["--help"]):
        return _with(app, map(_named, app.registered_commands), map(_named_group, app.registered_groups))
    commands = [command for command in app.registered_commands if command.name == arguments[0]]
    groups = [group for group in app.registered_groups if group.name == arguments[0]]
    return (
        _with(app, commands, groups) if commands or groups else app
    )  # else all are needed, to name the nearest


def _with(app: typer.Typer, commands: Iterable[CommandInfo], groups: Iterable[TyperInfo]) -> typer.Typer:
    """The same app with these commands."""
    same = copy(app)
    same.registered_commands, same.registered_groups = list(commands), list(groups)
    return same


def _named(command: CommandInfo) -> CommandInfo:
    """A command that only says what it is for."""
    named = copy(command)
    named.callback = _saying(command.callback)
    return named


def _named_group(group: TyperInfo) -> TyperInfo:
    named = copy(group)
    if group.typer_instance is not None:
        named.typer_instance = _with(group.typer_instance, (), ())
    return named


def _saying(command: Callable[..., object] | None) -> Callable[[], None]:
    def callback() -> None:
        """Never run: whoever runs a command names it."""

    callback.__doc__ = command.__doc__ if command is not None else None
    return callback
