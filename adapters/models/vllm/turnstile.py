"""Requests and changes of weights pass one at a time: many requests together, or one change alone."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turnstile:
    """Counts who is under way. All of it is used on one event loop."""

    def __init__(self) -> None:
        self._changed = asyncio.Condition()
        self._under_way = 0
        self._shut = False

    @asynccontextmanager
    async def request(self) -> AsyncIterator[None]:
        """In the block, one of many requests is under way; it waits while somebody is alone."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self._shut)
            self._under_way += 1
        try:
            yield
        finally:
            async with self._changed:
                self._under_way -= 1
                self._changed.notify_all()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Keep new requests out, wait for those under way, and have the block to itself."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self._shut)
            self._shut = True
        try:
            async with self._changed:
                await self._changed.wait_for(lambda: not self._under_way)
            yield
        finally:
            async with self._changed:
                self._shut = False
                self._changed.notify_all()
