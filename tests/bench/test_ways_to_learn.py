"""The benches of algorithms, faults and ablations: in small they run; what was measured is kept."""

import importlib
import json
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parent


@pytest.fixture
def measured(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A module of this folder, imported as the runner does it."""
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)  # its own processes look there too
    for variable in ("DREAMGYM_ALGORITHMS", "DREAMGYM_FAULTS", "DREAMGYM_ABLATIONS"):
        monkeypatch.delenv(variable, raising=False)
    name = str(request.param)
    sys.modules.pop(name, None)
    yield importlib.import_module(name)
    sys.modules.pop(name, None)


@pytest.mark.bench
@pytest.mark.parametrize("measured", ["algorithms"], indirect=True)
@pytest.mark.nightly
def test_every_algorithm_learns_in_small(measured: ModuleType) -> None:
    figures = {name: value for name, value, _ in measured.quick(0)}
    print(figures)
    assert figures.keys() == {"start", "grpo", "ppo", "dpo", "sft"}
    assert all(0 <= share <= 1 for share in figures.values())


@pytest.mark.bench
@pytest.mark.parametrize("measured", ["faults"], indirect=True)
@pytest.mark.nightly
def test_real_tools_under_faults_fail_in_small(measured: ModuleType) -> None:
    figures = {name: value for name, value, _ in measured.quick(0)}
    print(figures)
    assert figures["faults_met"] > 0


@pytest.mark.parametrize("measured", ["algorithms"], indirect=True)
def test_what_an_algorithm_came_to_is_not_measured_again(
    measured: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    solved = {"start": 8, "grpo": 16, "ppo": 14, "dpo": 12, "sft": 10}
    for part, count in solved.items():
        place = tmp_path / "seed-3" / f"part-{part}"
        place.mkdir(parents=True)
        rows = {f"t{at}": [int(at < count), int(at >= count), 0] for at in range(20)}
        alarm = "kl: too far" if part == "sft" else ""
        result = {"outcomes": rows, "real_calls": 0, "steps": 20, "alarm": alarm}
        (place / "result.json").write_text(json.dumps(result))
    monkeypatch.setattr(measured, "kept", lambda _: nullcontext(tmp_path))
    figures = {name: value for name, value, _ in measured.figures([3])}
    assert figures == {"start": 0.4, "grpo": 0.8, "ppo": 0.7, "dpo": 0.6, "sft": 0.5}
    assert measured.table().splitlines()[2].startswith("| 3 | 0.400 | 0.800 (+40.0: ")
    assert measured.table().endswith("; kl: too far |")


@pytest.mark.bench
@pytest.mark.parametrize("measured", ["ablations"], indirect=True)
@pytest.mark.nightly
def test_parts_are_left_out_in_small(measured: ModuleType) -> None:
    figures = {name: value for name, value, _ in measured.quick(0)}
    print(figures)
    assert figures.keys() == {
        *("start", "real_whole", "faulty_whole", "answered_whole", "exact_whole"),
        *("real_no_history", "answered_no_history", "exact_no_history", "real_no_faults", "faulty_no_faults"),
    }
    assert figures["exact_no_history"] < figures["exact_whole"]


@pytest.mark.parametrize("measured", ["ablations"], indirect=True)
def test_what_a_dream_without_a_part_came_to_is_not_measured_again(
    measured: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for seed in (3, 4):
        for at, part in enumerate(("start", *measured.PARTS)):
            place = tmp_path / f"seed-{seed}" / f"part-{part}"
            place.mkdir(parents=True)
            solved = 18 - 2 * at if at else 6
            outcomes = {f"t{task}": [int(task < solved), int(task >= solved), 0] for task in range(20)}
            faulty = outcomes if part in ("nothing", "faults") else None
            counts = {"calls": 100, "answered": 90, "exact": 90 - 10 * at} if part != "faults" else {}
            (place / "result.json").write_text(
                json.dumps(
                    {"outcomes": outcomes, "faulty": faulty, "alarm": "kl" * (part == "state"), **counts}
                )
            )
    monkeypatch.setattr(measured, "kept", lambda _: nullcontext(tmp_path))
    figures = {name: value for name, value, _ in measured.figures([3, 4])}
    assert (figures["start"], figures["real_whole"], figures["real_no_history"]) == (0.3, 0.8, 0.7)
    assert (figures["answered_whole"], figures["exact_whole"], figures["exact_no_state"]) == (0.9, 0.8, 0.6)
    assert figures["faulty_no_faults"] == figures["real_no_faults"] == 0.2
    assert "exact_no_faults" not in figures
    lines = measured.table().splitlines()
    assert lines[2] == "| nothing | 0.900 | 0.800 | 0.800 |  |  |"
    assert lines[3].startswith("| history | 0.900 | 0.700 | 0.700 | -10.0 (")
    assert lines[4].endswith(" | 3: kl; 4: kl |")
