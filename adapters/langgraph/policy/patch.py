"""The leaf of a graph's chat model: the policy is asked there where the episode has one, else the model."""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.outputs import ChatResult

from dreamgym_kit.adapters.langgraph.intercept.provider_tools import told
from dreamgym_kit.adapters.langgraph.policy.capture import Capture, capture_of
from dreamgym_kit.adapters.langgraph.policy.responses import chunks_of_reply, events_of_reply, result_of_reply
from dreamgym_kit.routing.session import Session

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
            self._kwargs = told(session, model, dict(kwargs))

    def result_now(self) -> ChatResult:
        """The answer, whole, from sync code."""
        if self._capture is None:
            result: ChatResult = self._real(self._model, *self._args, **self._kwargs)
            return result
        answer = self._capture.answer_now(self._model, self._named)
        return result_of_reply(answer.reply, parsed=answer.parsed)

    async def result(self) -> ChatResult:
        """The answer, whole."""
        if self._capture is None:
            result: ChatResult = await self._real(self._model, *self._args, **self._kwargs)
            return result
        answer = await self._capture.answer(self._model, self._named)
        return result_of_reply(answer.reply, parsed=answer.parsed)

    def parts_now(self, *, events: bool) -> Iterator[Any]:
        """The answer as a stream of chunks, or of protocol events, from sync code."""
        if self._capture is None:
            yield from self._real(self._model, *self._args, **self._kwargs)
            return
        answer = self._capture.answer_now(self._model, self._named)
        yield from (events_of_reply if events else chunks_of_reply)(answer.reply, parsed=answer.parsed)

    async def parts(self, *, events: bool) -> AsyncIterator[Any]:
        """The same, asynchronously."""
        if self._capture is None:
            async for part in self._real(self._model, *self._args, **self._kwargs):
                yield part
            return
        answer = await self._capture.answer(self._model, self._named)
        for part in (events_of_reply if events else chunks_of_reply)(answer.reply, parsed=answer.parsed):
            yield part

    def _taking(self, capture: Capture | None) -> Capture | None:
        if capture is None:
            return None
        more = {name: value for name, value in self._kwargs.items() if name not in _OWN}
        own = {name: self._kwargs[name] for name in _OWN if name in self._kwargs}
        self._named = {**dict(zip(_OWN, self._args, strict=False)), **own, "kwargs": more}
        return capture if capture.takes(self._named) else None
