"""`dreamgym-kit serve` as a person types it, running on a real vLLM until the test ends."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
from ports import own_port
from served.patience import look
from served.starter import SMALL, require_vllm

from dreamgym_kit.adapters.models.vllm.metrics import read_under_way
from dreamgym_kit.adapters.models.vllm.server import UNDER_WAY

_READY_S = 900


@dataclass(frozen=True, slots=True)
class Served:
    """The command, running."""

    process: subprocess.Popen
    port: int
    folder: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def group(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    @property
    def told(self) -> str:
        return (self.folder / "told").read_text()

    @property
    def key(self) -> str:
        """The one that it drew."""
        (file,) = (self.folder / "dreamgym-kit").glob("*.key")
        assert file.stat().st_mode & 0o077 == 0
        return file.read_text()


@contextmanager
def held(served: Served) -> Iterator[None]:
    """Its engine stands still in the block: what is asked stays under way, however fast the machine is."""
    (engine,) = (one for one in served.group if "EngineCore" in _title(one))
    engine.suspend()
    try:
        yield
    finally:
        with suppress(psutil.NoSuchProcess):
            engine.resume()


def _title(process: psutil.Process) -> str:
    return " ".join([process.name(), *process.cmdline()])


async def under_way(served: Served, requests: int) -> None:
    """Wait until so many are let in."""
    until = time.monotonic() + 120
    while True:
        seen = await asyncio.to_thread(look, served.url, UNDER_WAY, key=served.key)
        if (read_under_way(seen.text) or 0) >= requests:
            return
        assert time.monotonic() < until
        await asyncio.sleep(0.05)


@contextmanager
def command(role: str, model: Path, folder: Path, *options: str, **environ: str) -> Iterator[Served]:
    """`serve ROLE`, ready, without any key set."""
    program, port = require_vllm(), own_port()
    line = [sys.executable, "-m", "dreamgym_kit.cli.main", "serve", role, "--model", str(model)]
    line += ["--name", "nano", "--vllm", program, "--port", str(port), *options, "--", *SMALL]
    environment = {**os.environ, "XDG_STATE_HOME": str(folder), "OMP_NUM_THREADS": "1"}
    environment |= {"VLLM_CPU_KVCACHE_SPACE": "1"} | environ
    environment.pop("VLLM_API_KEY", None)
    with (folder / "told").open("w") as told:
        process = subprocess.Popen(line, env=environment, stdout=told, stderr=told)
    served = Served(process, port, folder)
    try:
        until = time.monotonic() + _READY_S
        while "ready:" not in served.told:
            assert process.poll() is None, served.told
            assert time.monotonic() < until
            time.sleep(0.5)
        yield served
    finally:
        left = served.group if process.poll() is None else []
        for one in [*left, process]:
            one.kill()
        process.wait()
