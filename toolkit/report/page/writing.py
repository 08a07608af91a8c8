"""From a run directory to its page."""

from dataclasses import dataclass
from pathlib import Path

from dreamgym_kit.report.figures import Summary
from dreamgym_kit.report.kept import curve_of, facts_of
from dreamgym_kit.report.page.document import document
from dreamgym_kit.report.page.gathering import gather
from dreamgym_kit.report.page.overview import overview, worst_line
from dreamgym_kit.report.page.packing import packed
from dreamgym_kit.rollout.files import write_atomically
from dreamgym_kit.rollout.rundir import RunDirectory

PAGE = "report.html"
WARN_BYTES = 20_000_000


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
    summary: Summary
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
