"""A double of vLLM's HTTP server on the wire: shapes of 0.32, errors, tokens of a tiny local policy."""

import asyncio
import json
import shutil
import socket
import struct
import tempfile
import threading
import weakref
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import ports

from dreamgym_kit.adapters.models.local import LocalPolicy, open_local
from dreamgym_kit.chat import ChatMessage, ChatRequest, ToolRequest
from dreamgym_kit.errors import EndpointError, UserError

MODES = {  # log-probs of the likeliest and of another token where top_k is 1
    "processed_logprobs": (0.0, -9999.0),
    "processed_logits": (3.1, -9999.0),
    "raw_logprobs": (-0.3, -1.7),
    "raw_logits": (3.1, 2.4),
}


class VllmDouble(ThreadingHTTPServer):
    """Serves a model directory under a name.

    `spoil` may change the body of a chat or completion before it is sent. `off` names what the server was not
    started with ("dev", "lora", "generate", "tools", "token_ids", "weight_info"); `drops` names routes that
    say 200 and do nothing, `swaps` weights that are read instead of those that were asked for.
    """

    daemon_threads = True

    def __init__(
        self, folder: Path, name: str = "policy-v0", port: int = 0, *, keeps_connections: bool = False
    ) -> None:
        self.policy = open_local(folder, version=name)
        self.name, self.folder = name, folder
        self.adapters: dict[str, LocalPolicy] = {}
        self.asked: list[dict[str, Any]] = []
        self.tokens: Counter[str] = Counter()
        self.sessions: list[str | None] = []
        self.managed: list[tuple[str, dict[str, Any]]] = []
        self.spoil: Callable[[dict[str, Any]], object] = lambda body: None
        self.off: set[str] = set()
        self.drops: set[str] = set()
        self.swaps: Path | None = None
        self.mode = "processed_logprobs"
        self.weight_version = "default"
        self.unpaused = threading.Event()
        self.unpaused.set()
        self.dead = False
        self.refusal = ""  # of everybody, in these words
        self.dies_after: int | None = None  # chat requests; those under way then get no answer either
        self.open: set[socket.socket] = set()
        ours = ports.kept(port)  # also when it is closed: another one can take its place
        weakref.finalize(self, ours.close)
        where = "127.0.0.1", int(ours.getsockname()[1])
        super().__init__(where, _KeepingHandler if keeps_connections else _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}/v1"
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def close(self) -> None:
        self.unpaused.set()
        self.shutdown()
        for kept in list(self.open):  # as a process that ends
            with suppress(OSError):
                kept.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self.server_close()
        for policy in (self.policy, *self.adapters.values()):
            policy.close()

    def counted(self) -> str:
        """Its `/metrics`."""
        said = {
            "prompt_tokens_total": self.tokens["prompt_tokens"],
            "generation_tokens_total": self.tokens["completion_tokens"],
            "num_requests_running": 0,
            "num_requests_waiting": 0,
        }
        return "".join(f"vllm:{name} {value}\n" for name, value in said.items())

    @property
    def killed(self) -> bool:
        return self.dies_after is not None and len(self.asked) > self.dies_after

    def of(self, model: str) -> "LocalPolicy":
        if model == self.name:
            return self.policy
        if model not in self.adapters:
            raise _Refused(404, "NotFoundError", f"The model `{model}` does not exist.")
        return self.adapters[model]


class _Refused(Exception):
    """A refusal as vLLM spells it."""

    def __init__(self, status: int, kind: str, message: str, param: str | None = None) -> None:
        self.status = status
        error = {"message": message, "type": kind, "param": param, "code": status}
        self.body: dict[str, Any] = {"error": error}


_MISSING = object()


