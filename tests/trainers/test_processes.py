"""Two processes that learn together come to the weights of one."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("trl", reason="the extra train is not installed", exc_type=ImportError)
from trainers.bare_loop import furthest, mixed_batch
from trainers.tiny_model import write_tiny_model

from dreamgym_kit.adapters.models.folders import load_model
from dreamgym_kit.adapters.trainers.options import GrpoOptions
from dreamgym_kit.adapters.trainers.trainer import TrlTrainer

pytestmark = pytest.mark.slow  # importing trl alone takes seconds

CHILD = Path(__file__).with_name("process_child.py")


def together(base: Path, folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    asked = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2"]
    asked += ["--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0"]
    return subprocess.run(
        [*asked, str(CHILD), str(base), str(folder), *more],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_two_processes_come_to_the_weights_of_one_and_only_the_first_collects(tmp_path: Path) -> None:
    base = write_tiny_model(tmp_path / "base", scale=2.0)
    done = together(base, tmp_path / "two")
    assert done.returncode == 0, done.stderr
    first, *lines = (tmp_path / "two" / "said-0.txt").read_text().splitlines()
    assert first == "rank 0 asked [1, 2, 3] heard [1, 2, 3]"
    assert (tmp_path / "two" / "said-1.txt").read_text() == "rank 1 asked [] heard []"
    options = GrpoOptions(learning_rate=1e-3, warmup_steps=2, beta=0.1, dtype="float64")
    alone = TrlTrainer(base, tmp_path / "one", options)
    facts = []
    alone.fit(mixed_batch, steps=3, after=facts.append)
    alone.write_weights(tmp_path / "one" / "weights")
    one, two = (load_model(tmp_path / name / "weights", dtype="float64") for name in ("one", "two"))
    assert furthest(load_model(base), two) > 1e-3
    assert furthest(one, two) <= 2e-7
    told = [line.split()[1:] for line in lines]
    for step, line in zip(facts, told, strict=True):
        ours = [step.loss, step.entropy, step.clipped, step.logprob_gap, step.kl]
        assert list(map(float, line)) == pytest.approx(ours, abs=1e-5)


@pytest.mark.nightly
def test_what_ends_the_first_process_ends_the_other(tmp_path: Path) -> None:
    base = write_tiny_model(tmp_path / "base", scale=2.0)
    done = together(base, tmp_path / "two", "fail")
    assert done.returncode != 0
    assert "RuntimeError: no more" in done.stderr
    assert "FirstStopped: the first process stopped: RuntimeError: no more" in done.stderr
    assert sorted(path.name for path in (tmp_path / "two").glob("step-*")) == ["step-000001"]
