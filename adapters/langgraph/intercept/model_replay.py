"""The agent's chat model on tape: what it said is kept once, and said again in its place later.

A tape belongs to a task; the model's leaf looks here before the model is asked. What is put on a tape and
what is found on it is the tape's to decide, here is only the seam: a request as plain data, without the
ids that differ each time, and an answer in the form that the framework asked for.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Protocol, Self

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, message_chunk_to_message
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

from dreamgym_kit.adapters.langgraph.episode.transcript import message_record
from dreamgym_kit.adapters.langgraph.policy.capture import model_name
from dreamgym_kit.canonical import canonical, digest
from dreamgym_kit.errors import CallUnanswered
from dreamgym_kit.routing.session import Session
from dreamgym_kit.serialization import JsonValue, to_json

ANSWER_FIELDS = (
    *("content", "tool_calls", "invalid_tool_calls", "additional_kwargs", "usage_metadata"),
    *("response_metadata", "name"),
)
_RESPONSE_KEYS = ("model_name", "model", "finish_reason", "stop_reason")
_INSTALLED = frozenset({"site-packages", "dist-packages"})


@dataclass(frozen=True, slots=True)
class ModelQuery:
    """One request to the agent's chat model.

    Attributes:
        model: its name, as its class has it.
        messages: what it was told, as plain records without ids.
        tools: names of the tools that it was told of.
        options: digest of everything else that it was asked with, the tools' descriptions among it.
    """

    model: str
    messages: tuple[Mapping[str, JsonValue], ...]
    tools: tuple[str, ...]
    options: str


class ModelTape(Protocol):
    """Keeps what models say, or says it again. Thread-safe."""

    playing: bool

    def takes(self, model: BaseChatModel) -> bool:
        """Whether this model is one to be taped; others answer for themselves."""
        ...

    def play(self, query: ModelQuery) -> Mapping[str, JsonValue] | None:
        """What was said to this request, in the order said; None when it was never asked."""
        ...

    def keep(self, query: ModelQuery, answer: Mapping[str, JsonValue]) -> None:
        """Put an answer on the tape."""
        ...


_TAPES: dict[str, ModelTape] = {}


@contextmanager
def replay_models(task: str, tape: ModelTape) -> Iterator[None]:
    """Tape the models of one task's episodes in the block."""
    _TAPES[task] = tape
    try:
        yield
    finally:
        _TAPES.pop(task, None)


def of_provider(model: BaseChatModel) -> bool:
    """Whether a model comes from an installed package that talks to a provider.

    The framework's own models are fakes, and so is one that somebody wrote for their own project, unless
    it is made from a provider's.
    """
    for owner in type(model).__mro__:
        package = owner.__module__.partition(".")[0]
        if package in ("langchain_core", "dreamgym_kit") or "fake" in owner.__module__:
            continue
        if not issubclass(owner, BaseChatModel):
            continue
        file = getattr(sys.modules.get(owner.__module__), "__file__", None) or ""
        if _INSTALLED.intersection(Path(file).parts):
            return True
    return False


class TapedTurn:
    """One request, answered from the tape or recorded on it. Does nothing without a tape."""

    def __init__(
        self, tape: ModelTape | None = None, query: ModelQuery | None = None, answer: AIMessage | None = None
    ) -> None:
        self._tape, self._query, self._answer = tape, query, answer
        self._streamed: AIMessageChunk | None = None  # as far as it came

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._tape is not None and self._query is not None:
            _UNDER_WAY.discard((id(self._tape), digest_of(self._query)))

    def result(self) -> ChatResult | None:
        """Return the whole answer, if it is on the tape."""
        return ChatResult(generations=[ChatGeneration(message=self._answer)]) if self._answer else None

    def parts(self) -> list[ChatGenerationChunk] | None:
        """Return the answer as a stream of one part, if it is on the tape."""
        return [ChatGenerationChunk(message=_as_chunk(self._answer))] if self._answer else None

    def record(self, result: ChatResult) -> ChatResult:
        """Record the model's new answer on the tape, and return it."""
        if result.generations:
            self._keep(result.generations[0].message)
        return result

    def add(self, part: Any) -> None:
        """Add a streamed part of the model's new answer."""
        message = getattr(part, "message", None)
        if self._tape is not None and self._answer is None and isinstance(message, AIMessageChunk):
            self._streamed = message if self._streamed is None else self._streamed + message

    def end(self) -> None:
        """Keep the stream: it has ended."""
        if self._streamed is not None:
            self._keep(message_chunk_to_message(self._streamed))

    def _keep(self, message: BaseMessage) -> None:
        if self._tape is not None and self._query is not None and isinstance(message, AIMessage):
            self._tape.keep(self._query, answer_record(message))


