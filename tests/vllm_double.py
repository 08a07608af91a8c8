"""A double of vLLM's HTTP server on the wire: shapes of 0.32, errors, tokens of a tiny local policy."""

import asyncio
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from dreamgym_kit.adapters.models.local import open_local
from dreamgym_kit.chat import ChatMessage, ChatRequest, ToolRequest
from dreamgym_kit.errors import EndpointError


class VllmDouble(ThreadingHTTPServer):
    """Serves a model directory under a name. `spoil` may change a body before it is sent."""

    daemon_threads = True

    def __init__(self, folder: Path, name: str = "policy-v0") -> None:
        self.policy = open_local(folder, version=name)
        self.name = name
        self.asked: list[dict[str, Any]] = []
        self.spoil: Callable[[dict[str, Any]], object] = lambda body: None
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}/v1"
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def close(self) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()
        self.policy.close()


class _Handler(BaseHTTPRequestHandler):
    server: VllmDouble

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(asked)
        way = _chat if self.path == "/v1/chat/completions" else _complete
        status = 200
        try:
            body = asyncio.run(way(self.server, asked))
            self.server.spoil(body)
        except EndpointError as error:
            status = 400
            body = {
                "error": {
                    "message": str(error),
                    "type": "BadRequestError",
                    "param": "input_tokens",
                    "code": 400,
                }
            }
        sent = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)

    def log_message(self, *_: object) -> None:
        pass


async def _chat(server: VllmDouble, asked: dict[str, Any]) -> dict[str, Any]:
    choice = asked.get("tool_choice", "auto")
    form = asked.get("response_format")
    reply = await server.policy.chat(
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
    if asked.get("return_token_ids"):
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
    ids = asked["prompt"]
    (scores,) = await server.policy.score([ids])
    told = [None, *({str(one): {"logprob": lp, "rank": 1}} for one, lp in zip(ids[1:], scores, strict=True))]
    choice = {"index": 0, "text": "x", "finish_reason": "length", "prompt_logprobs": told}
    return {"id": "cmpl-1", "object": "text_completion", "model": asked["model"], "choices": [choice]}
