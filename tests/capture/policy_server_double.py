"""A policy server that says what a test tells it, with a token for each letter: nothing is sampled.

Prompts are spelled as a chat template would, an answer exactly as it will stand in the next prompt, so
that what goes on in one sample and what forks can be seen in the ids.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from dreamgym_kit.chat import ChatMessage, ChatReply, ChatRequest, SampledTokens, ToolRequest

END = 0  # the token that ends an answer


def calls(*wanted: tuple[str, str]) -> ChatReply:
    """An answer that calls tools: (name, arguments as JSON text) each."""
    requests = tuple(
        ToolRequest(name, args, f"server-{number}") for number, (name, args) in enumerate(wanted)
    )
    return ChatReply("", finish_reason="tool_calls", tool_calls=requests)


def says(text: str, finish: str = "stop") -> ChatReply:
    """An answer in words."""
    return ChatReply(text, finish_reason=finish)


class PolicyServerDouble:
    """Answers by a function of the request; implements `interfaces.PolicyServer`."""

    def __init__(
        self,
        answer: Callable[[ChatRequest], ChatReply],
        *,
        wait_s: Callable[[ChatRequest], float] | None = None,
    ) -> None:
        self.asked: list[ChatRequest] = []
        self.threads: set[int] = set()
        self.version = "w0"
        self.live: list[str] = []
        self.change: Callable[[ChatReply], ChatReply] = lambda reply: reply
        self._answer, self._wait_s = answer, wait_s
        self._lock = threading.Lock()

    async def chat(self, request: ChatRequest) -> ChatReply:
        with self._lock:
            self.asked.append(request)
            self.threads.add(threading.get_ident())
        version = self.version
        await asyncio.sleep(self._wait_s(request) if self._wait_s else 0)
        said = self._answer(request)
        prompt, answer = spelled(request.messages), [*map(ord, body(said.content, said.tool_calls)), END]
        tokens = SampledTokens(
            tuple(prompt), tuple(answer), tuple(-0.01 * (1 + one % 7) for one in answer), version
        )
        reply = replace(
            said, tokens=tokens, prompt_tokens=len(prompt), completion_tokens=len(answer), model="double"
        )
        return self.change(reply)

    async def load(self, weights: Path, version: str) -> None:
        self.version = version

    async def score(self, ids: Sequence[Sequence[int]]) -> list[list[float]]:
        return [[-1.0] * (len(row) - 1) for row in ids]

    @asynccontextmanager
    async def episode(self, key: str) -> AsyncIterator[None]:
        self.live.append(key)
        try:
            yield
        finally:
            self.live.remove(key)


def turn_number(request: ChatRequest) -> int:
    """How often the assistant spoke before."""
    return sum(message.role == "assistant" for message in request.messages)


def scripted(*script: ChatReply) -> Callable[[ChatRequest], ChatReply]:
    """Say `script[n]` where the assistant spoke n times before; the last repeats."""
    return lambda request: script[min(turn_number(request), len(script) - 1)]


def spelled(messages: Sequence[ChatMessage]) -> list[int]:
    """A prompt: each message as it is, marked; an assistant's as it was sampled."""
    ids: list[int] = []
    for message in messages:
        ids += map(ord, f"<{message.role}>")
        text = body(message.content, message.tool_calls)
        ids += [*map(ord, text), END] if message.role == "assistant" else map(ord, text)
    return [*ids, *map(ord, "<assistant>")]


def body(content: str, wanted: Sequence[ToolRequest]) -> str:
    """What an assistant says, calls among it."""
    return content + "".join(f"[{call.name} {call.args}]" for call in wanted)


def said_in(ids: Sequence[int]) -> str:
    """Sampled ids as text."""
    return "".join(chr(one) for one in ids if one != END)


def any_of(requests: Sequence[ChatRequest], **wanted: Any) -> bool:
    """Whether some request has all these values."""
    return any(all(getattr(one, key) == value for key, value in wanted.items()) for one in requests)