class _Handler(BaseHTTPRequestHandler):
    server: VllmDouble

    def do_GET(self) -> None:
        self._answer({})

    def do_POST(self) -> None:
        said = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(json.loads(said) if said else {})

    def _answer(self, asked: dict[str, Any]) -> None:
        if not self.server.killed:
            self._answered(asked)
        if self.server.killed:  # like a process that was killed: the connection is reset, nothing is said
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True

    def _answered(self, asked: dict[str, Any]) -> None:
        status = 200
        try:
            if self.server.refusal:
                raise _Refused(401, "Unauthorized", self.server.refusal)
            if self.server.dead:
                raise _Refused(500, "InternalServerError", "EngineCore encountered an issue. See stack trace")
            if self.path == "/metrics":
                body = self.server.counted()
            else:
                body = self._generated(asked) if "completions" in self.path else manage(self, asked)
        except EndpointError as error:
            refused = _Refused(400, "BadRequestError", str(error), "input_tokens")
            status, body = 400, refused.body
        except _Refused as refused:
            status, body = refused.status, refused.body
        if body is _MISSING:
            status, body = 404, {"detail": "Not Found"}
        if self.server.killed:
            return
        text = body if isinstance(body, str) else json.dumps(body)
        sent = text.encode() if body is not None else b""
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)

    def _generated(self, asked: dict[str, Any]) -> dict[str, Any]:
        server = self.server
        server.unpaused.wait()  # as 0.32 does; 0.33 answers 503
        server.asked.append(asked)
        server.sessions.append(self.headers["X-Session-ID"])
        way = _chat if self.path == "/v1/chat/completions" else _complete
        body = asyncio.run(way(server, asked))
        server.tokens.update(body.get("usage", {}))
        server.spoil(body)
        return body

    def setup(self) -> None:
        super().setup()
        self.server.open.add(self.connection)

    def finish(self) -> None:
        self.server.open.discard(self.connection)
        super().finish()

    def log_message(self, *_: object) -> None:
        pass


class _KeepingHandler(_Handler):
    """Keeps connections open, as vLLM does."""

    protocol_version = "HTTP/1.1"


def manage(handler: _Handler, asked: dict[str, Any]) -> Any:
    """The routes beside chat: what it serves, adapters, weights."""
    server, path = handler.server, handler.path.partition("?")[0]
    server.managed.append((handler.path, asked))
    if path == "/v1/models":
        return _models(server)
    if path == "/version":
        return {"version": "0.32.0"}
    if path == "/inference/v1/generate":
        if "generate" in server.off:
            raise _Refused(403, "PermissionDeniedError", "start with --enable-scale-out")
        raise _Refused(400, "Bad Request", "2 validation errors", "body.token_ids")
    if path in ("/v1/load_lora_adapter", "/v1/unload_lora_adapter") and "lora" not in server.off:
        return _adapt(server, path, asked)
    if "dev" in server.off:
        return _MISSING
    return _developed(server, path, asked)


def _models(server: VllmDouble) -> dict[str, Any]:
    base = {"id": server.name, "object": "model", "owned_by": "vllm", "root": str(server.folder)}
    base |= {"parent": None, "max_model_len": server.policy.context}
    more = [{**base, "id": one, "root": one, "parent": server.name} for one in server.adapters]
    return {"object": "list", "data": [base, *more]}


def _adapt(server: VllmDouble, path: str, asked: dict[str, Any]) -> Any:
    name = asked["lora_name"]
    if path == "/v1/unload_lora_adapter":
        if name not in server.adapters:
            raise _Refused(404, "NotFoundError", f"The lora adapter '{name}' cannot be found.")
        server.adapters.pop(name).close()
        return None
    if name in server.adapters:
        raise _Refused(400, "InvalidUserInput", f"The lora adapter '{name}' has already been loaded.")
    folder = Path(asked["lora_path"])
    if not folder.is_dir():
        raise _Refused(404, "NotFoundError", f"Loading lora {name} failed: No adapter found for {folder}")
    if "/v1/load_lora_adapter" not in server.drops:
        server.adapters[name] = merged(server.folder, server.swaps or folder, name)
    return None


