"""A refusal names the agent's function that can be answered instead; hosts that are allowed are counted."""

import asyncio
import gc
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, contextmanager
from contextvars import Context
from pathlib import Path
from typing import Any

import pytest
from shapes.stage import ScriptedExperienceDouble

from dreamgym_kit.adapters.langgraph.intercept.install import dreaming_process, uninstall
from dreamgym_kit.adapters.langgraph.run.api import live_policy
from dreamgym_kit.errors import RealCallBlocked
from dreamgym_kit.guard import egress, thread_owners
from dreamgym_kit.routing.process import entered
from dreamgym_kit.routing.router import Mode
from dreamgym_kit.routing.session import Session
from dreamgym_kit.settings.load import parse_settings

pytestmark = [  # a refused connection leaves its socket, and ends its thread
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
]


@pytest.fixture
def port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


@pytest.fixture(autouse=True)
def no_socket_is_left() -> Iterator[None]:
    """What a refusal left open is closed here, and not in whatever test comes next."""
    yield
    gc.collect()


@contextmanager
def dreaming(folder: Path, settings: str = "") -> Iterator[Session]:
    """An episode in a guarded process."""
    with ExitStack() as stack:
        stack.callback(uninstall)
        parsed = parse_settings(settings)
        stack.enter_context(dreaming_process(parsed, folder / "scratch"))
        session = Session(live_policy(Mode.DREAM, parsed), experience=ScriptedExperienceDouble())
        stack.enter_context(entered(session))
        yield session


def connect_here(port: int) -> None:
    socket.create_connection(("127.0.0.1", port)).close()


def in_a_thread(port: int) -> None:
    thread = threading.Thread(target=socket.create_connection, args=(("127.0.0.1", port),))
    thread.start()
    thread.join()


def in_a_pool(port: int) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(socket.create_connection, ("127.0.0.1", port)).exception()


async def in_a_task(port: int) -> None:
    await asyncio.gather(asyncio.open_connection("127.0.0.1", port), return_exceptions=True)


WAYS: dict[str, Callable[[int], Any]] = {
    "connect_here": connect_here,
    "in_a_thread": in_a_thread,
    "in_a_pool": in_a_pool,
    "in_a_task": in_a_task,
}


@pytest.mark.parametrize("name", WAYS)
def test_the_function_is_named_before_the_host(name: str, port: int, tmp_path: Path) -> None:
    async def run() -> None:
        with dreaming(tmp_path) as session:
            try:
                done = WAYS[name](port)
                if done is not None:
                    await done
            except RealCallBlocked:
                pass
            violations.extend(session.violations)

    violations: list[str] = []
    asyncio.run(run())
    (why,) = violations
    first, _, second = why.partition("; or ")
    assert f'[functions."{__name__}:{name}"] effect = "write" (a dream answers its calls' in first
    assert f'[guard] allow_hosts = ["127.0.0.1:{port}"] (it is really reached' in second


def test_a_models_host_is_let_through_and_not_counted(
    port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(egress, "_models", set())
    egress.models_at([f"127.0.0.1:{port}"])

    async def run() -> None:
        with dreaming(tmp_path), pytest.raises(RealCallBlocked) as refused:
            connect_here(port)
        assert str(refused.value).endswith("(the model is really asked, in every dream)")
        assert "[functions" not in str(refused.value)
        with dreaming(tmp_path, f'[guard]\nallow_hosts = ["127.0.0.1:{port}"]\n') as session:
            connect_here(port)
        assert (session.violations, session.counts) == ([], {})

    asyncio.run(run())


def test_an_allowed_host_counts_once_an_episode_and_outside_of_episodes(
    port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(egress._addresses, "localhost", {"127.0.0.1"})  # of an earlier dream

    async def run() -> None:
        with dreaming(tmp_path, f'[guard]\nallow_hosts = ["127.0.0.1:{port}"]\n') as session:
            connect_here(port)
            connect_here(port)
            assert session.counts == {f"reached 127.0.0.1:{port}": 1}
            assert egress.reached_outside() == []
            Context().run(connect_here, port)  # no episode's
            assert egress.reached_outside() == [f"127.0.0.1:{port}"]

    asyncio.run(run())


def test_a_function_that_waits_within_an_async_generator_is_named_for_a_librarys_task() -> None:
    found: list[thread_owners.Caller] = []
    library: dict[str, Any] = {"found": found, "caller": thread_owners.caller}
    exec(compile("async def task(): found.append(caller(None))", "<library>", "exec"), library)

    @asynccontextmanager
    async def loaded() -> AsyncIterator[None]:
        await graph()
        yield

    async def graph() -> None:
        await asyncio.create_task(library["task"]())

    asyncio.run(loaded().__aenter__())
    assert found[0].line.endswith(" in graph")
