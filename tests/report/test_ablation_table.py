"""The table of an ablation: what is not known is no figure."""

import pytest

from dreamgym_kit.errors import NotSerializable
from dreamgym_kit.report.evaluation import ROWS as CODEC
from dreamgym_kit.report.evaluation import WHOLE, AblationRow, render_ablation

ROWS = [
    AblationRow(part=WHOLE, calls=200, answered=194, exact=190, dream=0.6, inconclusive=3, real=0.55),
    AblationRow(
        part="history",
        calls=200,
        answered=170,
        exact=150,
        real=0.4,
        against_whole="It solves 15 points less.",
    ),
    AblationRow(part="faults", alarm="entropy"),
]


def test_rows_stand_below_each_other_and_nothing_is_made_up() -> None:
    assert render_ablation(ROWS).splitlines() == [
        " without  answered  exact   success in it  inconclusive  learned in it, real",
        " nothing  97.0 %    95.0 %  60.0 %         3             55.0 %",
        " history  85.0 %    75.0 %  -              -             40.0 %",
        " faults   -         -       -              -             -",
        "",
        "  without history: It solves 15 points less.",
        "  without faults: an alarm ended its training: entropy",
    ]


def test_a_row_is_read_back_as_it_was_written() -> None:
    assert [CODEC.read(CODEC.write(row)) for row in ROWS] == ROWS
    with pytest.raises(NotSerializable, match="exact: expected a whole number"):
        CODEC.read({**CODEC.write(ROWS[0]), "exact": "all"})
