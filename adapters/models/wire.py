"""Chat completions on the wire: a request as JSON, and a server's bytes as a reply or a named error.

Servers spell errors in at least three ways, leave fields out that the form asks for and refuse fields
that others want; what a refusal says about a field is read here, what is then sent is `Dialect`.

An exact answer also brings ids and log-probs, one for one, or it is no answer. Their fields are vLLM's.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dreamgym_kit.bounded_json import read_json
from dreamgym_kit.chat import ChatMessage, ChatReply, ChatRequest, SampledTokens, ToolRequest
from dreamgym_kit.errors import EndpointError, NotSerializable
from dreamgym_kit.serialization import JsonValue

MAX_BODY = 4 * 2**20  # bytes of an answer: far above any message, far below what hurts
# How a constrained answer spells its JSON: as `json.dumps` does, which is what models were taught with; what
# follows other spacing is less likely in each token. llguidance reads this from the schema itself, in this
# process and behind vLLM; others pass the key over, or refuse it once.
SPACING: dict[str, JsonValue] = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
SPELLED = "x-guidance"  # the schema's key that holds it
_RETRYABLE = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_KINDS = {401: "unauthorized", 403: "unauthorized", 404: "not_found", 408: "timeout", 429: "rate_limit"}
_ADVICE = {
    401: "check the key that key_env or key_file names",
    403: "check the key that key_env or key_file names",
    404: "check experience.urls and experience.model",
}
_MAX_ERROR_TEXT = 200  # characters of a server's own words in a message
_SAMPLING = ("temperature", "top_p", "seed")
_VLLM = b'"kv_transfer_params"'  # a field of vLLM's answers, whatever is asked
_EXACT: dict[str, JsonValue] = {
    "logprobs": True,
    "return_token_ids": True,
    "return_tokens_as_token_ids": True,  # each log-prob then names its token's id: they cannot slip
}
# A server fills in what is left out from the model's own generation settings, and log-probs are then those
# of the distribution that they cut.
_NOTHING_CUT: dict[str, JsonValue] = {
    "top_k": -1,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}
_CUT_OFF = -9000.0  # a server's stand-in for minus infinity is -9999: such a token was not drawn from these
_OVER = 1e-4  # of a log-prob above 0: rounding


@dataclass(frozen=True, slots=True)
class Response:
    """A whole answer of a server."""

    status: int  # 0: nobody answered
    headers: Mapping[str, str] = field(default_factory=dict)  # names in small letters
    body: bytes = b""
    connection: int = 0  # it came over; the first that was opened is 1

    @property
    def text(self) -> str:
        """The body, whatever its bytes are."""
        return self.body.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Dialect:
    """What a server takes, as far as its refusals have told."""

    form: str = "json_schema"  # then "json_object", then "" (only told in the prompt)
    length_field: str = "max_tokens"
    left_out: frozenset[str] = frozenset()  # sampling fields that it refuses
    spelled: bool = True  # a schema may say how its JSON is spaced
    explicit: bool = False  # vLLM: fills in what is left out from the model's own generation settings

    def after(self, refusal: EndpointError, request: ChatRequest) -> "Dialect | None":
        """What to try after a refused request; None where the refusal is about something else."""
        if refusal.status not in (400, 422):
            return None
        text = str(refusal).lower()
        if self.length_field == "max_tokens" and "max_completion_tokens" in text:
            return replace(self, length_field="max_completion_tokens")
        for name in _SAMPLING:
            if name in text and name not in self.left_out:
                return replace(self, left_out=self.left_out | {name})
        about_form = any(word in text for word in ("response_format", "json_schema", "schema", "json_object"))
        if request.schema is not None and self.form and about_form:
            if self.spelled:
                return replace(self, spelled=False)
            return replace(self, form="json_object" if self.form == "json_schema" else "")
        return None

    def knowing(self, body: bytes) -> "Dialect | None":
        """What to ask again with after a first answer that tells which server this is; None: it may stand."""
        return None if self.explicit or _VLLM not in body else replace(self, explicit=True)


def request_body(request: ChatRequest, model: str, dialect: Dialect) -> bytes:
    """Encode a request. It begins alike for sibling episodes, because servers cache prefixes."""
    body: dict[str, JsonValue] = {
        "model": model,
        "messages": [_message(message) for message in request.messages],
        "temperature": request.temperature,
        "top_p": request.top_p,
        "seed": request.seed,
        dialect.length_field: request.max_tokens,
        "n": 1,
        "stream": False,
    }
    for name in dialect.left_out:
        body.pop(name)
    if request.seed is None:
        body.pop("seed", None)
    if request.schema is not None and dialect.form == "json_schema":
        spelled: dict[str, JsonValue] = {SPELLED: SPACING} if dialect.spelled else {}
        form = {"name": request.schema_name, "schema": {**request.schema, **spelled}, "strict": True}
        body["response_format"] = {"type": "json_schema", "json_schema": form}
    elif request.schema is not None and dialect.form:
        body["response_format"] = {"type": dialect.form}
    body |= _tools(request, enforced=dialect.explicit or request.exact)
    if request.stop:
        body["stop"] = list(request.stop)
    if dialect.explicit or request.exact:
        body |= _NOTHING_CUT
    if request.exact:
        body |= _EXACT
    return json.dumps(body, ensure_ascii=True).encode("ascii")


def _message(message: ChatMessage) -> dict[str, JsonValue]:
    fields: dict[str, JsonValue] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        fields["content"] = message.content or None
        fields["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.args}}
            for call in message.tool_calls
        ]
    if message.role == "tool":
        fields["tool_call_id"] = message.call_id
    return fields


def _tools(request: ChatRequest, *, enforced: bool) -> dict[str, JsonValue]:
    """Return the request's tool fields. `enforced`: the server can hold a forced call to its schema."""
    if not request.tools:
        return {}
    choice: JsonValue = request.tool_choice
    forced = request.tool_choice not in ("auto", "none")
    if forced and request.tool_choice != "required":
        choice = {"type": "function", "function": {"name": request.tool_choice}}
    tools: list[JsonValue] = [_strict(tool) if enforced and forced else dict(tool) for tool in request.tools]
    fields: dict[str, JsonValue] = {"tools": tools, "tool_choice": choice}
    return fields if request.parallel_calls else fields | {"parallel_tool_calls": False}


