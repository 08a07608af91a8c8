"""A chat-completions server that fails in every way of bar R4, by name or by a seeded share of requests.

It stands for a model server in trouble. It runs on a thread and loop of its own and keeps what it was sent.
"""

import asyncio
import json
import random
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

WAYS = (
    *("401", "404", "429", "500", "hang", "reset", "truncated", "wrong_schema", "not_a_completion"),
    *("huge", "huge_chunked", "drip", "redirect", "abort"),
)
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_MEGABYTE = b"x" * 2**20


def completion(content: str, finish: str = "stop") -> dict[str, object]:
    """The body of a good answer."""
    message = {"role": "assistant", "content": content}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "double",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
    }


@dataclass
class FaultyEndpointDouble:
    """What the server says, and what it heard.

    Attributes:
        content: the text of a good answer to a request body.
        way: which way the n-th request fails; None answers well.
        redirect_to: where the way "redirect" points.
    """

    content: Callable[[dict], str] = lambda body: "ready"
    way: Callable[[int], str | None] = lambda number: None
    refuse: Callable[[dict], str | None] = lambda body: None  # the words of a 400, or None
    redirect_to: str = "http://169.254.169.254/latest/meta-data"
    retry_after: str = "0"
    requests: list[dict] = field(default_factory=list)
    heads: list[bytes] = field(default_factory=list)
    url: str = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                found = _LENGTH.search(head)
                body = json.loads(await reader.readexactly(int(found[1]) if found else 0))
                self.requests.append(body)
                self.heads.append(head)
                if not await self._answer(len(self.requests), body, writer):
                    break
        writer.transport.abort()

    async def _answer(self, number: int, body: dict, writer: asyncio.StreamWriter) -> bool:
        refused = self.refuse(body)
        if refused is not None:
            return await _send(writer, 400, {"error": {"message": refused, "type": "BadRequestError"}})
        way = self.way(number)
        good = completion(self.content(body))
        match way:
            case None:
                return await _send(writer, 200, good)
            case "401":
                return await _send(writer, 401, {"error": "Unauthorized"})
            case "404":
                return await _send(writer, 404, {"error": {"message": "no such model", "code": 404}})
            case "429":
                return await _send(writer, 429, {"detail": "slow down"}, f"retry-after: {self.retry_after}")
            case "500":
                return await _send(writer, 500, {"error": {"message": "EngineCore encountered an issue"}})
            case "redirect":
                return await _send(writer, 302, {}, f"location: {self.redirect_to}")
            case "abort":
                return await _send(writer, 200, completion("half", "abort"))
            case "wrong_schema":
                return await _send(writer, 200, completion('{"foo": [1, 2]}'))
            case "not_a_completion":
                return await _send(writer, 200, {"choices": "none", "usage": [1]})
            case "hang":
                await asyncio.sleep(3600)
            case _:
                await self._spoil(way, json.dumps(good).encode(), writer)
        return False

    async def _spoil(self, way: str, whole: bytes, writer: asyncio.StreamWriter) -> None:
        """Begin well and end badly."""
        if way == "truncated":  # whole as HTTP, cut as JSON
            cut = whole[: len(whole) // 2]
            writer.write(_head(200, f"content-length: {len(cut)}") + cut)
        elif way == "reset":  # gone in the middle of the body
            writer.write(_head(200, f"content-length: {len(whole)}") + whole[: len(whole) // 2])
        elif way == "huge":
            writer.write(_head(200, f"content-length: {100 * 2**20}"))
        else:
            writer.write(_head(200, "transfer-encoding: chunked"))
        await writer.drain()
        if way == "drip":
            for byte in whole:
                writer.write(b"1\r\n" + bytes([byte]) + b"\r\n")
                await writer.drain()
                await asyncio.sleep(0.2)
        for _ in range(100 if way.startswith("huge") else 0):
            writer.write(_MEGABYTE if way == "huge" else b"100000\r\n" + _MEGABYTE + b"\r\n")
            await writer.drain()


def _head(status: int, *lines: str) -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status} x", "content-type: application/json", *lines, "", ""]).encode()


async def _send(writer: asyncio.StreamWriter, status: int, body: dict, *lines: str) -> bool:
    raw = json.dumps(body).encode()
    writer.write(_head(status, f"content-length: {len(raw)}", *lines) + raw)
    await writer.drain()
    return True


def failing_share(share: float, seed: int, ways: tuple[str, ...] = WAYS) -> Callable[[int], str | None]:
    """Let this share of all requests fail, each way as often as the others."""
    drawn = random.Random(seed)
    return lambda number: drawn.choice(ways) if drawn.random() < share else None


@contextmanager
def serving(double: FaultyEndpointDouble) -> Iterator[FaultyEndpointDouble]:
    """Serve on loopback for the block; `double.url` is the base URL."""
    loop, ready = asyncio.new_event_loop(), threading.Event()

    async def start() -> asyncio.Server:
        server = await asyncio.start_server(double.serve, "127.0.0.1", 0, backlog=512)
        double.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        return server

    def work() -> None:
        asyncio.set_event_loop(loop)
        server = loop.run_until_complete(start())
        ready.set()
        loop.run_forever()
        server.close()
        for task in (tasks := asyncio.all_tasks(loop)):
            task.cancel()
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.close()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert ready.wait(60)
    try:
        yield double
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(60)
