"""What tests of the benches share."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def bench(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A module of this folder, imported as the runner does it."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)  # its own processes look there too
    name = str(request.param)
    sys.modules.pop(name, None)
    yield importlib.import_module(name)
    sys.modules.pop(name, None)
