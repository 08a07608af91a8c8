"""A chat-completions endpoint that answers from a script, for benches: run as a program, it prints its port.

It stands for a model server: the n-th answer of a conversation asks for the tool `look`, until `TOOL_CALLS`
of them were made; then it says "done". It runs in a process of its own, so that its CPU time is nobody's.
"""

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

TOOL_CALLS = 3
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_ANSWERED = re.compile(rb'"role": ?"assistant"')


def answer(turn: int) -> bytes:
    """The response to a request whose conversation holds `turn` answers already."""
    message: dict[str, object] = {"role": "assistant", "content": "done"}
    if turn < TOOL_CALLS:
        called = {"name": "look", "arguments": json.dumps({"item": turn + 1})}
        message = {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": f"call_{turn + 1}", "type": "function", "function": called}],
        }
    end = "tool_calls" if turn < TOOL_CALLS else "stop"
    body = json.dumps(
        {
            "id": f"chatcmpl-{turn}",
            "object": "chat.completion",
            "created": 1_700_000_000,
            "model": "double",
            "choices": [{"index": 0, "message": message, "finish_reason": end, "logprobs": None}],
            "usage": {
                "prompt_tokens": 40 + 20 * turn,
                "completion_tokens": 12,
                "total_tokens": 52 + 20 * turn,
            },
        }
    ).encode()
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


class EndpointDouble(asyncio.Protocol):
    """One connection: any number of requests, one after the other."""

    answers = tuple(answer(turn) for turn in range(TOOL_CALLS + 1))

    def __init__(self) -> None:
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (head := self._received.find(b"\r\n\r\n")) >= 0:
            length = _LENGTH.search(self._received, 0, head)
            end = head + 4 + (int(length[1]) if length else 0)
            if len(self._received) < end:
                return
            turn = len(_ANSWERED.findall(self._received, head, end))
            self._received = self._received[end:]
            assert isinstance(self._transport, asyncio.WriteTransport)
            self._transport.write(self.answers[min(turn, TOOL_CALLS)])


async def serve() -> None:
    """Answer until killed."""
    server = await asyncio.get_running_loop().create_server(EndpointDouble, "127.0.0.1", 0, backlog=512)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@contextmanager
def endpoint() -> Iterator[str]:
    """Give "host:port" of an endpoint that lives for the block."""
    with subprocess.Popen([sys.executable, __file__], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.kill()


if __name__ == "__main__":
    asyncio.run(serve())
