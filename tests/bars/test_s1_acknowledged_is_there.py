"""Bar S1: what a recording process was told is stored is there after `kill -9`."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.timeout(900)  # each kill waits for a start of Python


@pytest.fixture(scope="module")
def acks() -> ModuleType:
    """The bench of the same bar, by its path: tests are no package."""
    path = Path(__file__).parents[1] / "bench" / "acks.py"
    spec = importlib.util.spec_from_file_location("acks", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_a_store_that_acknowledges_too_early_is_found_out(acks: ModuleType) -> None:
    assert acks.run_trial(3, 4, store="LateCommitDouble").lost > 0


@pytest.mark.slow  # judges no time: may run beside others
@pytest.mark.bench
def test_two_hundred_kills_lose_nothing(acks: ModuleType) -> None:
    """The bar's 90 seconds are a figure of the bench: they are 200 starts of Python, and tell the machine."""
    lost, kills, seconds = acks.measure(0)
    print("S1", lost, kills, seconds)
    assert (lost, kills) == (("lost", 0, "transitions"), ("kills", 200, "kills"))
