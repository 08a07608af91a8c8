"""The report of the whole way: no text of a run is markup in either form."""

from pathlib import Path
from typing import Any

import pytest

from dreamgym_kit.recipes import whole_report

HOSTILE = "<script>alert(1)</script> **bold** [x](http://evil) | cell"


def test_no_text_of_a_run_becomes_markup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = (
        whole_report._table(("kind", "solved"), (HOSTILE, "1")),
        whole_report.bullets([HOSTILE]),
        "## Use",
        whole_report._code(f"serve {HOSTILE}"),
    )
    monkeypatch.setattr(whole_report, "blocks_of", lambda plan, outcome: iter(blocks))
    nothing: Any = None
    page = whole_report.write_report(tmp_path, nothing, nothing).read_text()
    body = page.partition("<body>")[2]
    assert (body.count("<td>"), body.count("<li>"), body.count("<pre>")) == (2, 1, 1)
    assert not any(tag in body for tag in ("<script", "<strong>", "<a "))
    assert body.count("&lt;script&gt;") == 3
    assert (tmp_path / "report.md").read_text().startswith(f"# {whole_report.TITLE}\n\n| kind | solved |")