_NOT_TAPED = TapedTurn()
_UNDER_WAY: set[tuple[int, str]] = set()
"""Requests that are being recorded: a model's `_generate` may itself stream, and both are intercepted."""


def turn_of(
    session: Session | None,
    model: BaseChatModel,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    events: bool = False,
) -> TapedTurn:
    """Return this request's turn on its episode's tape; `events`: it asks for protocol events, not parts.

    Raises:
        CallUnanswered: the tape cannot answer, or could not keep the answer; the model is not asked.
    """
    tape = _TAPES.get(session.task) if _TAPES and session is not None else None
    if tape is None or session is None or not tape.takes(model):
        return _NOT_TAPED
    if events:
        _stop(session, f"{type(model).__name__} streams protocol events, which no cassette holds")
    query = _model_query(model, args, kwargs)
    if tape.playing:
        record = tape.play(query)
        if record is None:
            _stop(session, "the agent's model was asked something that is not in the cassette")
        return TapedTurn(tape, query, message_of(record))
    mark = (id(tape), digest_of(query))
    if mark in _UNDER_WAY:
        return _NOT_TAPED
    _UNDER_WAY.add(mark)
    return TapedTurn(tape, query)


def _stop(session: Session, why: str) -> NoReturn:
    stop = CallUnanswered(why)
    session.stopped = session.stopped or stop
    raise stop


def digest_of(query: ModelQuery) -> str:
    """Names a request: equal for the same one."""
    return digest(
        [query.model, [dict(message) for message in query.messages], list(query.tools), query.options]
    )


def answer_record(message: AIMessage) -> dict[str, JsonValue]:
    """Return the parts of an answer that a graph acts on, as plain data without ids and times."""
    record: dict[str, JsonValue] = {"content": to_json(message.content)}
    if message.tool_calls:
        record["tool_calls"] = [
            {"name": call["name"], "args": to_json(call["args"]), "id": call["id"], "type": "tool_call"}
            for call in message.tool_calls
        ]
    if message.invalid_tool_calls:
        record["invalid_tool_calls"] = to_json(message.invalid_tool_calls)
    more = {
        name: to_json(value)
        for name, value in message.additional_kwargs.items()
        if value not in (None, "", [], {})
    }
    metadata = {name: message.response_metadata.get(name) for name in _RESPONSE_KEYS}
    record |= {"additional_kwargs": more} if more else {}
    record |= {"usage_metadata": to_json(message.usage_metadata)} if message.usage_metadata else {}
    metadata = {name: value for name, value in metadata.items() if isinstance(value, str)}
    record |= {"response_metadata": metadata} if metadata else {}
    return record | ({"name": message.name} if message.name else {})


def message_of(record: Mapping[str, JsonValue]) -> AIMessage:
    """The answer that `answer_record` wrote.

    Raises:
        ValueError: it is none.
    """
    unknown = set(record) - set(ANSWER_FIELDS)
    if unknown or "content" not in record:
        raise ValueError(f"unknown field {min(unknown)!r}" if unknown else "content: missing")
    return AIMessage(**record)


def _model_query(model: BaseChatModel, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> ModelQuery:
    given = kwargs.get("messages", args[0] if args else ())
    tools = to_json(kwargs.get("tools") or kwargs.get("functions") or [])
    stop = kwargs.get("stop", args[1] if len(args) > 1 else None)
    left_out = ("messages", "stop", "run_manager", "tools", "functions")
    more = {name: to_json(value) for name, value in kwargs.items() if name not in left_out}
    return ModelQuery(
        model=model_name(model),
        messages=tuple(_without_ids(message_record(message)) for message in given),
        tools=tuple(sorted(_tool_name(tool) for tool in tools)),
        options=digest([canonical(tools), to_json(stop), canonical(more)])[:16],
    )


def _without_ids(record: dict[str, Any]) -> dict[str, Any]:
    without_ids = {key: value for key, value in record.items() if key != "tool_call_id"}
    if "tool_calls" in without_ids:
        calls = without_ids["tool_calls"]
        without_ids["tool_calls"] = [{"name": call["name"], "args": call["args"]} for call in calls]
    return without_ids


def _tool_name(tool: JsonValue) -> str:
    if not isinstance(tool, Mapping):
        return "?"
    inner = tool.get("function")
    return str((inner if isinstance(inner, Mapping) else tool).get("name") or tool.get("type") or "?")


def _as_chunk(message: AIMessage) -> AIMessageChunk:
    calls = [
        tool_call_chunk(name=call["name"], args=canonical(to_json(call["args"])), id=call["id"], index=index)
        for index, call in enumerate(message.tool_calls)
    ]
    return AIMessageChunk(
        content=message.content,
        additional_kwargs=message.additional_kwargs,
        response_metadata=message.response_metadata,
        usage_metadata=message.usage_metadata,
        tool_call_chunks=calls,
    )
