"""What runs in a Ray worker: the kit's own worker (`rollout.working`), asked and answering in bytes.

Ray runs an async actor on its own loop, uvloop's where that is installed, and makes uvloop the choice of the
whole process: connections made on such a loop cannot be guarded. So the choice is taken back, and the worker
has a loop and a thread of its own, one for the life of the process. Ray's loop only passes messages on, and
so says that the worker is there also while a tool blocks.

A driver is no actor, so it cannot be called: it waits in `questions` for what the worker asks it. A question
that nobody answers fails after a while: a worker that lost its driver comes to an end.
"""

import asyncio
import itertools
import os
import socket
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dreamgym_kit.gate.connections import claim_open
from dreamgym_kit.rollout.wire import read, spelled
from dreamgym_kit.rollout.working import Working

_ANSWER_S = 60.0
_OPEN = b'{"do":"open"'


@dataclass(frozen=True, slots=True)
class DriverPlace:
    """Where the driver runs, for a worker that is to find what the driver finds. Holds no secret.

    Attributes:
        folder: its working directory.
        variables: names of the environment variables that hold its secrets; never what they hold.
        same_machine: the worker has the driver's files and variables for sure.
    """

    folder: str
    variables: tuple[str, ...]
    same_machine: bool


class RayActor:
    """The actor; Ray makes it in a worker, on whichever machine. Its methods raise only when cancelled."""

    def __init__(self, driver: DriverPlace) -> None:
        asyncio.set_event_loop_policy(None)
        self._driver = driver
        self._where = f"process {os.getpid()} on {socket.gethostname()}"
        self._loop: asyncio.AbstractEventLoop | None = None  # Ray's, too
        self._asked: asyncio.Queue[tuple[int, bytes]] = asyncio.Queue()
        self._open: dict[int, Future[bytes]] = {}
        self._numbers = itertools.count(1)
        self._working = Working(self._ask)
        threading.Thread(target=self._working.run, name="dreamgym-worker", daemon=True).start()

    async def ready(self) -> tuple[int, str]:
        """Say which process the worker is, and on which machine."""
        self._loop = asyncio.get_running_loop()
        return os.getpid(), socket.gethostname()

    async def submit(self, request: bytes) -> bytes:
        """Have a request answered; cancelling the call cancels what answers it."""
        opens = request.startswith(_OPEN)
        if opens:
            claim_open()  # Ray's
            request = self._found_here(request)
        answer = await asyncio.wrap_future(self._working.submit(request))
        return self._told_from_here(answer) if opens else answer

    async def questions(self) -> list[tuple[int, bytes]]:
        """Wait for what the worker has to ask its driver, and give all of it; with the numbers of `told`."""
        asked = [await self._asked.get()]
        while not self._asked.empty():
            asked.append(self._asked.get_nowait())
        return asked

    async def told(self, answers: Mapping[int, bytes]) -> None:
        """Take the driver's answers."""
        for number, answer in answers.items():
            waiting = self._open.pop(number, None)
            if waiting is not None:
                waiting.set_result(answer)

    def _ask(self, question: bytes) -> bytes:
        """Put a question to the driver; from any thread but Ray's."""
        assert self._loop is not None
        number, waiting = next(self._numbers), Future[bytes]()
        self._open[number] = waiting
        self._loop.call_soon_threadsafe(self._asked.put_nowait, (number, question))
        try:
            return waiting.result(_ANSWER_S)
        except TimeoutError:
            self._open.pop(number, None)
            raise ConnectionError(f"the driver has not answered for {_ANSWER_S:g} s") from None

    def _found_here(self, request: bytes) -> bytes:
        """Look for files and modules where the driver does, as far as those places are here, too."""
        if Path(self._driver.folder).is_dir():
            os.chdir(self._driver.folder)
        asked = read(request)
        theirs = [path for path in asked["spec"]["paths"] if Path(path).exists()]
        sys.path[:] = dict.fromkeys([*theirs, *sys.path])
        return spelled({**asked, "spec": {**asked["spec"], "paths": []}})

    def _told_from_here(self, answer: bytes) -> bytes:
        """What may be otherwise on another machine is told with its name."""
        facts: dict[str, Any] = read(answer)
        if self._driver.same_machine:
            return spelled(facts)
        missing = [name for name in self._driver.variables if name not in os.environ]
        lacks = f"{self._where}: not set there, and set here: {', '.join(missing)}" if missing else ""
        if "error" in facts:
            told = (
                facts["error"],
                f"in a worker, {self._where}. It imports the agent itself: on every machine of the cluster",
                f"its code and files have to lie at the same path ({self._driver.folder}).",
                lacks,
            )
            facts["error"] = "\n  ".join(line for line in told if line)
        elif lacks:
            facts["warnings"].append(lacks)
        return spelled(facts)
