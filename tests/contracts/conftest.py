"""What the contract suites need of the machine."""

import pytest


@pytest.fixture(autouse=True)
def _cluster(request: pytest.FixtureRequest) -> None:
    """The engine `ray` runs in the one cluster of the session."""
    if request.node.get_closest_marker("ray") is not None:
        request.getfixturevalue("ray_of_two")
