"""Lets tests and benches import what many of them share; and no test leaves its dream to the next one.

Shared are `shapes`, the ways in which people build agents, and the doubles that lie in this folder.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

# No unit test asserts a time: a machine that is busy makes an example slow, not wrong. The rest stays as it
# is by default, which is without chance where CI is set.
hypothesis.settings.register_profile(
    "suite", hypothesis.settings(), deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("suite")
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def _awake_afterwards() -> Iterator[None]:
    """A process that has dreamt stays armed: real tools of the next test in it would be refused."""
    yield
    registry = sys.modules.get("dreamgym_kit.gate.registry")
    if registry is not None and registry.PROCESS.armed:
        registry.wake()
