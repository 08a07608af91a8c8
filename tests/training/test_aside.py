"""The loop in a thread of its own."""

import asyncio
import contextvars
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from dreamgym_kit.threads import BackgroundLoop

SEEN = contextvars.ContextVar("SEEN", default="outside")


async def seen() -> str:
    return SEEN.get()


def test_work_aside_does_not_inherit_what_its_caller_may_do() -> None:
    with BackgroundLoop() as aside:
        token = SEEN.set("exempt")
        try:
            assert aside.run(seen()) == "outside"
        finally:
            SEEN.reset(token)


def test_a_context_is_entered_and_left_in_one_task() -> None:
    tasks = []

    @asynccontextmanager
    async def scope() -> AsyncIterator[int]:
        tasks.append(asyncio.current_task())
        yield 7
        tasks.append(asyncio.current_task())

    with BackgroundLoop() as aside:
        with aside.keep_open(scope()) as value:
            assert value == 7
            assert aside.run(seen()) == "outside"
        assert tasks[0] is tasks[1] is not None


def test_what_opening_raises_reaches_the_caller() -> None:
    @asynccontextmanager
    async def broken() -> AsyncIterator[int]:
        raise ValueError("cannot be opened")
        yield 1

    with (
        BackgroundLoop() as aside,
        pytest.raises(ValueError, match="cannot be opened"),
        aside.keep_open(broken()),
    ):
        pass


def test_an_exit_in_somebodys_code_does_not_end_the_loop() -> None:
    async def leaves() -> None:
        sys.exit(3)

    with BackgroundLoop() as aside:
        future = aside.start(leaves())
        with pytest.raises(SystemExit):
            future.result(timeout=100)
        assert aside.run(seen()) == "outside"
