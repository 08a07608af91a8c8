"""The bench `attack` counts what ran, and sees what an open gate lets through."""

from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest


@pytest.mark.bench
@pytest.mark.parametrize("bench", ["attack"], indirect=True)
def test_a_body_that_runs_is_seen_at_the_bank_and_its_twin_ends(bench: ModuleType, tmp_path: Path) -> None:
    (without_gate := tmp_path / "without_gate.py").write_text(
        "from dreamgym_kit.guard import egress\n"
        "from dreamgym_kit.routing.router import CallRouter, Route\n"
        "CallRouter.route_of = lambda self, spec: Route.REAL\n"
        "egress._Guard.permits = lambda self, attempt: True\n"
    )
    ordinary = [case for case in bench.cases(0) if case.name == "ordinary_tool"]
    figures = {name: value for name, value, _ in bench.figures(ordinary)}
    print(figures)
    assert figures == {
        "tries": 1, "crossed": 0, "ran": 0, "ran_silent": 0, "refused_before": 0, "twins_right": 1
    }  # fmt: skip
    assert bench.table() == "No body ran."
    figures = {name: value for name, value, _ in bench.figures(ordinary, preload=str(without_gate))}
    assert figures["ran"] == 1
    assert "| ordinary_tool |" in bench.table()


@pytest.mark.parametrize("bench", ["attack"], indirect=True)
def test_crossed_cases_are_the_same_for_a_seed_and_most_of_the_bench(bench: ModuleType) -> None:
    cases = bench.cases(0)
    assert cases == bench.cases(0)
    assert len({case.name for case in cases}) == len(cases) >= 120
    assert sum(case.crossed for case in cases) >= 60


@pytest.mark.parametrize("bench", ["attack"], indirect=True)
def test_what_ran_and_what_no_try_was_are_counted_apart(bench: ModuleType) -> None:
    case = bench.cases(0)[0]
    held = bench.Outcome(case, real=True, ran=False, said=False, refused=True, code=2, twin=True)
    outcomes = [
        held,
        replace(held, ran=True, refused=False, code=0),
        replace(held, ran=True, said=True, refused=False, code=6, twin=False),
        replace(held, real=False, ran=True),
    ]
    assert [value for _, value, _ in bench.judged(outcomes)] == [3, 0, 2, 1, 1, pytest.approx(2 / 3)]
    assert [row.endswith("| no |") for row in bench.table().splitlines()[2:]] == [True, False]
