"""Options of one test's dream, and the interceptor for the test's duration.

Options come from the command line, pytest's ini, and the test's marks. For each key the closest mark wins:
function, class, module. Only the command line and the ini can allow real tools, never a mark; in CI (`CI`
set) only the command line can.

The interceptor is installed before the test and removed after it. Between the runs of a test only tools are
blocked; during a run the egress guard is active too.
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
    """Options of one test's dream.

    Attributes:
        test: its name in cassettes.
        folder: directory of the test.
        cassette: file of its tool calls.
        models: chat models to record and replay: "auto" (of providers), "recorded" (all) or "live" (none).
        buffer: buffer that answers calls missing from the cassette; None: no buffer.
        settings: the `dreamgym.toml` to use; None: the nearest one above the test.
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
    """Give the options of one test.

    Raises:
        UserError: a mark has an unknown key or value.
    """
    marked = _marked(item)
    folder = item.path.parent
    models = str(marked.get("models", item.config.getini("dream_models")))
    if models not in MODELS:
        raise UserError(f"{item.nodeid}: models: '{models}' is unknown. Use one of {', '.join(MODELS)}.")
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
            raise UserError(
                f"{item.nodeid}: @pytest.mark.dream takes only keyword arguments: {', '.join(MARK_KEYS)}"
            )
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
    """Give the path of a cassette that a mark names; it is always inside the cassette directory."""
    plain = Path(str(name))
    if not plain.name:
        raise UserError(f"cassette: '{name}' is not a file name. Name a file, such as refunds.jsonl.")
    if plain.is_absolute() or ".." in plain.parts:
        raise UserError(f"cassette: '{name}' is outside {cassettes}. Use a path inside it.")
    return cassettes / (plain if plain.suffix == ".jsonl" else plain.with_name(f"{plain.name}.jsonl"))


def _file_name(name: str) -> str:
    """Make a file name from a test's name; adds a digest if characters had to be replaced."""
    function, bracket, parameters = name.partition("[")
    plain = function.replace("::", ".") + bracket.replace("[", "-") + parameters.removesuffix("]")
    safe = re.sub(r"[^A-Za-z0-9_.-]+", "-", plain)[:100]
    return safe if safe == plain else f"{safe}-{digest(name)[:8]}"


class DreamWarning(UserWarning):
    """A problem in a test's dream that does not fail the test."""


_Failed: type[BaseException] = pytest.fail.Exception


class TestRealCallBlocked(RealCallBlocked, _Failed):  # type: ignore[misc,valid-type]
    """A blocked call that pytest reports as a failure.

    With other exceptions outside `Exception`, pytest leaves the teardown unfinished: the next test would get
    this test's `dream`, and its own tools would be blocked.
    """


class TasksBegun:
    """Tasks that a test started on its event loops and that still run when it ends."""

    def __init__(self) -> None:
        self._before: dict[asyncio.AbstractEventLoop, set[asyncio.Task[Any]]] = {}

    def note(self) -> None:
        """Note the tasks of the current event loop, if there is one, when a run begins."""
        with suppress(RuntimeError):
            loop = asyncio.get_running_loop()
            self._before.setdefault(loop, asyncio.all_tasks(loop))

    def left(self) -> list[str]:
        """Give the names of tasks that may still run."""
        return sorted(
            task.get_name()
            for loop, before in self._before.items()
            if not loop.is_closed()
            for task in asyncio.all_tasks(loop) - before
        )


@contextmanager
def intercepting(*, armed: bool, tasks: TasksBegun) -> Iterator[None]:
    """Intercept every tool of the process inside the block.

    Args:
        armed: block calls outside an episode; False if this test records real calls.
        tasks: tasks on the event loops of the test's runs.

    Raises:
        RealCallBlocked: at the end, if an episode is still running.
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
            f"threads or tasks started by this test still run; their tool calls are blocked: {names}",
            DreamWarning,
            stacklevel=2,
        )


def _at_work() -> set[threading.Thread]:
    """Give the busy threads; idle threads of a pool are left out."""
    frames = sys._current_frames()
    return {
        thread
        for thread in threading.enumerate()
        if not (of_pool(thread) and _waits_for_work(frames.get(thread.ident or 0)))
    }


def _waits_for_work(frame: FrameType | None) -> bool:
    """Say whether a pool's thread is idle: in its worker loop, without a work item, its queue empty."""
    if frame is None:
        return True
    if frame.f_code is not getattr(_WORKER, "__code__", None):
        return False
    queue = frame.f_locals.get("work_queue")
    return frame.f_locals.get("work_item") is None and (queue is None or queue.empty())


def _left_running(before: set[threading.Thread]) -> list[str]:
    """Give the names of threads that became busy since and stay busy for a second."""
    until = time.monotonic() + _SETTLE_S
    while since := _at_work() - before - {threading.current_thread()}:
        if time.monotonic() >= until:
            break
        time.sleep(_LOOK_S)
    return sorted(thread.name for thread in since)
