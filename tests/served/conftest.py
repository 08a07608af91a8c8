"""One real server per role for all tests of this folder; started when the first test asks for it."""

from collections.abc import Iterator

import pytest
from served.starter import EXPERIENCE, POLICY, launched, started

from dreamgym_kit.adapters.models.vllm.launch import Role, VllmServer
from dreamgym_kit.settings.schema import ServeSettings


@pytest.fixture(scope="session")
def policy_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServer]:
    """The shipped nano policy, with everything open that its role can have; leave it as you found it."""
    launch = launched(Role.POLICY, POLICY, name="nano", wanted=ServeSettings(scale_out=True, lora_rank=8))
    with started(launch, tmp_path_factory.mktemp("policy") / "server.log") as server:
        yield server


@pytest.fixture(scope="session")
def experience_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServer]:
    """The shipped nano experience model; leave it as you found it."""
    launch = launched(Role.EXPERIENCE, EXPERIENCE, name="experience", dev=False)
    with started(launch, tmp_path_factory.mktemp("experience") / "server.log") as server:
        yield server
