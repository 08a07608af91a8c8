"""Lets tests and benches import what many of them share; and no test leaves its dream to the next one.

Shared are `shapes`, the ways in which people build agents, and the doubles that lie in this folder.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

# No unit test asserts a time: a machine that is busy makes an example slow, not wrong. The rest stays as it
# is by default, which is without chance where CI is set.
hypothesis.settings.register_profile(
    "suite", hypothesis.settings(), deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("suite")
sys.path.insert(0, str(Path(__file__).parent))

OpenBuffer = Callable[..., Any]


@pytest.fixture(scope="module")
def doubled_weaviate() -> Iterator[OpenBuffer]:
    """Opens buffers by name on a double of Weaviate that the module has for itself."""
    import weaviate_buffers
    from weaviate_double import WeaviateDouble

    with (
        WeaviateDouble() as double,
        weaviate_buffers.on_server(weaviate_buffers.server_of(double.address)) as open_buffer,
    ):
        yield open_buffer


@pytest.fixture(scope="module")
def live_weaviate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenBuffer]:
    """Opens buffers by name on a live Weaviate; skips, with the reason, where there is none."""
    import weaviate_buffers

    folder = tmp_path_factory.mktemp("weaviate")
    with weaviate_buffers.live_server(folder) as make, weaviate_buffers.on_server(make) as open_buffer:
        yield open_buffer


@pytest.fixture(autouse=True)
def _awake_afterwards() -> Iterator[None]:
    """A process that has dreamt stays armed: real tools of the next test in it would be refused."""
    yield
    registry = sys.modules.get("dreamgym_kit.gate.registry")
    if registry is not None and registry.PROCESS.armed:
        registry.wake()


@pytest.fixture(scope="session")
def ray_of_two() -> Iterator[None]:
    """A real Ray cluster with room for two workers, of this process's own; whoever asks for Ray uses it."""
    pytest.importorskip("ray", reason="the extra `ray` is not installed")
    from dreamgym_kit.adapters.engines.ray_cluster import ray_cluster

    with ray_cluster(None, 2):
        yield
