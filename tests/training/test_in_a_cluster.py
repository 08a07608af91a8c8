"""`train` and `evaluate` with `--engine ray`: what they give is what one process gives."""

import json
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="the extra `ray` is not installed")
pytest.importorskip("trl", reason="the extra train is not installed")

from training.real_parts import project, run

pytestmark = [pytest.mark.ray, pytest.mark.nightly]
RAY = ("--set", "workers.backend=ray", "--set", "workers.count=2")


def learned(folder: Path, runs: str, *engine: str) -> tuple[list[object], list[float], Path]:
    """What each step collected, its loss, and the weights."""
    done = run(folder, "train", "--steps", "2", "--set", f"runs={runs}", "--json", *engine)
    assert done.returncode == 0, done.stderr
    (kept,) = (folder / runs).iterdir()
    steps = [json.loads(line) for line in (kept / "steps.jsonl").read_text().splitlines()]
    assert json.loads(done.stdout)["kept"] == len(steps) == 2
    weights = kept / json.loads(done.stdout)["weights"]
    return [one["facts"] for one in steps], [one["loss"] for one in steps], weights


def tried(folder: Path, runs: str, weights: Path, *engine: str) -> dict[str, object]:
    """What an evaluation counts; the time that it took aside."""
    done = run(
        folder, "evaluate", "--policy", str(weights), "--set", f"runs={runs}", "-n", "2", "--json", *engine
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, object] = json.loads(done.stdout)["b"]
    return {name: figure for name, figure in told.items() if name not in ("run", "elapsed_s")}


def test_training_and_evaluating_in_a_cluster_are_those_of_one_process(tmp_path: Path) -> None:
    folder = project(tmp_path)
    here, losses, weights = learned(folder, "here")
    there, other_losses, _ = learned(folder, "there", *RAY)
    assert here == there
    assert losses == pytest.approx(other_losses, abs=1e-6)
    found = tried(folder, "tried-here", weights)
    assert found == tried(folder, "tried-there", weights, *RAY)
    assert sum(found["counts"].values()) == 2 * 9
