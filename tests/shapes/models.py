"""Chat model doubles: they say what a script tells them, turn by turn."""

import itertools
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.utils.function_calling import convert_to_openai_tool

_IDS = itertools.count(1)


def asks(name: str, args: dict[str, Any] | None = None, call_id: str | None = None) -> dict[str, Any]:
    """One tool call of a scripted turn."""
    return {"name": name, "args": args or {}, "id": call_id or f"call-{next(_IDS)}", "type": "tool_call"}


class ScriptedModelDouble(BaseChatModel):
    """Says `script[n]` where n assistant messages came before; the last turn repeats.

    A turn is a text or a list of tool calls (`asks`).
    """

    script: list[Any]

    @property
    def _llm_type(self) -> str:
        return "scripted-double"

    def bind_tools(self, tools: Any, *, tool_choice: Any = None, **kwargs: Any) -> Any:
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **kwargs)

    def _turn(self, messages: list[BaseMessage]) -> AIMessage:
        said = sum(isinstance(message, AIMessage) for message in messages)
        turn = self.script[min(said, len(self.script) - 1)]
        if isinstance(turn, str):
            return AIMessage(content=turn)
        return AIMessage(content="", tool_calls=[dict(call) for call in turn])

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **_: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._turn(messages))])


class StreamingModelDouble(ScriptedModelDouble):
    """The same script in chunks, as providers stream it: a call's name first, its arguments later."""

    def _chunks(self, messages: list[BaseMessage]) -> Iterator[ChatGenerationChunk]:
        message = self._turn(messages)
        for index, call in enumerate(message.tool_calls):
            text = json.dumps(call["args"])
            first = {"name": call["name"], "args": "", "id": call["id"], "index": index}
            yield ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=[first]))
            for part in (text[:3], text[3:]):
                chunk = {"name": None, "args": part, "id": None, "index": index}
                yield ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=[chunk]))
        for word in str(message.content).split():
            yield ChatGenerationChunk(message=AIMessageChunk(content=word))

    def _stream(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **_: Any
    ) -> Iterator[ChatGenerationChunk]:
        yield from self._chunks(messages)

    async def _astream(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **_: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        for chunk in self._chunks(messages):
            yield chunk
