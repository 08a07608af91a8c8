"""What a server can do, found by asking it before anything is run, and the flag where a needed thing is off.

Asked are its list of models, its version, whether routes are there, and two tokens: one whose log-prob tells
in which form log-probs are sent, with a tool, because a server without a tool parser refuses that.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dreamgym_kit.adapters.models.vllm.replica import Replica, ServedModel, is_there
from dreamgym_kit.adapters.models.wire import first_choice, read_body
from dreamgym_kit.bounded_json import read_json
from dreamgym_kit.errors import EndpointError, NotSerializable, UserError

PROCESSED, RAW = "processed_logprobs", "raw_logprobs"
_CUT = -9000.0  # stands for minus infinity
_NOBODY = "dreamgym-kit-asks-whether-this-route-is-there"
_PROBE_TOOL = {
    "type": "function",
    "function": {"name": "look", "description": "Looks.", "parameters": {"type": "object", "properties": {}}},
}


@dataclass(frozen=True, slots=True)
class Features:
    """What one server can do."""

    where: str
    version: str = ""  # of vLLM; "": it does not say, as most routers
    models: Mapping[str, ServedModel] = field(default_factory=dict)
    token_ids: bool = False
    logprobs: str = ""  # as `--logprobs-mode` has them; "": it sends none
    tools: bool = False
    generate: bool = False  # tokens in, tokens out
    lora: bool = False  # adapters can be loaded while it runs
    dev: bool = False  # weights can be replaced while it runs


async def detect(replica: Replica, model: str) -> Features:
    """Ask a server what it can do; inside of the transport's `run`.

    Raises:
        EndpointError: it is not there, or lets nobody in.
    """
    models = {served.name: served for served in await replica.models()}
    probe = await _probed(replica, model, tools=True) if model in models else None
    tools = probe is not None
    if model in models and probe is None:
        probe = await _probed(replica, model, tools=False)
    generate = await replica.post("/inference/v1/generate", {})
    lora = await replica.post("/v1/unload_lora_adapter", {"lora_name": _NOBODY})
    return Features(
        where=str(replica),
        version=await _version(replica),
        models=models,
        token_ids=probe is not None
        and all(isinstance(probe.get(key), list) for key in ("token_ids", "prompt")),
        logprobs=_mode(probe),
        tools=tools,
        generate=is_there(generate),
        lora=is_there(lora),
        dev=is_there(await replica.get("/is_paused")),
    )


def require_tokens(features: Sequence[Features], model: str, *, temperature: float, source: str) -> None:
    """Refuse servers from which nothing can be learned: exact tokens, in a form that can be used.

    Raises:
        UserError: names the server, what is missing, and the flag that it is to be started with.
    """
    for server in features:
        if model not in server.models:
            known = ", ".join(sorted(server.models)) or "no model"
            raise UserError(
                f"{source}: {server.where} does not serve '{model}', but {known}; set the model's name, or "
                f"start it with --served-model-name {model}."
            )
        if not server.token_ids:
            raise UserError(
                f"{source}: {server.where} sends no token ids; exact answers need a vLLM server that knows "
                "return_token_ids (0.11 or later)."
            )
        if server.logprobs not in (PROCESSED, RAW) or (server.logprobs == RAW and temperature != 1.0):
            form = server.logprobs or "no log-probs"
            raise UserError(
                f"{source}: {server.where} sends {form}, and answers at temperature {temperature:g} are "
                f"learned from by their own log-probs; start it with --logprobs-mode {PROCESSED}."
            )


def by_adapter(features: Sequence[Features], *, brought: bool, source: str) -> bool:
    """How new weights come to these servers: as an adapter, or as a whole model.

    `brought`: whether the weights are there as an adapter, too.

    Raises:
        UserError: they take neither while they run; names the server and what it is to be started with.
    """
    if brought and all(server.lora for server in features):
        return True
    fixed = next((server for server in features if not server.dev), None)
    if fixed is None:
        return False
    also = " (or, for adapters, VLLM_ALLOW_RUNTIME_LORA_UPDATING=True and --enable-lora)" if brought else ""
    raise UserError(
        f"{source}: {fixed.where} takes no new weights while it runs; start it with VLLM_SERVER_DEV_MODE=1"
        f"{also}, as `dreamgym-kit serve policy --set serve.dev=true` does, where only you reach it; of "
        "servers behind a router, name their own addresses in policy.replicas."
    )


async def _version(replica: Replica) -> str:
    response = await replica.get("/version")
    try:
        body: Any = read_json(response.body) if response.status == 200 else None
    except NotSerializable:
        return ""
    return str(body.get("version") or "")[:40] if isinstance(body, dict) else ""


async def _probed(replica: Replica, model: str, *, tools: bool) -> Mapping[str, Any] | None:
    """The choice of an answer of one token; None where the server refuses such a request."""
    request: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": "ready?"}],
        "max_tokens": 1,
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": 1,  # what is sent of the second token then tells whether log-probs are the sampler's
        "seed": 1,
        "logprobs": True,
        "top_logprobs": 2,
        "return_token_ids": True,
    }
    if tools:
        request |= {"tools": [_PROBE_TOOL], "tool_choice": "auto"}
    response = await replica.post("/v1/chat/completions", json.dumps(request).encode("ascii"))
    try:
        body = read_body(response, str(replica))
    except EndpointError as error:
        if error.kind == "rejected":
            return None
        raise
    choice = first_choice(body)
    return {**choice, "prompt": body.get("prompt_token_ids")} if choice else None


def _mode(probe: Mapping[str, Any] | None) -> str:
    """With all but one token forbidden, what is sent of the first two tokens tells the four forms apart."""
    logprobs = probe.get("logprobs") if probe is not None else None
    content = logprobs.get("content") if isinstance(logprobs, dict) else None
    first = content[0] if isinstance(content, list) and content else None
    top = first.get("top_logprobs") if isinstance(first, dict) else None
    values = [item.get("logprob") for item in top if isinstance(item, dict)] if isinstance(top, list) else []
    numbers = [float(item) for item in values if isinstance(item, int | float) and not isinstance(item, bool)]
    if len(numbers) < 2:
        return ""
    likeliest, second = max(numbers), min(numbers)
    if second <= _CUT:
        return PROCESSED if abs(likeliest) < 1e-6 else "processed_logits"
    return RAW if likeliest <= 0.0 else "raw_logits"
