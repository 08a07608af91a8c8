"""What a vLLM server's completions route tells of tokens that are given: their log-probs, and the next one's.

Scores of a prompt are always computed anew; the next token is answered as a rollout's is, from the prefix
cache where that has the prompt.
"""

import json
from collections.abc import Sequence
from math import isfinite
from typing import Any

from dreamgym_kit.adapters.models.transport import Response
from dreamgym_kit.adapters.models.wire import read_body
from dreamgym_kit.errors import EndpointError

ROUTE = "/completions"
_ASIS = {"max_tokens": 1, "temperature": 1.0, "top_p": 1.0, "top_k": -1, "add_special_tokens": False}


def scores_body(model: str, ids: Sequence[int]) -> bytes:
    """Asks for the log-prob of each id after the first."""
    # 0: those of the prompt's own tokens, and no others
    body = {"model": model, "prompt": list(ids), "prompt_logprobs": 0, **_ASIS}
    return json.dumps(body).encode("ascii")


def read_scores(response: Response, where: str, ids: Sequence[int]) -> list[float]:
    """Natural log-prob of each id after the first, at temperature 1.

    Raises:
        EndpointError: a status that is no success, or other log-probs than those of `ids`.
    """
    said = _choice(read_body(response, where)).get("prompt_logprobs")
    if not isinstance(said, list) or len(said) != len(ids):
        raise EndpointError(
            "malformed", f"{where} sent no prompt_logprobs; scores need a vLLM server", status=200
        )
    return [_score_of(entry, id_, where) for entry, id_ in zip(said[1:], ids[1:], strict=True)]


def next_body(model: str, ids: Sequence[int], seed: int) -> bytes:
    """Asks for one token after `ids`, drawn from all of them."""
    body = {"model": model, "prompt": list(ids), "seed": seed, "logprobs": 0, "return_token_ids": True}
    return json.dumps(body | _ASIS).encode("ascii")


def read_next(response: Response, where: str) -> tuple[int, float]:
    """The token that was drawn, and its log-prob.

    Raises:
        EndpointError: a status that is no success, or not one token with its log-prob.
    """
    choice = _choice(read_body(response, where))
    told = choice.get("logprobs")
    ids, logprobs = choice.get("token_ids"), told.get("token_logprobs") if isinstance(told, dict) else None
    if isinstance(ids, list) and isinstance(logprobs, list) and len(ids) == len(logprobs) == 1:
        id_, logprob = ids[0], logprobs[0]
        if isinstance(id_, int) and id_ >= 0 and _is_number(logprob):
            return id_, float(logprob)
    raise EndpointError("malformed", f"{where} sent no token with its log-prob", status=200)


def _choice(body: Any) -> dict[str, Any]:
    choices = body.get("choices") if isinstance(body, dict) else None
    choice = choices[0] if isinstance(choices, list) and choices else None
    return choice if isinstance(choice, dict) else {}


def _score_of(entry: Any, id_: int, where: str) -> float:
    own = entry.get(str(id_)) if isinstance(entry, dict) else None
    logprob = own.get("logprob") if isinstance(own, dict) else None
    if not _is_number(logprob):
        raise EndpointError("malformed", f"{where} sent no log-prob of token {id_}", status=200)
    return float(logprob)  # type: ignore[arg-type]  # what is no number was refused


def _is_number(said: Any) -> bool:
    return isinstance(said, int | float) and not isinstance(said, bool) and isfinite(said)
