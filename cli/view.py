"""`dreamgym-kit view`: the page of a run, in the browser."""

from pathlib import Path
from typing import Annotated

from dreamgym_kit.cli import options
from dreamgym_kit.cli.export import write_page
from dreamgym_kit.cli.output import near, say, tell
from dreamgym_kit.cli.running import opened

EXAMPLES = ("dreamgym-kit view", "dreamgym-kit view runs/2026-11-21-desk-7f3a --no-browser")

NoBrowser = Annotated[bool, options.option("--no-browser", "Write the page and say where it is.")]


def command(run: options.Run = None, no_browser: NoBrowser = False) -> None:
    """Open the report of a run in the browser.

    It is one file, RUN/report.html, that needs no server and no network.
    """
    import webbrowser

    from dreamgym_kit.report.page.writing import PAGE

    directory = opened(run).path
    target: Path = directory / PAGE
    link = write_page(directory, target)
    say(f" {near(target)}  {target.stat().st_size / 1e6:.1f} MB")
    say(f" {link}")
    if not no_browser and not webbrowser.open(link):
        tell("warning: no browser was found here; open the file named above.")
