"""What each part of the dream is worth: the same measured with one part left out at a time."""

from collections.abc import Sequence
from dataclasses import dataclass

from dreamgym_kit.codec import Codec
from dreamgym_kit.rollout.journal import RENAMED_FIELDS

WHOLE = "nothing"  # is left out: what the others are held against
DREAM_ONLY = ("history", "state", "retrieval", "reasoning")
LEARNING_ONLY = ("curriculum", "faults")  # matter only where something is learned


@dataclass(frozen=True, slots=True, kw_only=True)
class AblationRow:
    """A dream without one part."""

    part: str
    calls: int = 0  # held-out recorded calls that were put to it
    answered: int = 0
    exact: int = 0
    dream: float | None = None  # success of the policy in it, of decided episodes, 0..1
    inconclusive: int = 0  # episodes of that which the dream could not tell
    real: float | None = None  # real success of what learned in it, 0..1
    against_whole: str | None = None  # that, held against what learned in the whole dream
    alarm: str | None = None  # what ended its training early


ROWS = Codec(AblationRow, renamed=RENAMED_FIELDS)


def render_ablation(rows: Sequence[AblationRow]) -> str:
    """The table as text; the whole dream first."""
    head = ("without", "answered", "exact", "success in it", "inconclusive", "learned in it, real")
    body = [head, *(_cells(row) for row in rows)]
    widths = [max(len(cells[place]) for cells in body) for place in range(len(head))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) for cells in body
    ]
    notes = [f"  without {row.part}: {row.against_whole}" for row in rows if row.against_whole]
    notes += [f"  without {row.part}: an alarm ended its training: {row.alarm}" for row in rows if row.alarm]
    return "\n".join([*(f" {line}".rstrip() for line in lines), *([""] if notes else []), *notes])


def _cells(row: AblationRow) -> tuple[str, ...]:
    return (
        row.part,
        _share(row.answered, row.calls),
        _share(row.exact, row.calls),
        _percent(row.dream),
        str(row.inconclusive) if row.dream is not None or row.inconclusive else "-",
        _percent(row.real),
    )


def _share(count: int, of: int) -> str:
    return f"{100 * count / of:.1f} %" if of else "-"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"
