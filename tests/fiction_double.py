"""A double of a chat model that imagines consistently, over HTTP, for any tools.

It reads only its prompt, as a model would. The world in its head is a function: a field of a thing has the
value that the digest of both gives, so equal questions and overlapping ones agree. It answers in the form
that a tool declares; a tool that declares none answers with a record of its arguments and two fields.
"""

import hashlib
import json
import re
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_PART = re.compile(r"<<(\w+) (\w+)\n(.*?)\n\1>>", re.DOTALL)
_ID = re.compile(r"\b[A-Za-z]+-?\d+\b")


class FictionDouble(ThreadingHTTPServer):
    """Serves /v1/chat/completions.

    Attributes:
        prompts: all that it was asked, as one text each, in order.
        questions: the last part of each of them, read.
        asked: how many requests came.
        heard: the newest prompt, which `spoil` may look at.
        spoil: changes a reply before it is sent; gets the question and the reply.
        status: of each next answer; 200 unless set.
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}/v1"
        self.prompts: list[str] = []
        self.replies: list[str] = []
        self.questions: list[Any] = []
        self.heard = ""
        self.asked = 0
        self.spoil: Callable[[Any, dict[str, Any]], object] = lambda question, reply: reply
        self.status: Callable[[Any], int] = lambda question: 200
        self.lock = threading.Lock()
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def close(self) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: FictionDouble
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        texts = [message["content"] for message in body["messages"]]
        parts = {name: text for text in texts for _, name, text in _PART.findall(text)}
        question = json.loads(parts["question"]) if "question" in parts else None
        if "call" in parts:
            question = json.loads(parts["call"])
        with self.server.lock:
            self.server.asked += 1
            self.server.heard = "\n".join(texts)
        if question is None:
            content = "ready"
        else:
            content = json.dumps(self.server.spoil(question, imagined(question, parts)))
        with self.server.lock:
            if question is not None:
                self.server.prompts.append("\n".join(texts))
                self.server.questions.append(question)
                self.server.replies.append(content)
        status = self.server.status(question)
        spoken = {"role": "assistant", "content": content}
        usage = {"prompt_tokens": sum(map(len, texts)) // 4, "completion_tokens": len(content) // 4}
        answer = {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1_700_000_000,
            "model": "fiction",
            "choices": [{"index": 0, "message": spoken, "finish_reason": "stop"}],
            "usage": usage | {"total_tokens": sum(usage.values())},
        }
        data = json.dumps(answer if status == 200 else {"error": {"message": "no"}}).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def imagined(question: Any, parts: dict[str, str]) -> dict[str, Any]:
    """The reply to a question, from the parts of its prompt."""
    tools = {tool["name"]: tool for tool in map(json.loads, parts.get("tools", "").splitlines())}
    for name, form in json.loads(parts.get("forms", "{}")).items():
        tools[name]["answers"] = form
    if question == "rules":
        return {"reasoning": "as it always goes", "file": _program(json.loads(parts["tool"]))}
    if question == "entities":
        return {"reasoning": "what the task names", "facts": _entities(parts["task"], tools)}
    tool, args = json.loads(parts["tool"]), question["args"]
    reply = {"reasoning": "so it is", "outcome": "ok", "error": "", "changes": []}
    if tool["effect"] == "read":
        return reply | {"answer": _read(tool, args)}
    names = [name for name in args if name.endswith("id")]
    new = "N" + _digits(question["tool"], json.dumps(args, sort_keys=True))
    entity = str(args[names[0]]) if names else new
    kind = "update" if names else "create"
    fields = {name: value for name, value in args.items() if name not in names} | (
        {} if names else {"id": new}
    )
    change = {"entity": entity, "change": kind, "fields": fields}
    return reply | {"answer": _formed(tool, {**args, "id": entity}, entity), "changes": [change]}


def _program(tool: dict[str, Any]) -> str:
    """The rules of a write as it answers: it changes what its first ID names, else it makes a thing."""
    args = list(tool["args"].get("properties", {}))
    needed = [name for name in args if name in tool["args"].get("required", ())]
    names = [name for name in args if name.endswith("id")]
    fields = ", ".join(f'"{name}": Get("args.{name}")' for name in args if name not in names)
    given = ", ".join(f'"{name}": Get("args.{name}")' for name in needed if name != "id")
    entity = f'Get("args.{names[0]}")' if names else 'MadeUp("N100042")'
    made = f"[inserts]\nid = 'Insert(Get(\"result.id\"), {{{fields}}}, [], 1)'"
    if names:
        made = f"[updates]\n\"{names[0]}<args.{names[0]}>\" = 'Assign({{{fields}}}, [], None, 1)'"
    answer = f'MakeRecord({{"id": {entity}, {given}}})'
    return (
        f"arguments = {args}\nwrites = true\ndecides = '\"ok\"'\n[outcomes.ok]\nanswer = '{answer}'\n{made}\n"
    )


def _entities(task: str, tools: dict[str, Any]) -> list[dict[str, Any]]:
    facts = []
    for name in dict.fromkeys(_ID.findall(task)):
        for tool in tools.values():
            needed = [name for name in tool["args"] if not name.endswith("?")]
            if tool["effect"] == "read" and len(needed) == 1 and needed[0].endswith("id"):
                args = {needed[0]: name}
                facts.append({"tool": tool["name"], "args": args, "answer": _read(tool, args)})
    return facts[:6]


def _read(tool: dict[str, Any], args: dict[str, Any]) -> Any:
    named = next((str(value) for name, value in args.items() if name.endswith("id")), None)
    return _formed(tool, args, named or json.dumps(args, sort_keys=True))


def _formed(tool: dict[str, Any], args: dict[str, Any], entity: str) -> Any:
    schema = tool.get("answers", {})
    if not {"properties", "items", "$ref", "anyOf"} & set(schema) and schema.get("type") in (None, "object"):
        return {"id": entity, "name": _word(entity, "name"), "level": int(_digits(entity, "level")) % 90}
    return _made(schema, schema.get("$defs", {}), args, entity, "")


def _made(schema: dict[str, Any], known: dict[str, Any], args: dict[str, Any], entity: str, name: str) -> Any:
    """A value of a schema: what the call says of a field, else what its thing's digest gives."""
    if "$ref" in schema:
        schema = known[schema["$ref"].rpartition("/")[2]]
    for option in schema.get("anyOf", schema.get("oneOf", ()))[:1]:
        return _made(option, known, args, entity, name)
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type", "string")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object":
        fields = schema.get("properties", {})
        own = _word(entity, name) if name else entity
        return {key: _made(inner, known, args, own, key) for key, inner in fields.items()}
    if kind == "array":
        rows = range(2)
        return [_made(schema.get("items", {}), known, {}, f"{entity}-{name}-{row}", name) for row in rows]
    if name == "id" or name.endswith("_id"):
        return args.get(name, entity if kind == "string" else int(_digits(entity, name)))
    if name in args and isinstance(args[name], str if kind == "string" else (int, float)):
        return args[name]
    if kind in ("integer", "number"):
        return int(_digits(entity, name)) % 90
    return kind == "boolean" or (None if kind == "null" else _word(entity, name))


def _digits(*parts: str) -> str:
    return str(int(hashlib.sha256("/".join(parts).encode()).hexdigest()[:6], 16))


def _word(*parts: str) -> str:
    return "w" + hashlib.sha256("/".join(parts).encode()).hexdigest()[:7]
