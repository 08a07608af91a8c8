"""Options of the gate, and the files that CI systems read; `simulate` and `report` share them."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dreamgym_kit.cli import options

if TYPE_CHECKING:
    from dreamgym_kit.report.figures import Summary
    from dreamgym_kit.settings.schema import Settings

PassRate = Annotated[
    float | None,
    typer.Option("--min-pass-rate", min=0, max=1, help="Gate: required pass rate, 0..1.", show_default=False),
]
PassRateLow = Annotated[
    float | None,
    typer.Option(
        "--min-pass-rate-low",
        min=0,
        max=1,
        help="Gate: required lower bound of the pass rate, 0..1.",
        show_default=False,
    ),
]
MaxInconclusive = Annotated[
    float | None,
    typer.Option(
        "--max-inconclusive",
        min=0,
        max=1,
        help="Gate: allowed share of inconclusive episodes, 0..1.",
        show_default=False,
    ),
]
MaxErrors = Annotated[
    float | None,
    typer.Option("--max-errors", min=0, help="Gate: allowed errors; below 1: a share.", show_default=False),
]
Contradictions = Annotated[
    int | None,
    typer.Option("--max-contradictions", min=0, help="Gate: allowed contradictions.", show_default=False),
]
Forbid = Annotated[
    list[str] | None,
    typer.Option("--forbid", metavar="TOOL", help="Gate: never this tool (delete_*).", show_default=False),
]
Most = Annotated[
    list[str] | None,
    typer.Option(
        "--max-calls-per-tool",
        metavar="TOOL=N",
        help="Gate: allowed calls of a tool in an episode.",
        show_default=False,
    ),
]
FailOn = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-on", metavar="KIND", help="Gate: no finding like it (critical, loop).", show_default=False
    ),
]
MaxUsd = Annotated[
    float | None, typer.Option("--max-usd", min=0, help="Gate: allowed spend, USD.", show_default=False)
]
MaxSeconds = Annotated[
    float | None, typer.Option("--max-seconds", min=0, help="Gate: allowed wall time.", show_default=False)
]
RENAMED = {
    "--gate-success": "--min-pass-rate",
    "--gate-success-low": "--min-pass-rate-low",
    "--gate-undetermined": "--max-inconclusive",
    "--gate-contradictions": "--max-contradictions",
    "--gate-finding": "--fail-on",
    "--gate-usd": "--max-usd",
    "--gate-seconds": "--max-seconds",
    "--max": "--max-calls-per-tool",
    "--fail-on-findings": "--fail-on critical",
}
"""Flags of earlier versions, by what each is called now."""
_RENAMED_ONLY = {"success": "passed", "failure": "failed", "undetermined": "inconclusive"}
Junit = Annotated[
    Path | None,
    typer.Option("--junit", metavar="FILE", help="Write JUnit XML here.", show_default=False),
]
Markdown = Annotated[
    Path | None,
    typer.Option(
        "--markdown", metavar="FILE", help="Add a Markdown summary to this file.", show_default=False
    ),
]


def refuse_renamed(arguments: Sequence[str]) -> None:
    """Say of a flag or a verdict of an earlier version what it is called now.

    Raises:
        UserError: one was given.
    """
    from dreamgym_kit.errors import UserError

    for argument, after in zip(arguments, [*arguments[1:], ""], strict=False):
        flag, equals, value = argument.partition("=")
        verdict = value if equals else after
        if flag == "--only" and verdict in _RENAMED_ONLY:
            raise UserError(f"--only {verdict} is now called --only {_RENAMED_ONLY[verdict]}. Use that.")
        now = RENAMED.get(flag)
        if now is not None:
            raise UserError(f"{flag} is now called {now}. Use that.")


def most_calls(given: list[str] | None) -> dict[str, int] | None:
    """Read TOOL=N."""
    from dreamgym_kit.errors import UserError

    if not given:
        return None
    read = {}
    for one in given:
        tool, equals, number = one.rpartition("=")
        if not (equals and tool and number.isdecimal()):
            raise UserError(f"--max-calls-per-tool {one}: write TOOL=N, for example refund_payment=1.")
        read[tool] = int(number)
    return read


def with_gate(settings: "Settings", flags: Mapping[str, object]) -> "Settings":
    """Lay the gate's flags over the settings; lists and limits are added to what settings say."""
    said = {name: value for name, value in flags.items() if value is not None and value != []}
    gate = settings.gate
    options.finite({f"gate.{name}": value for name, value in said.items()})
    for name in ("forbid", "fail_on"):
        more = said.get(name)
        if isinstance(more, list):
            said[name] = tuple(dict.fromkeys([*getattr(gate, name), *more]))
    most = said.get("max_calls_per_tool")
    if isinstance(most, dict):
        said["max_calls_per_tool"] = {**gate.max_calls_per_tool, **most}
    return settings.with_overrides({f"gate.{name}": value for name, value in said.items()})


def write_reports(
    summary: "Summary",
    directory: Path,
    junit_file: Path | None,
    markdown_file: Path | None,
) -> None:
    """Write the files that were asked for, both from the summary that the terminal shows."""
    from dreamgym_kit.report.junit import junit
    from dreamgym_kit.report.markdown import markdown

    look = looker(directory)
    if junit_file is not None:
        _write(junit_file, junit(summary, look), append=False)
    if markdown_file is not None:
        _write(markdown_file, markdown(summary, look), append=True)


def looker(directory: Path) -> Callable[[str], str]:
    """The command that shows an episode of a run."""
    from dreamgym_kit.cli.running import near, pasted

    place = shlex.quote(near(directory))
    return lambda episode: f"dreamgym-kit report {place} --episode {pasted(episode)}"


def _write(file: Path, text: str, *, append: bool) -> None:
    """A summary is added, since $GITHUB_STEP_SUMMARY holds other steps' too; a device or pipe is fine."""
    from dreamgym_kit.errors import UserError
    from dreamgym_kit.gate import egress

    try:
        with egress.exempt():  # the file was named on our own command line
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("a" if append else "w", encoding="utf-8", errors="backslashreplace") as out:
                out.write(text)
    except OSError as error:
        raise UserError(f"{file}: cannot be written: {error.strerror}; the run itself is kept.") from None
