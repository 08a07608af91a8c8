"""What a command prints: results on stdout, errors on stderr, and a reader that went away is no error.

`dreamgym-kit report | head` closes the pipe early; the rest is then dropped, and the exit code stays
what the command says.
"""

import json
import os
import shlex
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from dreamgym_kit.report.colors import Paint


def say(text: str = "") -> None:
    """Print a result."""
    _write(sys.stdout, f"{text}\n")


def say_json(value: Any) -> None:
    """Print one JSON object, readable and stable."""
    say(json.dumps(value, indent=2, allow_nan=False))


def tell(text: str) -> None:
    """Print what is no result: errors, warnings, questions."""
    _write(sys.stderr, f"{text}\n")


def coloured(stream: TextIO) -> bool:
    """Whether colour may be used: a terminal, and nobody said no (no-color.org)."""
    return (
        not stream.closed
        and stream.isatty()
        and not os.environ.get("NO_COLOR")
        and os.environ.get("TERM") != "dumb"
    )


def stdout_paint() -> Paint:
    """Colours for stdout, or none."""
    return Paint(color=coloured(sys.stdout))


def near(path: Path) -> str:
    """A path as one would type it from here."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def pasted(text: str) -> str:
    """Quote an argument for a shell; control and bidi characters in it are spelled, never printed."""
    if text.isprintable():
        return shlex.quote(text)
    spelled = text.encode("unicode_escape").decode("ascii").replace("'", "\\'")
    return f"$'{spelled}'"


def say_steps(*steps: tuple[str, str, str]) -> None:
    """Print what to do next: (what, command to paste, what it does)."""
    from dreamgym_kit.report.terminal import next_steps

    say(next_steps(steps))


def can_ask() -> bool:
    """Whether a person can be asked: at a terminal, and not in CI, which may have one that nobody reads."""
    from dreamgym_kit.settings.load import in_ci

    return sys.stdin.isatty() and not in_ci()


def columns() -> int:
    """How wide text is folded: as COLUMNS or the terminal says, 80 to 160; without both, not at all."""
    if not sys.stdout.isatty() and not os.environ.get("COLUMNS", "").isdecimal():
        return sys.maxsize
    return min(max(shutil.get_terminal_size().columns, 80), 160)


def finish() -> None:
    """Flush before the interpreter does, so that a closed pipe stays quiet."""
    for stream in (sys.stdout, sys.stderr):
        _write(stream, "")


def _write(stream: TextIO, text: str) -> None:
    if stream.closed:  # an agent's module may do that
        return
    if text:
        from dreamgym_kit.replay.masking import process_masker  # `--help` does without it

        text = process_masker().text(text)
    try:
        stream.write(
            text.encode(stream.encoding or "ascii", "backslashreplace").decode(stream.encoding or "ascii")
        )
        stream.flush()
    except BrokenPipeError:
        with suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
