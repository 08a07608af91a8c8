"""What holds for one test: what its dream is to be like, and the gate for as long as it lasts.

Options come from the command line, pytest's ini, and the marks of the test. The closest mark wins, key by
key: function, class, module. Whether real tools may run is said on the command line or in the ini alone,
never by a mark, and a CI system (`CI` set) heeds the command line only.

The gate is in before the test, armed, and out again as if nothing had been. Between the runs of a test only
tools are held; while a run is on, the egress guard stands too.
"""

import asyncio
import re
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import thread as pools
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from dreamgym_kit.adapters.langgraph.intercept.install import install, installed, uninstall
from dreamgym_kit.adapters.pytest_plugin.plugin import MODELS, RecordMode, mode_of
from dreamgym_kit.canonical import digest
from dreamgym_kit.errors import RealCallBlocked, UnknownName, UserError
from dreamgym_kit.guard.thread_owners import of_pool
from dreamgym_kit.routing.process import PROCESS, holding, live_sessions
from dreamgym_kit.settings.buffer_url import Place, place_of
from dreamgym_kit.types import Environment

MARK_KEYS = ("cassette", "models", "buffer", "settings", "environment")
_SETTLE_S, _LOOK_S = 1.0, 0.01
_WORKER = getattr(pools, "_worker", None)


@dataclass(frozen=True, slots=True)
class DreamOptions:
    """How one test dreams.

    Attributes:
        test: its name in cassettes.
        folder: where the test is.
        cassette: the file of its tool calls.
        models: whose chat models are taped: "auto" (a provider's), "recorded" (all) or "live" (none).
        buffer: a buffer whose recordings and tool models answer what the cassette does not; None: none.
        settings: the `dreamgym.toml` that holds; None: the nearest one above the test.
    """

    test: str
    folder: Path
    cassette: Path
    mode: RecordMode
    models: str
    buffer: Place | bool | None
    settings: Path | None
    environment: Environment


def options_of(item: pytest.Item) -> DreamOptions:
    """What holds for one test.

    Raises:
        UserError: a mark says something that there is not.
    """
    marked = _marked(item)
    folder = item.path.parent
    models = str(marked.get("models", item.config.getini("dream_models")))
    if models not in MODELS:
        raise UserError(f"{item.nodeid}: models: '{models}' is none of {', '.join(MODELS)}")
    cassettes = folder / item.config.getini("dream_cassettes")
    named = marked.get("cassette")
    own = _file_name(item.nodeid.split("::", 1)[-1])
    path = cassettes / item.path.stem / f"{own}.jsonl" if named is None else _named(cassettes, named)
    settings = marked.get("settings")
    environment = marked.get("environment", Environment())
    return DreamOptions(
        test=f"{item.path.stem}.{own}",
        folder=folder,
        cassette=path,
        mode=RecordMode(mode_of(item.config)),
        models=models,
        buffer=_buffer(item, marked.get("buffer")),
        settings=folder / settings if settings is not None else None,
        environment=environment if isinstance(environment, Environment) else Environment(str(environment)),
    )


def _marked(item: pytest.Item) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for mark in item.iter_markers("dream"):  # the closest first
        if mark.args:
            raise UserError(f"{item.nodeid}: @pytest.mark.dream takes keywords only: {', '.join(MARK_KEYS)}")
        for name, value in mark.kwargs.items():
            if name not in MARK_KEYS:
                raise UnknownName(
                    "key", name, known=MARK_KEYS, source=item.nodeid, where="@pytest.mark.dream"
                )
            values.setdefault(name, value)
    return values


def _buffer(item: pytest.Item, buffer: Any) -> Place | bool | None:
    if buffer is None or isinstance(buffer, bool):
        return buffer
    return place_of(str(buffer), item.path.parent, source=f"{item.nodeid}: buffer")


