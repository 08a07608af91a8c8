"""Help in panels: commands by what they are for, options by what they are about. Plain text."""

from collections.abc import Iterable, Sequence
from typing import Any

from typer.core import TyperCommand, TyperGroup

_OF_FLAGS = {
    "Input": ("--tasks", "--select", "--buffer", "--policy", "--split", "--environment", "--ids"),
    "Gate and safety": (
        *("--min-pass-rate", "--max-inconclusive", "--forbid", "--fail-on", "--require", "--max-calls"),
        *("--yes", "--preflight-only", "--allow-guessed", "--eval-real"),
    ),
    "Output": ("--output", "--json", "--verbose"),
}
_RUN, _LAST = "Run", "Output"
_FEW = 6  # options that need no panels


class PanelGroup(TyperGroup):
    """Lists its commands by panel."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002  as click calls it
        """Write a section for each panel, in the order in which its first command was added."""
        panels: dict[str, list[tuple[str, str]]] = {}
        for command in self.commands.values():
            if not command.hidden:
                panel = getattr(command, "rich_help_panel", None)
                name = panel if isinstance(panel, str) else "Commands"
                says = (command.help or "").strip().partition("\n")[0]
                panels.setdefault(name, []).append((str(command.name), says))
        _write(formatter, panels.items())


class PanelCommand(TyperCommand):
    """Lists its options by panel, where there are many."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments first, then a section for each panel."""
        shown = [(param, param.get_help_record(ctx)) for param in self.get_params(ctx)]
        arguments = [row for param, row in shown if row and param.param_type_name == "argument"]
        options = [(param, row) for param, row in shown if row and param.param_type_name != "argument"]
        if len(options) <= _FEW:
            panels = {"Options": [row for _, row in options]}
        else:
            names = ["Input", _RUN, "Gate and safety", _LAST]
            panels = {name: [row for param, row in options if _panel(param.opts) == name] for name in names}
        _write(formatter, [("Arguments", arguments), *panels.items()])


def _panel(flags: Sequence[str]) -> str:
    if "--help" in flags:
        return _LAST
    return next((name for name, known in _OF_FLAGS.items() if set(known) & set(flags)), _RUN)


def _write(formatter: Any, panels: Iterable[tuple[str, list[tuple[str, str]]]]) -> None:
    for name, rows in panels:
        if rows:
            with formatter.section(name):
                formatter.write_dl(rows)
