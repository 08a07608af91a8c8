"""One structured question to a chat model: a closed JSON object comes back, repaired once, or nothing."""

from collections.abc import Callable, Mapping
from typing import Any

from jsonschema import Draft202012Validator

from dreamgym_kit.bounded_json import read_json
from dreamgym_kit.chat import ChatMessage, ChatReply, ChatRequest
from dreamgym_kit.dream.prompt import repair
from dreamgym_kit.errors import EndpointError, NotSerializable
from dreamgym_kit.interfaces import Account, ChatEndpoint
from dreamgym_kit.serialization import JsonValue

_MAX_BYTES = 100_000


class CountedEndpoint:
    """Implements `interfaces.ChatEndpoint`: another one, whose answers are charged to a part of an episode.

    Args:
        endpoint: where the model answers.
        account: the episode's; None charges nobody.
        part: experience, judge or user.
    """

    def __init__(self, endpoint: ChatEndpoint, account: Account | None, part: str) -> None:
        self._endpoint, self._account, self._part = endpoint, account, part

    async def chat(self, request: ChatRequest) -> ChatReply:
        """See `interfaces.ChatEndpoint.chat`."""
        try:
            reply = await self._endpoint.chat(request)
        except EndpointError:
            if self._account is not None:
                self._account.count("endpoint_failures")
            raise
        if self._account is not None:
            self._account.spent(self._part, reply)
        return reply


async def request_output(
    endpoint: ChatEndpoint,
    rules: str,
    data: str,
    schema: Mapping[str, JsonValue],
    *,
    name: str,
    seed: int = 0,
    max_tokens: int = 1024,
    check: Callable[[dict[str, Any]], str | None] = lambda _: None,
) -> dict[str, Any]:
    """Ask under fixed rules about fenced data. `check` says what is wrong beyond the schema.

    Raises:
        EndpointError: no answer came.
        NotSerializable: two answers came, and neither fits the schema.
    """
    messages = [ChatMessage("system", rules), ChatMessage("user", data)]
    wrong = NotSerializable("nothing was said")
    for _ in range(2):
        request = ChatRequest(messages, schema=schema, schema_name=name, seed=seed, max_tokens=max_tokens)
        reply = await endpoint.chat(request)
        try:
            if reply.finish_reason == "length":
                raise NotSerializable("it was cut off at its largest length; be brief")
            return _read(reply.content, schema, check)
        except NotSerializable as error:
            wrong = error
            messages = [*messages, *repair(reply.content, str(error))]
    raise wrong


def _read(
    text: str, schema: Mapping[str, JsonValue], check: Callable[[dict[str, Any]], str | None]
) -> dict[str, Any]:
    said = read_json(text.strip(), max_bytes=_MAX_BYTES)
    wrong = next(Draft202012Validator(dict(schema)).iter_errors(said), None)
    if wrong is not None:
        raise NotSerializable(wrong.message[:200])
    found: dict[str, Any] = said
    beyond = check(found)
    if beyond is not None:
        raise NotSerializable(beyond)
    return found


def closed_object(properties: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """The schema of an object that has all of these properties and no others."""
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(properties),
        "properties": dict(properties),
    }
