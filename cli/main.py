"""Entry point: the commands, and the one place where errors become exit codes (`errors.ExitCode`).

A fault of the kit leaves its traceback in a crash log, and nowhere else. `--help` imports typer and the
standard library only: every command imports the rest when it runs.
"""

import os
import sys
from collections.abc import Iterable, Sequence
from contextvars import copy_context
from copy import copy
from inspect import getdoc
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command
from typer.models import CommandInfo, TyperInfo

from dreamgym_kit.cli import (
    buffer,
    crawling,
    demo,
    deploy,
    doctor,
    evaluate,
    experience,
    export,
    init,
    options,
    report,
    rules,
    s2r,
    sandbox,
    serve,
    simulate,
    train,
)
from dreamgym_kit.cli.output import coloured, columns, finish, tell
from dreamgym_kit.cli.running import let_go
from dreamgym_kit.errors import ExitCode, UserError
from dreamgym_kit.report.colors import WIDTH
from dreamgym_kit.report.sanitize import clean

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
        _write_sections(formatter, panels.items())


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
        _write_sections(formatter, [("Arguments", arguments), *panels.items()])


def _panel(flags: Sequence[str]) -> str:
    if "--help" in flags:
        return _LAST
    return next((name for name, panel_flags in _OF_FLAGS.items() if set(panel_flags) & set(flags)), _RUN)


def _write_sections(formatter: Any, panels: Iterable[tuple[str, list[tuple[str, str]]]]) -> None:
    for name, rows in panels:
        if rows:
            with formatter.section(name):
                formatter.write_dl(rows)


app = typer.Typer(
    name="dreamgym-kit",
    cls=PanelGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


START, RESULTS, SHIP, DATA = "Start here", "Results", "Train and ship", "Data"


def _add(name: str, command: Any, panel: str, lines: tuple[str, ...], codes: str = "") -> None:
    epilog = options.examples(lines, codes)
    app.command(name, epilog=epilog, cls=PanelCommand, rich_help_panel=panel)(command)


_add("demo", demo.command, START, demo.EXAMPLES, demo.CODES)
_add("init", init.command, START, init.EXAMPLES)
_add("doctor", doctor.command, START, doctor.EXAMPLES, doctor.CODES)
_add("record", simulate.record, START, simulate.RECORD_EXAMPLES, simulate.RECORD_CODES)
_add("simulate", simulate.command, START, simulate.EXAMPLES, simulate.CODES)
_add("sandbox", sandbox.command, START, sandbox.EXAMPLES, sandbox.CODES)
_add("view", export.view, START, export.VIEW_EXAMPLES)
_add("report", report.command, RESULTS, report.EXAMPLES)
_add("compare", report.compare, RESULTS, report.COMPARE_EXAMPLES)
_add("export", export.command, RESULTS, export.EXAMPLES)
_add("evaluate", evaluate.command, SHIP, evaluate.EXAMPLES, evaluate.CODES)
_add("train", train.command, SHIP, train.EXAMPLES, train.CODES)
_add("s2r", s2r.command, SHIP, s2r.EXAMPLES, s2r.CODES)
app.command("s2r verify", epilog=options.examples(s2r.EXAMPLES[-1:]), hidden=True)(s2r.verify_log)
app.add_typer(deploy.app, name="deploy", rich_help_panel=SHIP)
_add("serve", serve.command, SHIP, serve.EXAMPLES, serve.CODES)
app.add_typer(experience.app, name="experience", rich_help_panel=SHIP)
app.add_typer(buffer.app, name="buffer", rich_help_panel=DATA)
_add("crawl", crawling.command, DATA, crawling.EXAMPLES, crawling.CODES)
app.add_typer(crawling.imagined_app, name="environments", rich_help_panel=DATA)
app.add_typer(rules.app, name="rules", rich_help_panel=DATA)
app.add_typer(report.runs_app, name="runs", rich_help_panel=DATA)
experience.app.command("ablate", epilog=options.examples(evaluate.ABLATE_EXAMPLES, evaluate.ABLATE_CODES))(
    evaluate.ablate_command
)


def _version(requested: bool) -> None:
    if requested:
        from importlib.metadata import version

        typer.echo(f"dreamgym-kit {version('dreamgym-kit')}")
        raise typer.Exit


@app.callback(epilog=options.examples(("dreamgym-kit demo", "dreamgym-kit init my_agent:graph")))
def dreamgym(
    _: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Print the version.", show_default=False
        ),
    ] = False,
    config: Annotated[
        Path | None,
        options.option("--config", "Settings, not the nearest dreamgym.toml.", "FILE"),
    ] = None,
) -> None:
    """Dry-run LangGraph agents: every tool call is answered by a dream, no real tool runs."""
    options.CONFIG.set(config)


