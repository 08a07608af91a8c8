"""What a server has to bring with an exact answer: ids and log-probs, one for one, or it is no answer.

The fields are vLLM's. Everything that changes which tokens are likely is sent with each request: a server
fills in what is left out from the model's own generation settings, and log-probs are then those of the
distribution that they cut.
"""

from typing import Any

from dreamgym_kit.chat import ChatRequest, SampledTokens
from dreamgym_kit.errors import EndpointError
from dreamgym_kit.plain import JsonValue

EXACT: dict[str, JsonValue] = {
    "logprobs": True,
    "return_token_ids": True,
    "return_tokens_as_token_ids": True,  # each log-prob then names its token's id: they cannot slip
}
NOTHING_CUT: dict[str, JsonValue] = {
    "top_k": -1,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}
_CUT = -9000.0  # a server's stand-in for minus infinity is -9999: such a token was not drawn from these
_OVER = 1e-4  # of a log-prob above 0: rounding


def read_tokens(
    body: dict[str, Any], choice: dict[str, Any], request: ChatRequest, where: str
) -> SampledTokens:
    """Ids and log-probs of an answer.

    Raises:
        EndpointError: they are not there, or do not fit each other.
    """
    prompt, ids = _ids(body.get("prompt_token_ids")), _ids(choice.get("token_ids"))
    told = choice.get("logprobs")
    content = told.get("content") if isinstance(told, dict) else None
    if prompt is None or ids is None or not isinstance(content, list):
        raise EndpointError(
            "malformed",
            f"{where} sent no token ids and log-probs; an exact answer needs a vLLM server that knows "
            "return_token_ids",
            status=200,
        )
    logprobs = [_logprob(entry, where) for entry in content]
    if len(logprobs) != len(ids) or not ids:
        raise EndpointError(
            "malformed", f"{where} sent {len(ids)} token ids and {len(logprobs)} log-probs", status=200
        )
    for at, (id_, entry) in enumerate(zip(ids, content, strict=True)):
        named = entry.get("token")
        if isinstance(named, str) and named.startswith("token_id:") and named != f"token_id:{id_}":
            raise EndpointError(
                "malformed", f"{where} sent a log-prob of {named} for token {at}, which is {id_}", status=200
            )
    return SampledTokens(
        prompt_ids=prompt,
        ids=ids,
        logprobs=tuple(logprobs),
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


def _ids(said: Any) -> tuple[int, ...] | None:
    whole = isinstance(said, list) and all(
        isinstance(one, int) and not isinstance(one, bool) and 0 <= one < 2**31 for one in said
    )
    return tuple(said) if whole else None


def _logprob(entry: Any, where: str) -> float:
    said = entry.get("logprob") if isinstance(entry, dict) else None
    if isinstance(said, int | float) and not isinstance(said, bool) and _CUT < said <= _OVER:
        return float(said)
    raise EndpointError("malformed", f"{where} sent {str(said)[:40]} as a log-prob", status=200)