def merged(base: Path, adapter: Path, name: str) -> LocalPolicy:
    """The adapter on the model that the server was started with."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    from dreamgym_kit.adapters.models.folders import calm

    with calm(), tempfile.TemporaryDirectory() as beside:
        place = Path(beside) / "merged"
        shutil.copytree(base, place)
        model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), adapter)
        model.merge_and_unload().save_pretrained(place)
        return open_local(place, version=name)


def _developed(server: VllmDouble, path: str, asked: dict[str, Any]) -> Any:
    if path in server.drops:
        return {"success": True, "results": [None]}
    if path == "/is_paused":
        return {"is_paused": not server.unpaused.is_set()}
    if path in ("/pause", "/resume"):
        (server.unpaused.clear if path == "/pause" else server.unpaused.set)()
        return {"status": f"{path[1:].removesuffix('e')}ed"}
    if path == "/reset_prefix_cache":
        return {"success": True}
    if path == "/update_weight_version":
        server.weight_version = asked["new_version"]
        return {"success": True, "new_version": server.weight_version}
    if path == "/weight_info" and "weight_info" not in server.off:
        return {"weight_version": server.weight_version}
    if path == "/collective_rpc" and asked["method"] == "reload_weights":
        try:
            asyncio.run(
                server.policy.load(server.swaps or Path(asked["kwargs"]["weights_path"]), server.name)
            )
        except UserError as error:
            server.dead = True  # as vLLM is at the next request
            raise _Refused(500, "InternalServerError", str(error)) from error
        return {"results": [None]}
    return _MISSING


async def _chat(server: VllmDouble, asked: dict[str, Any]) -> dict[str, Any]:
    choice = asked.get("tool_choice", "auto")
    form = asked.get("response_format")
    if "tools" in server.off and asked.get("tools"):
        flags = "requires --enable-auto-tool-choice and --tool-call-parser to be set"
        raise _Refused(400, "BadRequestError", f'"auto" tool choice {flags}')
    reply = await server.of(asked["model"]).chat(
        ChatRequest(
            [_message(one) for one in asked["messages"]],
            schema=form["json_schema"]["schema"] if form else None,
            temperature=asked["temperature"],
            top_p=asked["top_p"],
            max_tokens=asked["max_tokens"],
            seed=asked.get("seed"),
            tools=asked.get("tools", ()),
            tool_choice=choice if isinstance(choice, str) else choice["function"]["name"],
            parallel_calls=asked.get("parallel_tool_calls", True),
            stop=tuple(asked.get("stop", ())),
            exact=True,
        )
    )
    tokens = reply.tokens
    assert tokens is not None
    message: dict[str, Any] = {"role": "assistant", "content": reply.content or None, "reasoning": None}
    if reply.tool_calls:  # there is no such field where there are none
        message["tool_calls"] = [
            {"id": one.id, "type": "function", "function": {"name": one.name, "arguments": one.args}}
            for one in reply.tool_calls
        ]
    first: dict[str, Any] = {"index": 0, "message": message, "finish_reason": reply.finish_reason}
    body = {"id": "chatcmpl-1", "object": "chat.completion", "model": asked["model"], "choices": [first]}
    if asked.get("logprobs"):
        first["logprobs"] = {
            "content": [
                {"token": f"token_id:{id_}", "logprob": logprob, "bytes": None, "top_logprobs": []}
                for id_, logprob in zip(tokens.ids, tokens.logprobs, strict=True)
            ]
        }
    if asked.get("top_k") == 1 and asked.get("logprobs"):
        told = [{"token": "x", "logprob": one, "bytes": None} for one in MODES[server.mode]]
        first["logprobs"]["content"][0]["top_logprobs"] = told
    body["kv_transfer_params"] = None
    if asked.get("return_token_ids") and "token_ids" not in server.off:
        first["token_ids"], body["prompt_token_ids"] = list(tokens.ids), list(tokens.prompt_ids)
    body["usage"] = {"prompt_tokens": reply.prompt_tokens, "completion_tokens": reply.completion_tokens}
    return body


def _message(said: dict[str, Any]) -> ChatMessage:
    calls = tuple(
        ToolRequest(one["function"]["name"], one["function"]["arguments"], one["id"])
        for one in said.get("tool_calls", ())
    )
    return ChatMessage(said["role"], said["content"] or "", calls, said.get("tool_call_id", ""))


async def _complete(server: VllmDouble, asked: dict[str, Any]) -> dict[str, Any]:
    ids, policy = asked["prompt"], server.of(asked["model"])
    choice: dict[str, Any] = {"index": 0, "text": "x", "finish_reason": "length"}
    if asked.get("prompt_logprobs") is not None:
        (scores,) = await policy.score([ids])
        pairs = zip(ids[1:], scores, strict=True)
        choice["prompt_logprobs"] = [None, *({str(one): {"logprob": lp, "rank": 1}} for one, lp in pairs)]
    else:
        drawn = (31 * asked["seed"] + 7) % 250  # any token is as good as another
        (scores,) = await policy.score([[*ids, drawn]])
        choice["token_ids"] = [drawn]
        choice["logprobs"] = {"tokens": ["x"], "token_logprobs": [scores[-1]], "top_logprobs": [None]}
    body = {"id": "cmpl-1", "object": "text_completion", "model": asked["model"], "choices": [choice]}
    return body | {"kv_transfer_params": None}
