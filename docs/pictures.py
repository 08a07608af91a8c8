"""Draws docs/images/demo.svg from what `dreamgym-kit demo` really prints.

python docs/pictures.py
"""

import contextlib
import io
import os
import pty
import subprocess
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

IMAGE = Path(__file__).parent / "images" / "demo.svg"
WIDTH = 84


def main() -> None:
    """Run the demo in an empty folder and draw what a terminal would show."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(
        Text.from_ansi("$ dreamgym-kit demo\n" + _in_terminal(["dreamgym-kit", "demo", "--keep", "demo"]))
    )
    IMAGE.parent.mkdir(exist_ok=True)
    console.save_svg(str(IMAGE), title="dreamgym-kit demo")


def _in_terminal(command: list[str]) -> str:
    """Standard output of a command that believes to write to a terminal: with its colours."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(WIDTH), "TERM": "xterm-256color"}
    with tempfile.TemporaryDirectory() as folder:
        running = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=theirs, stderr=subprocess.DEVNULL
        )
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # a terminal whose other end closed
            while part := os.read(ours, 65536):
                shown += part
        os.close(ours)
        if running.wait() != 0:
            raise SystemExit(f"{command[0]} ended with {running.returncode}")
    return shown.decode().replace("\r\n", "\n")


if __name__ == "__main__":
    main()
