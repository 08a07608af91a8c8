"""From a run directory to its page: as a file, or inside a notebook.

In a notebook the page is a frame of its own, and beside it stands what is left where frames are taken out.
The frame's address is the page itself (`data:`). In a `srcdoc` frame, links within the page would lead to the
notebook's address and open it in itself. The frame is a sandbox that may run the page's script and nothing
else: no cookie, token or cell of the notebook is in reach, and the page's content security policy stays what
it is. Notebooks that are not trusted lose the frame; the text stays.
"""

import base64
import shlex
from dataclasses import dataclass
from html import escape
from pathlib import Path

from dreamgym_kit.errors import RunDirectoryError
from dreamgym_kit.report.metrics import RunMetrics
from dreamgym_kit.report.page.document import document, packed
from dreamgym_kit.report.page.gathering import gather
from dreamgym_kit.report.page.overview import overview, worst_line
from dreamgym_kit.report.summary import curve_of, facts_of
from dreamgym_kit.rollout.atomic_files import write_atomically
from dreamgym_kit.rollout.rundir import RunDirectory

PAGE = "report.html"
WARN_BYTES = 20_000_000
MAX_BYTES = 4_000_000  # of a page in a notebook; it becomes part of its file, a third larger
_HEIGHT = 720  # pixels


@dataclass(frozen=True, slots=True)
class Page:
    """A page that was made, and what to say of it.

    Attributes:
        html: the whole file.
        summary: the figures that it shows.
        warnings: what a person has to know about it.
        look_at: the episode to look at first and its step, None where there is none.
    """

    html: str
    summary: RunMetrics
    warnings: tuple[str, ...] = ()
    look_at: tuple[str, int | None] | None = None


def page_of(directory: RunDirectory, *, place: str) -> Page:
    """Make the page of a run, also of one that is not finished: it shows the episodes that are.

    Args:
        directory: the run, open for reading.
        place: its directory as one would type it, for the commands on the page.

    Raises:
        RunDirectoryError: the journal is damaged or of another version.
    """
    episodes = directory.episodes()
    gathered = gather(episodes)
    summary = gathered.tally.summary(facts_of(directory), curve_of(directory))
    warnings = [] if episodes.torn is None else [f"{directory.path}: {episodes.torn}"]
    steps = packed([gathered.steps[line.id] for line in summary.episodes])
    notes = []
    if steps.left_out:
        notes.append(
            f"The steps of {steps.left_out:,} episodes are not in this page, which would be too large to "
            "open; dreamgym-kit report --episode shows them."
        )
    report = overview(gathered, summary, place=place, notes=notes)
    html = document(report, steps.block)
    worst = worst_line(summary)
    if len(html) > WARN_BYTES:
        warnings.append(f"the page has {len(html) / 1e6:.0f} MB; some browsers will be slow to open it")
    return Page(
        html=html,
        summary=summary,
        warnings=(*warnings, *notes),
        look_at=(worst.id, worst.anomaly_step) if worst is not None else None,
    )


def write_page(page: Page, target: Path) -> None:
    """Put the page at `target`, in one step.

    Raises:
        RunDirectoryError: it cannot be written there; what stood there still does.
    """
    write_atomically(target, page.html.encode("utf-8"))


def inline(directory: Path, text: str) -> str:
    """Give a run's page as HTML for the output of a cell.

    Args:
        directory: the run; where it is gone or damaged, the text is all that is given.
        text: the run as text; shown where the frame is not.
    """
    pre = f"<pre>{escape(text)}</pre>"
    place = shlex.quote(str(directory))
    try:
        page = page_of(RunDirectory.open(directory), place=place).html.encode("utf-8")
    except RunDirectoryError:
        return pre
    command = f"<code>{escape(f'dreamgym-kit view {place}')}</code>"
    if len(page) > MAX_BYTES:
        return f"{pre}<p>The page has {len(page) / 1e6:.0f} MB, too much for a notebook: {command}</p>"
    return (
        f"<details><summary>As text</summary>{pre}</details>"
        f'<iframe title="dreamgym-kit report" sandbox="allow-scripts" referrerpolicy="no-referrer" '
        f'style="width:100%;height:{_HEIGHT}px;border:1px solid #8884;border-radius:4px" '
        f'src="data:text/html;charset=utf-8;base64,{base64.b64encode(page).decode("ascii")}"></iframe>'
        f"<p>As a file: {command}</p>"
    )
