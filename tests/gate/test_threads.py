"""What an episode left running touches nothing; a trainer beside a dream writes as it likes."""

import asyncio
import contextvars
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from shapes.stage import dream
from shapes.tools import add_tool
from waiting import PATIENCE_S, wait_until

from dreamgym_kit.adapters.langgraph.intercept.install import dreaming_process, watched_loading
from dreamgym_kit.errors import RealCallBlocked
from dreamgym_kit.guard import egress
from dreamgym_kit.routing.process import PROCESS, entered
from dreamgym_kit.routing.session import Session
from dreamgym_kit.settings.schema import Settings

pytestmark = pytest.mark.usefixtures("gate")


class Left:
    """Code that waits for the run to end, and then writes a file."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.now = threading.Event()
        self.refused: list[BaseException] = []

    def act(self) -> None:
        self.now.wait()
        try:
            self.file.write_text("real")
        except BaseException as error:
            self.refused.append(error)


@pytest.fixture
def left(tmp_path: Path) -> Iterator[Left]:
    made = Left(tmp_path / "touched")
    yield made
    made.now.set()


async def run_with(tmp_path: Path, act: Callable[[], None]) -> Session:
    """One guarded run of one episode that does `act`."""
    session = dream()
    with dreaming_process(Settings(), tmp_path / "scratch"), entered(session):
        act()
    return session


@pytest.mark.parametrize("kind", ["thread", "thread of a thread", "timer", "pool", "context"])
def test_what_outlives_its_episode_is_refused_after_the_run(kind: str, left: Left, tmp_path: Path) -> None:
    begun: list[threading.Thread] = []

    def start(make: Callable[[], threading.Thread]) -> None:
        begun.append(make())
        begun[-1].start()

    def act() -> None:
        if kind == "thread":
            start(lambda: threading.Thread(target=left.act))
        elif kind == "thread of a thread":
            start(lambda: threading.Thread(target=start, args=(lambda: threading.Thread(target=left.act),)))
            begun[0].join()
        elif kind == "timer":
            start(lambda: threading.Timer(0, left.act))
        elif kind == "pool":
            ThreadPoolExecutor(1).submit(left.act)
        else:
            context = contextvars.copy_context()
            begun.append(threading.Thread(target=context.run, args=(left.act,)))

    asyncio.run(run_with(tmp_path, act))
    if kind == "context":
        begun[-1].start()
    left.now.set()
    for thread in begun:
        thread.join()
    wait_until(lambda: left.refused or left.file.exists(), "what was left to act")
    assert [type(error) for error in left.refused] == [RealCallBlocked]
    assert not left.file.exists()
    assert any("touched" in stray for stray in PROCESS.strays)


def test_other_code_is_free_again_after_the_run(tmp_path: Path) -> None:
    asyncio.run(run_with(tmp_path, lambda: None))
    thread = threading.Thread(target=(tmp_path / "mine").write_text, args=("real",))
    thread.start()
    thread.join()
    assert (tmp_path / "mine").read_text() == "real"


def test_neither_a_later_dream_nor_a_look_at_a_graph_frees_what_was_left(left: Left, tmp_path: Path) -> None:
    threads: list[threading.Thread] = []

    def act() -> None:
        threads.append(threading.Thread(target=left.act))
        threads[0].start()

    asyncio.run(run_with(tmp_path, act))
    with watched_loading(Settings()):
        pass
    asyncio.run(run_with(tmp_path, lambda: None))
    left.now.set()
    threads[0].join()
    assert [type(error) for error in left.refused] == [RealCallBlocked]
    assert not left.file.exists()


async def test_a_thread_that_trips_ends_the_episode_that_began_it_and_no_other(tmp_path: Path) -> None:
    first, second, met = dream(), dream(), threading.Barrier(2)

    def trip() -> None:
        with pytest.raises(RealCallBlocked):
            (tmp_path / "touched").write_text("real")

    def episode(session: Session, work: Callable[[], None]) -> None:
        with entered(session):
            met.wait(PATIENCE_S)
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
            met.wait(PATIENCE_S)

    with dreaming_process(Settings(), tmp_path / "scratch"):
        episodes = ((first, trip), (second, lambda: None))
        await asyncio.gather(*(asyncio.to_thread(episode, *each) for each in episodes))
        assert len(egress.trips()) == 1
    assert (len(first.violations), second.violations) == (1, [])


def test_a_tool_refused_in_a_bare_thread_ends_the_episode_that_began_the_thread() -> None:
    session, said = dream(), []

    def call() -> None:
        try:
            add_tool().invoke({"a": 1, "b": 2})
        except RealCallBlocked as error:
            said.append(str(error))

    with entered(session):
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
        with pytest.raises(RealCallBlocked, match="after a refusal"):
            add_tool().invoke({"a": 1, "b": 2})
    assert session.violations == said
    assert len(said) == 1


async def test_a_late_trip_of_an_ended_episode_is_told_with_the_run(tmp_path: Path) -> None:
    first, second = dream(), dream()
    with dreaming_process(Settings(), tmp_path / "scratch"):
        with entered(first):
            late = contextvars.copy_context()
        with entered(second), pytest.raises(RealCallBlocked):
            late.run((tmp_path / "touched").write_text, "real")
        assert (first.violations, second.violations) == ([], [])
        assert len(PROCESS.strays) == 1


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
