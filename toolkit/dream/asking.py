"""One structured question to a chat model: a closed JSON object comes back, repaired once, or nothing."""

from collections.abc import Mapping
from typing import Any

from jsonschema import Draft202012Validator

from dreamgym_kit.dream.prompt import repair
from dreamgym_kit.errors import EndpointError, NotJson
from dreamgym_kit.jsonread import read_json
from dreamgym_kit.plain import JsonValue
from dreamgym_kit.ports import Account, ChatEndpoint, ChatMessage, ChatReply, ChatRequest


class CountedEndpoint:
    """Implements `ports.ChatEndpoint`: another one, whose answers are charged to a part of an episode.

    Args:
        endpoint: where the model answers.
        account: the episode's; None charges nobody.
        part: experience, judge or user.
    """

    def __init__(self, endpoint: ChatEndpoint, account: Account | None, part: str) -> None:
        self._endpoint, self._account, self._part = endpoint, account, part

    async def chat(self, request: ChatRequest) -> ChatReply:
        """See `ports.ChatEndpoint.chat`."""
        try:
            reply = await self._endpoint.chat(request)
        except EndpointError:
            if self._account is not None:
                self._account.count("endpoint_failures")
            raise
        if self._account is not None:
            self._account.spent(self._part, reply)
        return reply


async def ask_for(
    endpoint: ChatEndpoint,
    rules: str,
    data: str,
    schema: Mapping[str, JsonValue],
    *,
    name: str,
    seed: int = 0,
) -> dict[str, Any]:
    """Ask under fixed rules about fenced data.

    Raises:
        EndpointError: no answer came.
        NotJson: two answers came, and neither fits the schema.
    """
    messages = [ChatMessage("system", rules), ChatMessage("user", data)]
    wrong = NotJson("nothing was said")
    for _ in range(2):
        reply = await endpoint.chat(ChatRequest(messages, schema=schema, schema_name=name, seed=seed))
        try:
            return _read(reply.content, schema)
        except NotJson as error:
            wrong = error
            messages = [*messages, *repair(reply.content, str(error))]
    raise wrong


def _read(text: str, schema: Mapping[str, JsonValue]) -> dict[str, Any]:
    said = read_json(text.strip(), max_bytes=20_000)
    wrong = next(Draft202012Validator(dict(schema)).iter_errors(said), None)
    if wrong is not None:
        raise NotJson(wrong.message[:200])
    found: dict[str, Any] = said
    return found
