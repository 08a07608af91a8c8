"""Starts real vLLM servers for tests, through the kit's own code, from the program in $DREAMGYM_VLLM.

Tests of real servers lie in `served`, not in a folder `vllm`: this folder's parent is on the path, and
libraries that look whether a package of that name is there would find it.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest
from ports import own_port

from dreamgym_kit.adapters.models.endpoint import OpenAIEndpoint
from dreamgym_kit.adapters.models.remote import RemotePolicy, open_remote
from dreamgym_kit.adapters.models.vllm.launch import PLAIN, Launch, Role, VllmServer, find_program
from dreamgym_kit.recipes import nano
from dreamgym_kit.settings.load import parse_settings
from dreamgym_kit.settings.schema import PolicySettings, ServeSettings

KEY = "sk-served-canary-5f1d0c"
ENVIRON = {"VLLM_API_KEY": KEY}  # what a client's settings name as key_env
POLICY = Path(nano.__file__).parent / "weights" / "policy"
EXPERIENCE = Path(nano.__file__).parent / "weights" / "experience"
SMALL = ("--enforce-eager", "--dtype", "float32", "--max-num-seqs", "64")  # without, it compiles for minutes
_READY_S = 900.0  # half a minute on a quiet machine
PROGRAM = "DREAMGYM_VLLM"


def require_vllm() -> str:
    """The program's path; skips the test, with the reason, where there is none."""
    program = os.environ.get(PROGRAM, "")
    if not program:
        pytest.skip(os.environ.get(f"{PROGRAM}_WHY") or f"no vLLM: set ${PROGRAM} to the path of its program")
    return find_program(program)


def launched(
    role: Role,
    model: Path,
    *,
    name: str,
    dev: bool = True,
    wanted: ServeSettings = PLAIN,
    more: Sequence[str] = (),
) -> Launch:
    """How a test's server is started: small, on a port of its own, with a key."""
    return Launch(
        require_vllm(),
        str(model),
        name,
        role,
        port=own_port(),
        wanted=replace(wanted, dev=dev),
        more=(*SMALL, *more),
        key=KEY,
    )


@contextmanager
def started(launch: Launch, log: Path, environ: Mapping[str, str] | None = None) -> Iterator[VllmServer]:
    """A server that is ready; killed with its whole group at the end, whatever happened."""
    with _begun(launch, log, environ) as server:
        server.wait_ready(within_s=_READY_S)
        yield server


@contextmanager
def started_together(launches: Mapping[Path, Launch]) -> Iterator[list[VllmServer]]:
    """Servers by their logs, ready in the time of one."""
    with ExitStack() as stack:
        servers = [stack.enter_context(_begun(launch, log)) for log, launch in launches.items()]
        for server in servers:
            server.wait_ready(within_s=_READY_S)
        yield servers


@contextmanager
def _begun(launch: Launch, log: Path, environ: Mapping[str, str] | None = None) -> Iterator[VllmServer]:
    quiet = {"VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "1"}
    server = VllmServer(launch, log, environ={**os.environ, **quiet, **(environ or {})})
    try:
        yield server
    finally:
        server.kill()


@contextmanager
def remote(
    server: VllmServer,
    *more: VllmServer,
    timeout_s: float = 120.0,
    attempts: int = 1,
    environ: Mapping[str, str] = MappingProxyType(ENVIRON),
) -> Iterator[RemotePolicy]:
    """The kit's own client of one server, or of several replicas."""
    urls = tuple(f"{one.launch.url}/v1" for one in (server, *more))
    said = PolicySettings(model=server.launch.name, urls=urls, key_env="VLLM_API_KEY")
    opened = open_remote(said, source="test", environ=environ, timeout_s=timeout_s, attempts=attempts)
    with closing(opened):
        yield opened


@contextmanager
def endpoint(server: VllmServer, **settings: object) -> Iterator[OpenAIEndpoint]:
    """The kit's own client of a server as the dream's model."""
    from dreamgym_kit.adapters.models.named_models import open_endpoint

    more = "".join(f"{name} = {value}\n" for name, value in settings.items())
    said = parse_settings(
        f'[experience]\nurls = ["{server.launch.url}/v1"]\nmodel = "{server.launch.name}"\n'
        f'key_env = "VLLM_API_KEY"\n{more}'
    )
    opened = open_endpoint(said, environ=ENVIRON)
    assert opened is not None
    with closing(opened):
        yield opened
