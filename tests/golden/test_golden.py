"""Golden runs: three shapes of agents and the demo end as they did when `expected/` was written."""

import json

import pytest
from golden.golden import EXPECTED, NAMES, alike, made

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.nightly) if name == "training" else name for name in NAMES]
)
def test_a_golden_run_ends_as_it_did(name: str) -> None:
    expected = json.loads((EXPECTED / f"{name}.json").read_text())
    now = json.loads(json.dumps(made(name)))
    assert now.keys() == expected.keys()
    for part in expected:
        assert alike(now[part], expected[part]), (
            f"{name}: {part}; if that is meant: python tests/golden/golden.py --write"
        )
