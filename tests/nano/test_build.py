import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the extra train is not installed")

from dreamgym_kit.errors import UserError
from dreamgym_kit.recipes.nano.build import BuildPlan, Lessons, Shape, build

SMALL = BuildPlan(
    seed=4,
    episodes=150,
    shape=Shape(width=64, layers=2, inner=64),
    lessons=Lessons(steps=3, rows=4),
    environments_per_family=1,
    samplings=1,
)


@pytest.mark.slow
def test_a_built_directory_says_how_it_was_made(tmp_path: Path) -> None:
    told: list[str] = []
    facts = build(tmp_path / "policy", SMALL, tell=told.append)
    written = json.loads((tmp_path / "policy" / "nano.json").read_text())
    assert written == json.loads(json.dumps(facts))
    assert (written["seed"], written["data"]["episodes"], written["lessons"]["steps"]) == (4, 150, 3)
    assert set(written["scores"]) == {"sampled", "greedy"}
    assert written["scores"]["sampled"]["episodes"] == 9
    assert "150 recorded episodes" in (tmp_path / "policy" / "README.md").read_text()
    assert told[0].startswith("recorded 150 episodes")


def test_what_is_there_is_never_built_over(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("x")
    with pytest.raises(UserError, match="is there already"):
        build(tmp_path, SMALL)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.slow
def test_equal_seeds_build_equal_weights(tmp_path: Path) -> None:
    digests = [build(tmp_path / name, SMALL)["weights_sha256"] for name in ("one", "two")]
    assert digests[0] == digests[1]


@pytest.mark.slow
def test_the_command_builds_and_a_wrong_one_is_one_line(tmp_path: Path) -> None:
    out = tmp_path / "policy"
    command = [sys.executable, "-m", "dreamgym_kit.recipes.nano", "build", str(out), "--quick"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, (out / "model.safetensors").is_file()) == (0, True)
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert again.returncode == 2
    assert again.stderr == f"error: {out}: is there already; name another directory, or delete it first\n"
