"""The public suites of langchain-core, langchain and langgraph-prebuilt end as they do without the gate."""

import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).parent / "run.py"

# They share the environment that the first of them makes; the others wait for that.
pytestmark = pytest.mark.upstream


def upstream(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, RUN, *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "suite",
    ["prebuilt", *(pytest.param(suite, marks=pytest.mark.nightly) for suite in ("langchain", "core"))],
)
def test_no_test_ends_otherwise_with_the_gate_idle_or_recording(suite: str) -> None:
    done = upstream("--suite", suite, "--mode", "idle", "--mode", "record")
    assert done.stdout.endswith("different 0 tests\n"), done.stdout + done.stderr


@pytest.mark.nightly
def test_mutant_a_gate_that_changes_answers_is_seen() -> None:
    done = upstream("--suite", "prebuilt", "--mode", "mutant")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "passed -> failed in call" in done.stdout
