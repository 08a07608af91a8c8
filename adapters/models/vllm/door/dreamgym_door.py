"""Stands before every route of a vLLM server, inside its process: who may come in at all?

vLLM's own key guards `/v1` and `/inference` and leaves the rest open: metrics, tokenizer, and, in development
mode, routes that load weights. Here every route but `/health` asks for it. Pages of other sites are turned
away by their Origin, and, where this machine alone is served, by the Host that they think they speak to: a
name that was rebound to this machine is not its name. While the server drains, nothing new comes in.

It runs in vLLM's environment, so it imports the standard library alone; `--middleware` names it.
"""

import hmac
import json
import os
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

_OPEN = "/health"  # tells that it lives, and nothing else
_HERE = ("localhost", "127.0.0.1", "::1")
_UNDER_WAY = "/dreamgym/under-way"

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Door:
    """ASGI middleware; key and drain file come from the environment."""

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self._app = app
        self._key = os.environ.get("VLLM_API_KEY", "").strip()
        self._draining = os.environ.get("DREAMGYM_DRAINING", "")
        self._here_only = bool(os.environ.get("DREAMGYM_HERE_ONLY"))  # it is bound to this machine alone
        self._under_way = 0

    async def __call__(self, scope: Scope, receive: Callable[[], Awaitable[Any]], send: Send) -> None:
        """Pass on, or answer."""
        refused = self._refused(scope) if scope["type"] in ("http", "websocket") else None
        if refused is not None and scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        elif refused is not None:
            await _refuse(send, *refused)
        elif _asks(scope):
            self._under_way += 1
            try:
                await self._app(scope, receive, send)
            finally:
                self._under_way -= 1
        elif scope.get("path") == _UNDER_WAY:
            await _answer(send, 200, {"under_way": self._under_way})
        else:
            await self._app(scope, receive, send)

    def _refused(self, scope: Scope) -> tuple[int, str] | None:
        """Status and reason, or None: it may come in."""
        headers: dict[str, str] = {}
        for name, value in scope.get("headers", ()):
            headers.setdefault(name.decode("latin-1").lower(), value.decode("latin-1"))
        if "origin" in headers:
            return 403, "asked by a web page: this server is for programs"
        if self._here_only and _host(headers.get("host", "")) not in _HERE:
            return 403, "the Host is not this machine's"
        if scope.get("path") == _OPEN:
            return None
        if self._key and not self._knows(headers.get("authorization", "")):
            return 401, "Unauthorized"
        if self._draining and _asks(scope) and Path(self._draining).exists():
            return 503, "the server is being stopped"
        return None

    def _knows(self, header: str) -> bool:
        scheme, _, key = header.partition(" ")
        return scheme.lower() == "bearer" and hmac.compare_digest(key.strip().encode(), self._key.encode())


def _asks(scope: Scope) -> bool:
    """Whether it wants work done; looks at the server go on while it drains."""
    return scope["type"] == "websocket" or scope.get("method") == "POST"


async def _refuse(send: Send, status: int, why: str) -> None:
    """Answer in the form of vLLM's own errors."""
    error = {"message": why, "type": "Refused", "param": None, "code": status}
    await _answer(send, status, {"error": error}, *([(b"retry-after", b"1")] if status == 503 else []))


async def _answer(send: Send, status: int, content: object, *more: tuple[bytes, bytes]) -> None:
    body = json.dumps(content).encode("ascii")
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode("ascii"))]
    await send({"type": "http.response.start", "status": status, "headers": [*headers, *more]})
    await send({"type": "http.response.body", "body": body})


def _host(header: str) -> str:
    """The host of a Host header, without its port."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0].lower().rstrip(".")
