"""The gate around a till, put in for one test and taken out after it."""

from collections.abc import Iterator

import pytest
from sim_to_real.till import Till

from dreamgym_kit.adapters.langgraph.intercept.install import install, uninstall


@pytest.fixture
def till() -> Iterator[Till]:
    """The till; the gate stands during the test, and is gone after it."""
    uninstall()  # with the hooks of graphs that an earlier test ran in this process
    install()
    yield Till()
    uninstall()
