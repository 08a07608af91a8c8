"""A server of `/v1/embeddings` on this machine that can be told how to fail."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class EmbeddingServerDouble(ThreadingHTTPServer):
    """Says of a text how long it is and how many "a" it holds.

    Attributes:
        failing: statuses, or whole bodies, of the next answers.
        way: from the `after`-th request on, how it goes wrong: "slow", "other" (longer vectors), "page"
            (no JSON) or "fails".
        hurried: ends what is slow.
        seen: path, key and number of texts of each request.
    """

    daemon_threads = True

    def __init__(self) -> None:
        self.failing: list[int | bytes] = []
        self.way, self.after = "", 0
        self.hurried = threading.Event()
        self.seen: list[tuple[str, str | None, int]] = []
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}/v1"

    @property
    def asked(self) -> int:
        """Requests so far."""
        return len(self.seen)


@contextmanager
def embedding_server() -> Iterator[EmbeddingServerDouble]:
    """One that listens in the block."""
    server = EmbeddingServerDouble()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.hurried.set()
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: EmbeddingServerDouble

    def do_POST(self) -> None:
        texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["input"]
        self.server.seen.append((self.path, self.headers["Authorization"], len(texts)))
        status, body = self._answer(texts)
        self.send_response(status)
        self.send_header("Location", "http://169.254.169.254/")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _answer(self, texts: list[str]) -> tuple[int, bytes]:
        failing = self.server.failing.pop(0) if self.server.failing else 200
        if isinstance(failing, bytes):
            return 200, failing
        way = self.server.way if self.server.asked > self.server.after else ""
        if way == "slow":
            self.server.hurried.wait()
        if way == "page":
            return 200, b"<html>"
        size = 5 if way == "other" else 3
        rows = [
            {"index": place, "embedding": [len(text), text.count("a"), 2.5, 1, 1][:size]}
            for place, text in enumerate(texts)
        ]
        return 500 if way == "fails" else failing, json.dumps({"data": rows[::-1]}).encode()

    def log_message(self, *_: object) -> None:
        pass
