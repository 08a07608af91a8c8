"""A training is nobody else's business: the packages that do it report nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from each_row import each_row

pytest.importorskip("trl", reason="the extra train is not installed", exc_type=ImportError)
from ports import own_port
from trainers.tiny_model import write_tiny_model

pytestmark = pytest.mark.slow  # importing trl alone takes seconds

CHILD = """
import sys
import transformers  # whose hub read the environment before anybody could say anything
from pathlib import Path
from huggingface_hub.utils import _telemetry
from dreamgym_kit.adapters.trainers.trainer import TrlTrainer
from dreamgym_kit.adapters.trainers.sft import SftOptions, SftRow, train_sft

base = Path(sys.argv[1])
TrlTrainer(base, base.parent / "checkpoints")
train_sft(base, [SftRow([3, 4, 5], [1.0, 1.0, 1.0])], base.parent / "end", SftOptions(steps=1, batch=1))
print("told", _telemetry._TELEMETRY_QUEUE.qsize(), _telemetry._TELEMETRY_THREAD)
"""


@each_row(("said", "told"), [({}, "told 0 None"), ({"HF_HUB_DISABLE_TELEMETRY": "0"}, "")])
def test_nobody_is_told_of_a_training_unless_asked(tmp_path: Path, said: dict[str, str], told: str) -> None:
    base = write_tiny_model(tmp_path / "base")
    # Whatever else keeps TRL or the hub quiet, CI among it: then the test would say nothing.
    quiet = {"HF_HUB_DISABLE_TELEMETRY", "HF_HUB_OFFLINE", "DO_NOT_TRACK", "DISABLE_TELEMETRY", "CI"}
    child = subprocess.run(
        [sys.executable, "-c", CHILD, str(base)],
        env={name: value for name, value in os.environ.items() if name not in quiet}
        | {"HF_ENDPOINT": f"http://127.0.0.1:{own_port()}", "OMP_NUM_THREADS": "1", **said},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert child.returncode == 0, child.stderr
    assert told in child.stdout
    assert told or "told 0 None" not in child.stdout
