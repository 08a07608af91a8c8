"""The leaf of a graph's chat model: the policy is asked there where the episode has one, else the model.

What the policy said is given in the form that a graph expects of its chat model: whole, in chunks, as events.
Chunks add up to the whole message. A tool call whose arguments are no JSON object is an invalid call, as
with any provider; it is given in one piece, since the framework would mend the end of a torn one.
"""

import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, InvalidToolCall, ToolCall
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

from dreamgym_kit.adapters.langgraph.intercept.provider_tools import allowed_arguments
from dreamgym_kit.adapters.langgraph.policy.capture import Capture, PolicyReply, capture_of
from dreamgym_kit.chat import ChatReply
from dreamgym_kit.routing.session import Session

PROVIDER = "dreamgym-kit-policy"
"""Told with each answer: a provider's prices are not for these."""


def message_of_reply(given: PolicyReply) -> AIMessage:
    """The whole message."""
    reply = given.reply
    calls: list[ToolCall] = []
    invalid: list[InvalidToolCall] = []
    for request in reply.tool_calls:
        args = _object(request.args)
        if args is None:
            why = "the arguments are not a JSON object"
            invalid.append(
                InvalidToolCall(
                    type="invalid_tool_call", name=request.name, args=request.args, id=request.id, error=why
                )
            )
        else:
            calls.append(ToolCall(type="tool_call", name=request.name, args=args, id=request.id))
    answer = _object(reply.content) if given.parsed else None
    return AIMessage(
        content=reply.content,
        tool_calls=calls,
        invalid_tool_calls=invalid,
        additional_kwargs={} if answer is None else {"parsed": answer},
        response_metadata={  # what providers tell; graphs look at `finish_reason`
            "finish_reason": reply.finish_reason,
            "model_name": reply.model,
            "model_provider": PROVIDER,
        },
        usage_metadata=_usage(reply),
    )


def result_of_reply(given: PolicyReply) -> ChatResult:
    """The message as a model's `_generate` gives it."""
    return ChatResult(generations=[ChatGeneration(message=message_of_reply(given))])


def chunks_of_reply(given: PolicyReply) -> Iterator[ChatGenerationChunk]:
    """The message in pieces: its text, each call by itself, then what is known at its end."""
    whole = message_of_reply(given)
    end: dict[str, Any] = {
        "additional_kwargs": whole.additional_kwargs,
        "response_metadata": whole.response_metadata,
        "usage_metadata": whole.usage_metadata,
        "chunk_position": "last",
    }
    if whole.invalid_tool_calls:
        torn = AIMessageChunk(
            content=whole.content,
            tool_calls=whole.tool_calls,
            invalid_tool_calls=whole.invalid_tool_calls,
            **end,
        )
        yield ChatGenerationChunk(message=torn)
        return
    if whole.content:
        yield ChatGenerationChunk(message=AIMessageChunk(content=whole.content))
    for index, request in enumerate(given.reply.tool_calls):
        piece = tool_call_chunk(name=request.name, args=request.args, id=request.id, index=index)
        yield ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=[piece]))
    yield ChatGenerationChunk(message=AIMessageChunk(content="", **end))


def events_of_reply(given: PolicyReply) -> Iterator[Any]:
    """The message as protocol events, for models that stream those."""
    from langchain_core.language_models._compat_bridge import message_to_events  # not in older versions

    yield from message_to_events(message_of_reply(given))


def _object(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _usage(reply: ChatReply) -> UsageMetadata:
    usage = UsageMetadata(
        input_tokens=reply.prompt_tokens,
        output_tokens=reply.completion_tokens,
        total_tokens=reply.prompt_tokens + reply.completion_tokens,
    )
    if reply.cached_tokens:
        usage["input_token_details"] = {"cache_read": reply.cached_tokens}
    return usage


_OWN = ("messages", "stop", "run_manager")  # the framework's own arguments, in their order


class Leaf:
    """One call that reached a chat model; ask for its answer in one way, once."""

    __slots__ = ("_args", "_capture", "_kwargs", "_model", "_named", "_real")

    def __init__(
        self,
        session: Session | None,
        real: Callable[..., Any],
        model: BaseChatModel,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> None:
        self._real, self._model, self._args, self._kwargs = real, model, args, kwargs
        self._named: dict[str, Any] = {}
        self._capture = self._taking(capture_of(session))
        if self._capture is None:  # a policy that answers in its place runs no tool of the provider's
            self._kwargs = allowed_arguments(session, model, dict(kwargs))

    def now(self, form: Callable[[PolicyReply], Any]) -> Any:
        """The answer from sync code; what the policy said in this form."""
        if self._capture is None:
            return self._real(self._model, *self._args, **self._kwargs)
        return form(self._capture.answer_now(self._model, self._named))

    async def result(self) -> ChatResult:
        """The answer, whole."""
        if self._capture is None:
            result: ChatResult = await self._real(self._model, *self._args, **self._kwargs)
            return result
        return result_of_reply(await self._capture.answer(self._model, self._named))

    async def parts(self, form: Callable[[PolicyReply], Iterator[Any]]) -> AsyncIterator[Any]:
        """The answer as a stream; what the policy said in this form."""
        if self._capture is None:
            async for part in self._real(self._model, *self._args, **self._kwargs):
                yield part
            return
        for part in form(await self._capture.answer(self._model, self._named)):
            yield part

    def _taking(self, capture: Capture | None) -> Capture | None:
        if capture is None:
            return None
        more = {name: value for name, value in self._kwargs.items() if name not in _OWN}
        own = {name: self._kwargs[name] for name in _OWN if name in self._kwargs}
        self._named = {**dict(zip(_OWN, self._args, strict=False)), **own, "kwargs": more}
        return capture if capture.takes(self._named) else None
