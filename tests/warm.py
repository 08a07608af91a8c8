"""A process that has the command line imported and runs each command in a copy of itself.

Importing takes two seconds, and the tests of the command line run some hundred commands. A copy has folder,
environment, arguments and files of its own, and ends as any process does. Tests whose subject is the start
of a process, or that send signals, start the installed command itself.
"""

import atexit
import functools
import importlib
import json
import os
import pkgutil
import runpy
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

LARGE = ("dreamgym_kit.adapters.langgraph.run.run", "dreamgym_kit.report.terminal")
TRAINERS = ("dreamgym_kit.adapters.langgraph.training.train", "dreamgym_kit.adapters.trainers", "trl")


class WarmCommand:
    """Asks the process; to be closed."""

    def __init__(self, environment: Mapping[str, str], *imports: str) -> None:
        command = [sys.executable, __file__, *imports]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def run(
        self,
        arguments: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        *,
        within_s: float = 300,
        program: Path | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command, or a program, to its end; `TimeoutExpired` where that does not come."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with tempfile.TemporaryDirectory() as files:
            out, err = Path(files, "out"), Path(files, "err")
            asked = {"arguments": list(arguments), "folder": str(folder), "environment": dict(environment)}
            asked |= {"out": str(out), "err": str(err), "within_s": within_s}
            asked |= {"program": program and str(program)}
            print(json.dumps(asked), file=self._process.stdin, flush=True)
            code = json.loads(self._process.stdout.readline())
            said = (file.read_text("utf-8") if file.exists() else "" for file in (out, err))
            if code is None:
                raise subprocess.TimeoutExpired(list(arguments), within_s, *said)
            return subprocess.CompletedProcess(list(arguments), code, *said)

    def close(self) -> None:
        with self._process:
            assert self._process.stdin is not None
            self._process.stdin.close()


@functools.cache
def shared(*imports: str) -> WarmCommand:
    """The one of this process that has these modules imported, too."""
    command = WarmCommand({**os.environ, "HF_HUB_OFFLINE": "1"}, *imports)  # read when it is imported
    atexit.register(command.close)
    return command


def run_command(
    *arguments: object, folder: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a command in this process's folder and environment, or in `folder` and with more variables."""
    return shared().run(list(map(str, arguments)), folder or Path.cwd(), {**os.environ, **variables})


def serve() -> None:
    """Run what each line of stdin asks for; a copy leaves by the exit of its command."""
    for line in sys.stdin:
        asked = json.loads(line)
        copy = os.fork()
        if not copy:
            become(asked)
        print(json.dumps(code_of(copy, asked["within_s"])), flush=True)


def become(asked: dict[str, Any]) -> None:
    os.setsid()
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    for descriptor, file in ((0, os.devnull), (1, asked["out"]), (2, asked["err"])):
        os.dup2(os.open(file, flags if descriptor else os.O_RDONLY), descriptor)
    sys.argv = [asked["program"] or "dreamgym-kit", *asked["arguments"]]
    if asked["program"]:
        sys.path[0] = str(Path(asked["program"]).parent)
        runpy.run_path(asked["program"], run_name="__main__")
    importlib.import_module("dreamgym_kit.cli.main").main()
    raise SystemExit(0)


def code_of(copy: int, within_s: float) -> int | None:
    """The exit code of a copy; None, and it is killed with all that it started, when its time is up."""
    ends = time.monotonic() + within_s
    while time.monotonic() < ends:
        ended, status = os.waitpid(copy, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    with suppress(ProcessLookupError):
        os.killpg(copy, signal.SIGKILL)
    os.waitpid(copy, 0)
    return None


if __name__ == "__main__":
    if not sys.flags.safe_path:
        sys.path[0] = str(Path(sys.executable).parent)  # as the installed command has it
    package = importlib.import_module("dreamgym_kit.cli")
    for module in pkgutil.walk_packages(package.__path__, "dreamgym_kit.cli."):
        importlib.import_module(module.name)
    for name in (*LARGE, *sys.argv[1:]):
        importlib.import_module(name)
    serve()