def lean(app: typer.Typer, arguments: Sequence[str]) -> typer.Typer:
    """The app for these arguments: with one command whole, or with all of them by name for a list of them."""
    listed = list(arguments) in ([], ["--help"])
    same = copy(app)
    same.registered_commands = [
        _named(command) if listed else command
        for command in app.registered_commands
        if listed or command.name == arguments[0]
    ]
    same.registered_groups = [
        _named_group(group) if listed else group
        for group in app.registered_groups
        if listed or group.name == arguments[0]
    ]
    # else all are needed, to name the nearest
    return same if same.registered_commands or same.registered_groups else app


def _named(command: CommandInfo) -> CommandInfo:
    """A command that only says what it is for."""
    named = copy(command)
    named.help, named.callback = getdoc(command.callback), lambda: None
    return named


def _named_group(group: TyperInfo) -> TyperInfo:
    named = copy(group)
    if group.typer_instance is not None:
        named.typer_instance = copy(group.typer_instance)
        named.typer_instance.registered_commands = []
    return named


def main() -> None:
    """Run the command line."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:  # closed (`<&-`): no code expects that
            setattr(sys, name, open(os.devnull, "r+"))  # noqa: SIM115, PTH123  for the whole process
    code = copy_context().run(_code)
    # of the agent nothing is under way that anybody asked for
    if code in (ExitCode.CANNOT_RUN, ExitCode.NO_TASK, ExitCode.KIT_FAULT):
        let_go(code)
    sys.exit(code)


def _code() -> int:
    WIDTH.set(columns())
    before, words = options.parted(sys.argv[1:])
    try:
        command = get_command(lean(app, words))
        options.refuse_old(words, flags_of(command), lambda: flags_of(get_command(app)))
        command([*before, *words], prog_name="dreamgym-kit")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 0 if ended.code is None else ExitCode.CANNOT_RUN
    except UserError as error:
        _tell_error(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        _tell_error("interrupted")
        return ExitCode.INTERRUPTED
    except Exception as error:  # noqa: BLE001  the edge: whatever gets here is a fault of ours
        _tell_error(
            f"a fault in dreamgym-kit itself ({type(error).__name__}); nothing finished is lost. "
            f"Please report it with {_crash_log()}"
        )
        return ExitCode.KIT_FAULT
    finally:
        finish()
    return 0


def flags_of(command: Any, *path: str) -> dict[str, list[str]]:
    """The flags of a command, and of all the commands in it, by name."""
    flags = {" ".join(path): [flag for option in command.params for flag in option.opts]}
    for name, inner in getattr(command, "commands", {}).items():
        flags |= flags_of(inner, *path, name)
    return flags


def _tell_error(text: str) -> None:
    """One error on stderr, never wrapped: ids, paths and commands stay whole."""
    from dreamgym_kit.replay.masking import masked

    word = "\x1b[1;31merror:\x1b[0m" if coloured(sys.stderr) else "error:"
    tell(f"{word} {clean(masked(text))}")


def _crash_log() -> str:
    """Write the traceback, without local variables, where only its owner can read it."""
    import tempfile
    import traceback

    from dreamgym_kit.replay.masking import masked

    try:
        descriptor, path = tempfile.mkstemp(prefix="dreamgym-crash-", suffix=".log")
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as log:
            log.write(masked(traceback.format_exc()))
    except OSError as error:
        return f"the steps that led here (the crash log could not be written: {error.strerror})"
    return path


if __name__ == "__main__":
    main()
