"""The demo: no key, no network; the planted bug shows at a glance, its mended form passes."""

import json
from pathlib import Path

import pytest

pytest.importorskip("langchain_mcp_adapters", reason="the extra `demo` is not installed")


@pytest.mark.slow
def test_the_demo_shows_the_double_refund_and_ends_with_0(run, tmp_path: Path) -> None:
    done = run("demo", "--keep", str(tmp_path / "demo"), COLUMNS="80")
    assert done.returncode == 0, done.stderr
    assert "The agent's model is a script, no language model, with one planted bug." in done.stdout.replace(
        "\n", " "
    )
    assert " called twice, after a time-out\n" in done.stdout
    assert "\n      the same call as step " in done.stdout
    assert "\nFAILED  61 passed, 11 failed, 0 inconclusive, 0 errors\n" in done.stdout
    assert "  Real calls    0 executed, 0 blocked, of " in done.stdout
    assert " Fix      dreamgym-kit demo --fixed " in done.stdout
    assert max(len(line) for line in done.stdout.splitlines() if "dreamgym-kit report" not in line) <= 80


@pytest.mark.slow
def test_the_mended_agent_has_no_finding(run, tmp_path: Path) -> None:
    said = json.loads(run("demo", "--fixed", "--json", "--keep", str(tmp_path)).stdout)
    assert said["findings"] == []
    assert said["verdict"] == "passed"
    assert said["calls"]["real"] == 0
