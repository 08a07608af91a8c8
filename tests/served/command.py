"""`dreamgym-kit serve` as a person types it, running on a real vLLM until the test ends."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
from ports import own_port
from served.patience import look
from served.starter import SMALL, require_vllm
from training.real_parts import hears_ctrl_c
from waiting import wait_until

from dreamgym_kit.adapters.models.vllm.launch import UNDER_WAY
from dreamgym_kit.adapters.models.vllm.looking import read_under_way

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


def under_way(served: Served) -> int:
    """How many requests it has let in and not answered."""
    return read_under_way(look(served.url, UNDER_WAY, key=served.key).text) or 0


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
        process = subprocess.Popen(line, env=environment, stdout=told, stderr=told, preexec_fn=hears_ctrl_c)
    served = Served(process, port, folder)
    try:
        wait_until(
            lambda: "ready:" in served.told or process.poll() is not None, "the server", within_s=_READY_S
        )
        assert process.poll() is None, served.told
        yield served
    finally:
        left = served.group if process.poll() is None else []
        for one in [*left, process]:
            one.kill()
        process.wait()


@contextmanager
def commands(
    role: str, model: Path, folder: Path, *options: str, **environ: str
) -> Iterator[Callable[[], Served]]:
    """Gives the `command` that runs, which is another one where a test has ended the last."""
    with ExitStack() as stack:
        begun: list[Served] = []

        def running() -> Served:
            if not begun or begun[-1].process.poll() is not None:
                place = folder / str(len(begun))
                place.mkdir()
                begun.append(stack.enter_context(command(role, model, place, *options, **environ)))
            return begun[-1]

        yield running
