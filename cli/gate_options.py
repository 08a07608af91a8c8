"""The files that CI systems read; `simulate` and `report` share their options."""

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from dreamgym_kit.report.figures import Summary

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
