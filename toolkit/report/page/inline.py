"""The page inside a notebook: a frame of its own, and beside it what is left where frames are taken out.

The frame's address is the page itself (`data:`). In a `srcdoc` frame, links within the page would lead to the
notebook's address and open it in itself. The frame is a sandbox that may run the page's script and nothing
else: no cookie, token or cell of the notebook is in reach, and the page's content security policy stays what
it is. Notebooks that are not trusted lose the frame; the text stays.
"""

import base64
import shlex
from html import escape
from pathlib import Path

from dreamgym_kit.errors import RunDirectoryError
from dreamgym_kit.report.page.writing import page_of
from dreamgym_kit.rollout.rundir import RunDirectory

MAX_BYTES = 4_000_000  # of a page; it becomes part of the notebook's file, a third larger
_HEIGHT = 720  # pixels


def inline(directory: Path, text: str) -> str:
    """Give a run's page as HTML for the output of a cell.

    Args:
        directory: the run; where it is gone or damaged, the text is all that is given.
        text: the run as text; shown where the frame is not.
    """
    told = f"<pre>{escape(text)}</pre>"
    place = shlex.quote(str(directory))
    try:
        page = page_of(RunDirectory.open(directory), place=place).html.encode("utf-8")
    except RunDirectoryError:
        return told
    command = f"<code>{escape(f'dreamgym-kit report {place} --html')}</code>"
    if len(page) > MAX_BYTES:
        return f"{told}<p>The page has {len(page) / 1e6:.0f} MB, too much for a notebook: {command}</p>"
    return (
        f"<details><summary>As text</summary>{told}</details>"
        f'<iframe title="dreamgym-kit report" sandbox="allow-scripts" referrerpolicy="no-referrer" '
        f'style="width:100%;height:{_HEIGHT}px;border:1px solid #8884;border-radius:4px" '
        f'src="data:text/html;charset=utf-8;base64,{base64.b64encode(page).decode("ascii")}"></iframe>'
        f"<p>As a file: {command}</p>"
    )
