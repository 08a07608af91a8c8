"""Draws the pictures in docs/images from what the commands really do, in an empty folder.

demo.svg     what `dreamgym-kit demo` prints
report.png   the page that `dreamgym-kit view` makes of that run, in a Chromium of this machine

python docs/pictures.py

A test looks that the demo still prints what demo.svg shows.
"""

import contextlib
import io
import os
import pty
import shutil
import subprocess
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

IMAGES = Path(__file__).parent / "images"
WIDTH = 84  # columns
VIEW = (1280, 900)  # pixels


def main() -> None:
    """Run the demo, draw its terminal, then its page."""
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        _terminal(Path(folder))
        _page(Path(folder))


def _terminal(folder: Path) -> None:
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(
        Text.from_ansi(
            "$ dreamgym-kit demo\n" + _in_terminal(["dreamgym-kit", "demo", "--keep", "demo"], folder)
        )
    )
    console.save_svg(str(IMAGES / "demo.svg"), title="dreamgym-kit demo", unique_id="demo")


def _page(folder: Path) -> None:
    command = ["dreamgym-kit", "export", str(next((folder / "demo/runs").iterdir())), "-o", "report.html"]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        raise SystemExit("there is no Chromium to draw the page with; on Debian: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        window = started.chromium.launch(executable_path=browser, args=["--no-sandbox", "--disable-gpu"])
        page = window.new_page(viewport={"width": VIEW[0], "height": VIEW[1]}, color_scheme="light")
        page.goto((folder / "report.html").as_uri())
        page.screenshot(path=str(IMAGES / "report.png"))
        window.close()


def _in_terminal(command: list[str], folder: Path) -> str:
    """Standard output of a command that believes to write to a terminal: with its colours."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(WIDTH), "TERM": "xterm-256color"}
    running = subprocess.Popen(command, cwd=folder, env=environment, stdout=theirs, stderr=subprocess.DEVNULL)
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
