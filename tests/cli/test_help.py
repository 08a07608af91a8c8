"""Help: fast, ASCII, and every example in it is a command line that the parser takes."""

import json
import shlex
import subprocess
import sys
from typing import Any

from each_row import each_row
from typer.main import get_command
from typer.testing import CliRunner

from dreamgym_kit.cli.main import app, lean
from dreamgym_kit.cli.options import parted

GROUP = get_command(app)


def commands(group: Any = GROUP, above: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """Every command and group by the words that are typed for it."""
    named: dict[tuple[str, ...], Any] = {}
    for name, command in group.commands.items():
        named |= {(*above, name): command}
        named |= commands(command, (*above, name)) if hasattr(command, "commands") else {}
    return named


COMMANDS = commands()
EXAMPLES = [
    line.strip()
    for command in COMMANDS.values()
    for line in (command.epilog or "").partition("Examples:\n")[2].partition("\n\n")[0].splitlines()
]
MODULES = """
import json, sys
sys.argv = ["dreamgym-kit", {arguments}]
try:
    {start}
except SystemExit:
    pass
print(json.dumps(sorted({{name.partition(".")[0] for name in sys.modules}})), file=sys.stderr)
"""
BARE = """import typer; from pathlib import Path
    app, sub = typer.Typer(rich_markup_mode=None), typer.Typer(rich_markup_mode=None)
    def simulate(n: int = typer.Option(1, min=1), path: Path = typer.Option(Path())): ...
    app.command("simulate")(simulate); sub.command("stats")(simulate); sub.command("more")(simulate)
    app.add_typer(sub, name="buffer"); app()"""
OURS = "from dreamgym_kit.cli.main import main; main()"


def modules(start: str, *arguments: str) -> set[str]:
    code = MODULES.format(start=start, arguments=", ".join(map(repr, arguments)))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stderr.splitlines()[-1]))


@each_row("arguments", [("--help",), ("simulate", "--help"), ("buffer", "--help")])
def test_help_imports_only_typer_the_declarations_and_the_standard_library(
    arguments: tuple[str, ...],
) -> None:
    foreign = modules(OURS, *arguments) - modules(BARE, *arguments) - set(sys.stdlib_module_names)
    declarations = {"msgspec", "typing_extensions"} if arguments[0] == "simulate" else set()
    assert foreign <= {"dreamgym_kit"} | declarations


def test_every_command_has_help_and_examples() -> None:
    helpless = [name for name, command in COMMANDS.items() if not (command.help or "").strip()]
    assert (helpless, len(EXAMPLES) > 80) == ([], True)


@each_row("example", EXAMPLES)
def test_every_example_is_a_command_line_that_the_parser_takes(example: str) -> None:
    typed = shlex.split(example.partition(" > ")[0].replace("$", "V"))
    if typed[0] == "torchrun":
        typed = typed[typed.index("--no-python") + 1 :]
    program, arguments = typed[0], parted(typed[1:])[1]
    assert program == "dreamgym-kit"
    command = GROUP
    while hasattr(command, "commands"):
        command = command.commands[arguments.pop(0)]
    command.make_context("x", arguments)


def test_help_is_ascii_and_shows_examples_and_codes(run) -> None:
    done = run("simulate", "--help")
    assert done.stdout.isascii()
    assert max(len(line) for line in done.stdout.splitlines()) <= 80
    assert "    dreamgym-kit simulate --repeats 4 --set simulate.concurrency=16\n" in done.stdout
    assert "Exit codes: 0 " in done.stdout
    assert done.returncode == 0


def test_simulate_shows_at_most_fourteen_options() -> None:
    listed = GROUP.commands["simulate"].params
    assert 0 < sum(one.param_type_name == "option" and not one.hidden for one in listed) - 1 <= 14  # --help


def test_without_a_command_help_is_shown(run) -> None:
    done = run()
    assert "dreamgym-kit demo" in done.stdout + done.stderr
    assert done.returncode in (0, 2)


@each_row(
    "arguments",
    [(), ("--help",), *((*name, "--help") for name in COMMANDS if len(name) == 1), ("simulat",)],
)
def test_what_is_built_for_what_was_typed_says_what_all_of_it_would(arguments: tuple[str, ...]) -> None:
    whole, needed = (CliRunner().invoke(one, arguments, prog_name="x") for one in (app, lean(app, arguments)))
    assert whole.output == needed.output != ""
    assert whole.exit_code == needed.exit_code
