"""A trainer beside a dream writes as it likes; nothing of the agent's does because of it."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from shapes.stage import dream

from dreamgym_kit.adapters.langgraph.intercept.install import dreaming_process, install, uninstall
from dreamgym_kit.errors import RealCallBlocked
from dreamgym_kit.guard import egress
from dreamgym_kit.routing.process import entered
from dreamgym_kit.settings.schema import Settings


@pytest.fixture(autouse=True)
def gate() -> Iterator[None]:
    install()
    yield
    uninstall()


def in_thread(work: Any) -> BaseException | None:
    """What became of some work in a thread of its own."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return raised[0] if raised else None


def test_threads_that_a_trainer_starts_write_while_a_dream_is_guarded(tmp_path: Path) -> None:
    ready, ended = threading.Event(), threading.Event()

    def collect() -> None:
        async def collecting() -> None:
            with dreaming_process(Settings(), tmp_path / "scratch"):
                ready.set()
                await asyncio.to_thread(ended.wait)

        asyncio.run(collecting())

    rollouts = threading.Thread(target=collect)
    rollouts.start()
    try:
        ready.wait()
        with pytest.raises(RealCallBlocked):
            (tmp_path / "unasked").write_text("x")
        with egress.exempt(threads=True):
            (tmp_path / "checkpoint").write_text("x")
            assert in_thread(lambda: (tmp_path / "log").write_text("x")) is None
            assert in_thread(lambda: in_thread(lambda: (tmp_path / "deeper").write_text("x"))) is None
        with egress.exempt():
            assert isinstance(in_thread(lambda: (tmp_path / "unasked").write_text("x")), RealCallBlocked)
        assert isinstance(in_thread(lambda: (tmp_path / "unasked").write_text("x")), RealCallBlocked)
    finally:
        ended.set()
        rollouts.join()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint", "deeper", "log", "scratch"]


def test_a_dream_inside_of_an_exemption_is_guarded_all_the_same(tmp_path: Path) -> None:
    unasked = tmp_path / "unasked"

    async def dreaming() -> list[BaseException | None]:
        with dreaming_process(Settings(), tmp_path / "scratch"), entered(dream()):
            found = [in_thread(lambda: unasked.write_text("x"))]
            with ThreadPoolExecutor(1) as pool:
                found.append(pool.submit(unasked.write_text, "x").exception())
            with pytest.raises(RealCallBlocked) as refused:
                unasked.write_text("x")
            return [*found, refused.value]

    def begun() -> None:
        with egress.exempt(threads=True):
            came.extend(asyncio.run(dreaming()))

    came: list[BaseException | None] = []
    begun()
    with egress.exempt(threads=True):  # the loop itself in a thread that the exempt one starts
        assert in_thread(lambda: came.extend(asyncio.run(dreaming()))) is None
    assert [type(one) for one in came] == [RealCallBlocked] * 6
    assert not unasked.exists()


def test_a_pools_threads_are_not_exempt_for_whoever_uses_them_later(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        with egress.exempt(threads=True):
            pool.submit(int).result()

        async def dreaming() -> BaseException | None:
            with dreaming_process(Settings(), tmp_path / "scratch"):
                return await asyncio.to_thread(
                    lambda: pool.submit((tmp_path / "x").write_text, "x").exception()
                )

        assert isinstance(asyncio.run(dreaming()), RealCallBlocked)
