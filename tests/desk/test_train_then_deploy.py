"""The recipe in small: from recording to the weights that are to be served."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from dreamgym_kit.gate.registry import PROCESS, wake
from dreamgym_kit.recipes.nano import build
from dreamgym_kit.recipes.train_then_deploy import QUICK, last_lines, main, train_then_deploy
from dreamgym_kit.trust.beating import Word

pytest.importorskip("trl", reason="the extra train is not installed")


@pytest.fixture
def weights(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The shipped model; an untrained one that copies where none is shipped."""
    from dreamgym_kit.recipes.nano.start import save_untrained

    if not (build.WEIGHTS / "model.safetensors").exists():
        save_untrained(tmp_path / "policy")
        monkeypatch.setattr(build, "WEIGHTS", tmp_path / "policy")
    return build.WEIGHTS


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_whole_way_in_small(weights: Path, tmp_path: Path) -> None:
    told: list[str] = []
    out = tmp_path / "out"
    try:
        outcome = train_then_deploy(out, replace(QUICK, seed=3), tell=told.append)
    finally:
        if PROCESS.armed:
            wake()
    assert [line.split()[0] for line in told if line[0] != " "] == ["1", "2", "3", "4", "5", "6"]
    assert outcome.real_calls == 0
    assert "0 real calls, " in next(line for line in told if line.startswith("4"))
    assert (outcome.before.b.real, outcome.after.b.real) == (True, True)
    assert outcome.after.beating is not None
    assert outcome.after.beating.tasks == QUICK.held_out
    assert (outcome.merged / "model.safetensors").stat().st_mode & 0o777 == 0o644
    assert "On the real tools, against the start: " in (outcome.merged / "README.md").read_text()
    said = last_lines(outcome)
    assert re.search(r"^(It got better|No gain is proven) on the real tools\. ", said, re.MULTILINE)
    assert outcome.better == (outcome.after.beating.word is Word.BETTER)
    assert f"vllm serve {outcome.merged} " in said


def test_a_folder_that_is_there_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").write_text("mine")
    assert main([str(tmp_path), "--quick"]) == 2
    assert capsys.readouterr().err.startswith(f"error: {tmp_path}: is there already; name another folder")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_help_needs_no_training_packages() -> None:
    code = (
        "import sys, runpy; sys.modules['torch'] = sys.modules['trl'] = None; sys.argv = ['x', '--help']; "
        "runpy.run_module('dreamgym_kit.recipes.train_then_deploy', run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--quick" in done.stdout