def _strict(tool: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """The tool, saying that its arguments have its schema: vLLM holds a forced call to it only then."""
    function = tool.get("function")
    return {**tool, "function": {**function, "strict": True}} if isinstance(function, Mapping) else {**tool}


def read_body(response: Response, where: str) -> Any:
    """The JSON of a server's answer.

    Raises:
        EndpointError: a status that is no success, or no JSON.
    """
    if response.status != 200:
        raise _refusal(response, where)
    try:
        return read_json(response.body)
    except NotSerializable as error:
        raise EndpointError(
            "malformed", f"{where} sent what is not JSON ({error})", status=200, retryable=True
        ) from None


def read_reply(response: Response, where: str, request: ChatRequest | None = None) -> ChatReply:
    """What a server's answer says, to `request` where that asked for more than text.

    Raises:
        EndpointError: a status that is no success, a body that is no chat completion, or one without the
            tokens of an exact answer.
    """
    body = read_body(response, where)
    choice = first_choice(body)
    message = choice.get("message")
    if not isinstance(message, dict):
        raise EndpointError("malformed", f"{where} sent no chat completion", status=200, retryable=True)
    if choice.get("finish_reason") == "abort":  # paused for new weights, or shut down
        raise EndpointError("server", f"{where} stopped before its answer ended", status=200, retryable=True)
    content = message.get("content")
    cached = pick(body, "usage", "prompt_tokens_details", "cached_tokens")
    return ChatReply(
        content=content if isinstance(content, str) else "",
        finish_reason=str(choice.get("finish_reason") or "")[:40],
        model=str(body.get("model") or "")[:200],
        prompt_tokens=_count(pick(body, "usage", "prompt_tokens")),
        completion_tokens=_count(pick(body, "usage", "completion_tokens")),
        cached_tokens=_count(cached),
        cache_told=isinstance(cached, int),
        tool_calls=_calls(message, where),
        tokens=_tokens(body, choice, request, where) if request is not None and request.exact else None,
    )


def _calls(message: dict[str, Any], where: str) -> tuple[ToolRequest, ...]:
    """Tool calls as the server took them out of the text; there is no such field where there are none."""
    entries = message.get("tool_calls") or []
    calls: list[ToolRequest] = []
    for entry in entries if isinstance(entries, list) else [None]:
        name, args = pick(entry, "function", "name"), pick(entry, "function", "arguments")
        if not isinstance(name, str) or not name:
            raise EndpointError("malformed", f"{where} sent a tool call without a name", status=200)
        calls.append(ToolRequest(name, args if isinstance(args, str) else "{}", str(pick(entry, "id") or "")))
    return tuple(calls)


def _refusal(response: Response, where: str) -> EndpointError:
    status = response.status
    if 300 <= status < 400:
        return EndpointError("rejected", f"{where} redirects, which is not followed", status=status)
    advice = f"; {_ADVICE[status]}" if status in _ADVICE else ""
    kind = _KINDS.get(status, "server" if status >= 500 else "rejected")
    return EndpointError(
        "context" if status == 400 and _is_too_long(response.body) else kind,
        f"{where} answered {status}: {_error_text(response.body)}{advice}",
        status=status,
        retryable=status in _RETRYABLE,
        retry_after_s=_seconds(response.headers.get("retry-after", "")),
    )


def _is_too_long(body: bytes) -> bool:
    """Whether it is the prompt that leaves no room for an answer, as vLLM and as OpenAI say it."""
    try:
        content: Any = read_json(body[:100_000])
    except NotSerializable:
        return False
    error = pick(content, "error")
    return bool(pick(error, "param") == "input_tokens" or pick(error, "code") == "context_length_exceeded")


def _error_text(body: bytes) -> str:
    """A server's own words, one printable line: {"error": {"message"}}, {"error": "..."} or {"detail"}."""
    try:
        content: Any = read_json(body[:100_000])
    except NotSerializable:
        content = body[: 4 * _MAX_ERROR_TEXT].decode("utf-8", "replace")
    if isinstance(content, dict):
        content = content.get("error", content.get("detail", content.get("message", content)))
    if isinstance(content, dict):
        parameter = f" (param {content['param']})" if isinstance(content.get("param"), str) else ""
        content = f"{content.get('message', '')}{parameter}"
    text = content if isinstance(content, str) else json.dumps(content)
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return line[:_MAX_ERROR_TEXT] or "nothing"


def pick(value: Any, *path: str | int) -> Any:
    """What stands at a path through objects and lists; None where it does not lead anywhere."""
    for key in path:
        if isinstance(key, int):
            value = value[key] if isinstance(value, list) and len(value) > key else None
        else:
            value = value.get(key) if isinstance(value, dict) else None
    return value


def first_choice(body: Any) -> dict[str, Any]:
    """Return the first choice of a response, or an empty one."""
    first = pick(body, "choices", 0)
    return first if isinstance(first, dict) else {}


def _count(value: Any) -> int:
    ok = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**9
    return value if ok else 0


def _seconds(text: str) -> float | None:
    """Retry-After in seconds; its date form is read as nothing, and the client's own backoff holds."""
    try:
        seconds = float(text)
    except ValueError:
        return None
    return seconds if 0 <= seconds < 10**6 else None


def _tokens(body: dict[str, Any], choice: dict[str, Any], request: ChatRequest, where: str) -> SampledTokens:
    """Ids and log-probs of an answer.

    Raises:
        EndpointError: they are not there, or do not fit each other.
    """
    prompt, ids = _token_ids(body.get("prompt_token_ids")), _token_ids(choice.get("token_ids"))
    content = pick(choice, "logprobs", "content")
    if prompt is None or ids is None or not isinstance(content, list):
        raise EndpointError(
            "malformed",
            f"{where} sent no token ids and log-probs; an exact answer needs a vLLM server that knows "
            "return_token_ids",
            status=200,
        )
    logprobs = tuple(_logprob(entry, where) for entry in content)
    if len(logprobs) != len(ids) or not ids:
        raise EndpointError(
            "malformed", f"{where} sent {len(ids)} token ids and {len(logprobs)} log-probs", status=200
        )
    for at, (id_, entry) in enumerate(zip(ids, content, strict=True)):
        named = pick(entry, "token")
        if isinstance(named, str) and named.startswith("token_id:") and named != f"token_id:{id_}":
            raise EndpointError(
                "malformed", f"{where} sent a log-prob of {named} for token {at}, which is {id_}", status=200
            )
    return SampledTokens(
        prompt_ids=prompt,
        ids=ids,
        logprobs=logprobs,
        version=str(body.get("model") or "")[:200],
        constrained=_is_constrained(request),
    )


def _is_constrained(request: ChatRequest) -> bool:
    forced = bool(request.tools) and request.tool_choice not in ("auto", "none")
    strict = request.tool_choice != "none" and any(_is_strict(tool) for tool in request.tools)
    narrowed = request.top_p < 1 and request.temperature > 0
    return request.schema is not None or forced or strict or narrowed


def _is_strict(tool: Any) -> bool:
    function = tool.get("function", tool)
    return isinstance(function, dict) and function.get("strict") is True


def _token_ids(ids: Any) -> tuple[int, ...] | None:
    whole = isinstance(ids, list) and all(
        isinstance(id_, int) and not isinstance(id_, bool) and 0 <= id_ < 2**31 for id_ in ids
    )
    return tuple(ids) if whole else None


def _logprob(entry: Any, where: str) -> float:
    value = pick(entry, "logprob")
    if isinstance(value, int | float) and not isinstance(value, bool) and _CUT_OFF < value <= _OVER:
        return float(value)
    raise EndpointError("malformed", f"{where} sent {str(value)[:40]} as a log-prob", status=200)
