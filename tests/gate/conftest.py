"""The gate put in for one test and taken out after it, and a canary for its bodies."""

from collections.abc import Iterator

import pytest
from shapes.canary import Canary, canary_in

from dreamgym_kit.adapters.langgraph.intercept.install import install, uninstall


@pytest.fixture
def gate() -> Iterator[None]:
    """The gate stands during the test; the process is awake and the classes are as before after it."""
    uninstall()  # with the hooks of graphs that an earlier test ran in this process
    install()
    yield
    uninstall()


@pytest.fixture(scope="session")
def aviary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Canary]:
    """One canary for all tests: a listening thread each would cost more than the tests."""
    with canary_in(tmp_path_factory.mktemp("canary")) as here:
        yield here


@pytest.fixture
def canary(aviary: Canary) -> Canary:
    """Where real bodies leave their traces; empty when the test begins."""
    aviary.clear()
    return aviary
