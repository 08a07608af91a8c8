"""docs/benchmarks.md is made of the figures that the benches wrote, and knows every bench."""

import runpy
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).parents[1] / "bench"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.syspath_prepend(BENCH)
    return runpy.run_path(str(BENCH / "run.py"))


def test_the_page_is_what_the_figures_say(run: dict[str, Any]) -> None:
    figures = run["TABLE"].read_text("utf-8")
    assert run["PAGE"].read_text("utf-8") == run["summary"](figures), "run: python tests/bench/run.py --page"
    assert run["rendered"](figures, [], {}) == figures


def test_every_bench_has_its_line_and_every_figure_with_a_goal_is_shown(run: dict[str, Any]) -> None:
    page = run["PAGE"].read_text("utf-8")
    for bench, about in run["BENCHES"].items():
        assert f"- **{bench}**: {about}" in page
    for row in run["_rows_of"](run["TABLE"].read_text("utf-8")):
        assert not row.goal.sign or f"`{row.name}` {run['shown'](row.value)}" in page, row
