"""The bench of the curriculum: impossible tasks in small, and a measurement that goes on."""

import importlib
import json
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    sys.modules.pop("curriculum", None)
    yield importlib.import_module("curriculum")
    sys.modules.pop("curriculum", None)


@pytest.mark.bench
@pytest.mark.nightly
def test_a_wrong_judge_makes_few_groups_of_impossible_tasks_ones_to_learn_from(
    measured: ModuleType,
) -> None:
    figures = {name: value for name, value, _ in measured.quick(0)}
    print(figures)
    assert figures["impossible_share"] <= 0.02
    assert figures["impossible_in_turn"] > 2 * figures["impossible_share"]  # the trial can tell


def test_parts_of_a_seed_that_were_measured_are_not_measured_again(
    measured: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    solved = {"start": 8, "in_turn": 12, "chosen": 14}
    for part, count in solved.items():
        place = tmp_path / "seed-3" / part
        place.mkdir(parents=True)
        rows = {f"t{at}": [int(at < count), int(at >= count), 0] for at in range(20)}
        (place / "result.json").write_text(json.dumps({"outcomes": rows, "episodes": 960, "dead": 0.25}))
    monkeypatch.setattr(measured, "kept", lambda _: nullcontext(tmp_path))
    figures = {name: value for name, value, _ in measured.gains([3])}
    assert figures["gain_points"] == pytest.approx(10)
    assert figures["episodes_ratio"] == 1
    assert "| 3 | 0.400 | 0.600 | 0.700 | +10.0" in measured.table()
