"""The report of the whole way: all its parts, and no text of a run is markup in either form."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from dreamgym_kit.recipes import whole_report
from dreamgym_kit.recipes.train_then_deploy import QUICK

HOSTILE = "<script>alert(1)</script> **bold** [x](http://evil) | cell"


def outcome_double() -> Any:
    """What `WholeWayOutcome` has, with a hostile text wherever a run has one."""
    beating = SimpleNamespace(low=0.1, change=0.2, high=0.3, phrase=lambda *_: "20 points more")
    scores = SimpleNamespace(
        once=None, families={HOSTILE: None}, inconclusive=2, summary=SimpleNamespace(real_calls=7)
    )
    trial = SimpleNamespace(beating=beating, b=scores)
    return SimpleNamespace(
        before=SimpleNamespace(beating=None, b=scores),
        dreamed=trial,
        after=trial,
        promoted=False,
        sentence=f"It is not in use: {HOSTILE}",
        event=SimpleNamespace(reasons=(HOSTILE,)),
        facts={"dream": {"alarm": HOSTILE}, "real": {"stopped": HOSTILE}},
        seconds={"before": 1.0},
        pointing=SimpleNamespace(lines=(f"serve {HOSTILE}",), shelf="deployed"),
        card=Path("card"),
    )


def test_the_report_has_every_part_and_no_text_of_a_run_becomes_markup(tmp_path: Path) -> None:
    page = whole_report.write_report(tmp_path, QUICK, outcome_double()).read_text()
    body = page.partition("<body>")[2]
    assert [body.count(f"<{tag}>") for tag in ("h1", "h2", "table", "ul", "pre")] == [1, 4, 3, 3, 1]
    assert not any(tag in body for tag in ("<script", "<a "))
    assert body.count("<strong>") == 1  # the answer itself
    assert body.count("&lt;script&gt;") == 6
    text = (tmp_path / "report.md").read_text()
    assert text.startswith(f"# {whole_report.TITLE}\n\n**It is not in use: ")
    assert "read the key from VLLM\\_API\\_KEY" in text