def _named(cassettes: Path, name: object) -> Path:
    """A cassette that a mark names lies in the folder of cassettes, whatever the name is."""
    plain = Path(str(name))
    if not plain.name:
        raise UserError(f"cassette: '{name}' is no name; say one")
    if plain.is_absolute() or ".." in plain.parts:
        raise UserError(f"cassette: '{name}' lies outside {cassettes}; say a name")
    return cassettes / (plain if plain.suffix == ".jsonl" else plain.with_name(f"{plain.name}.jsonl"))


def _file_name(name: str) -> str:
    """A test's name as a file has it; told apart by a digest where that takes letters from it."""
    function, bracket, parameters = name.partition("[")
    plain = function.replace("::", ".") + bracket.replace("[", "-") + parameters.removesuffix("]")
    safe = re.sub(r"[^A-Za-z0-9_.-]+", "-", plain)[:100]
    return safe if safe == plain else f"{safe}-{digest(name)[:8]}"


class DreamWarning(UserWarning):
    """Something a person should know of a test's dream."""


_Failed: type[BaseException] = pytest.fail.Exception


class TestRealCallBlocked(RealCallBlocked, _Failed):  # type: ignore[misc,valid-type]
    """A refusal that pytest takes for a failure.

    Of other exceptions that are no `Exception` it leaves a teardown half done: the next test would then be
    given this one's `dream`, and find its own tools refused.
    """


class TasksBegun:
    """The tasks that a test's loops still have when it ends, and had not when its first run began."""

    def __init__(self) -> None:
        self._before: dict[asyncio.AbstractEventLoop, set[asyncio.Task[Any]]] = {}

    def note(self) -> None:
        """Hear that a run begins; notes the loop that runs here, if one does."""
        with suppress(RuntimeError):
            loop = asyncio.get_running_loop()
            self._before.setdefault(loop, asyncio.all_tasks(loop))

    def left(self) -> list[str]:
        """Names of those that may go on."""
        return sorted(
            task.get_name()
            for loop, before in self._before.items()
            if not loop.is_closed()
            for task in asyncio.all_tasks(loop) - before
        )


@contextmanager
def intercepting(*, armed: bool, tasks: TasksBegun) -> Iterator[None]:
    """Hold every tool of the process in the block.

    Args:
        armed: refuse calls that belong to no episode; False where this test records real ones.
        tasks: of the loops that the test's runs were on.

    Raises:
        RealCallBlocked: at the end, when an episode is still running.
    """
    before, was_installed = _at_work(), installed()
    refusal, PROCESS.refusal = PROCESS.refusal, TestRealCallBlocked
    install()
    try:
        with holding() if armed else nullcontext():
            yield
    finally:
        left = [*_left_running(before), *tasks.left()]
        PROCESS.refusal = refusal
        if any(not session.mode.bare for session in live_sessions()):
            raise RealCallBlocked("an episode is still running; end it before its test ends")
        if not (was_installed or left):
            uninstall()
    if left:
        names = ", ".join(f"'{name}'" for name in left)
        warnings.warn(
            f"threads or tasks begun in this test still run; tools that they call are refused: {names}",
            DreamWarning,
            stacklevel=2,
        )


def _at_work() -> set[threading.Thread]:
    """The threads that do something; idle ones of a pool do nothing by themselves."""
    frames = sys._current_frames()
    return {
        thread
        for thread in threading.enumerate()
        if not (of_pool(thread) and _waits_for_work(frames.get(thread.ident or 0)))
    }


def _waits_for_work(frame: FrameType | None) -> bool:
    """A pool's thread without work stands in its own loop with none in its hand, and none is on its way."""
    if frame is None:
        return True
    if frame.f_code is not getattr(_WORKER, "__code__", None):
        return False
    queue = frame.f_locals.get("work_queue")
    return frame.f_locals.get("work_item") is None and (queue is None or queue.empty())


def _left_running(before: set[threading.Thread]) -> list[str]:
    """Threads that were set to work since and do not end within a moment."""
    until = time.monotonic() + _SETTLE_S
    while since := _at_work() - before - {threading.current_thread()}:
        if time.monotonic() >= until:
            break
        time.sleep(_LOOK_S)
    return sorted(thread.name for thread in since)
