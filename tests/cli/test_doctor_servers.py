"""`doctor --server`: which routes of a server answer without a key, found by GET alone."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from ports import own_port

from dreamgym_kit.cli.doctor import Check, look_at_server
from dreamgym_kit.errors import UserError

OPEN_IN_VLLM = {"/health": 200, "/version": 200, "/metrics": 200, "/tokenize": 405, "/collective_rpc": 405}
patient_look = partial(look_at_server, timeout_s=100.0)  # a busy machine answers late


@contextmanager
def server_double(status: Callable[[str], int]) -> Iterator[tuple[str, list[str]]]:
    """Answers each path with a status; writes down what it was asked."""
    asked: list[str] = []

    class Routes(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.command)
            self.send_response(status(self.path))
            self.send_header("content-length", "0")
            self.end_headers()

        do_POST = do_PUT = do_DELETE = do_GET

        def log_message(self, *told: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Routes) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join()


def test_open_routes_are_told_by_what_they_let_anybody_do() -> None:
    with server_double(lambda path: OPEN_IN_VLLM.get(path, 401 if path.startswith("/v1") else 404)) as (
        url,
        asked,
    ):
        found = patient_look(f"{url}/v1")
    assert [(one.level, one.text) for one in found] == [
        ("fix", f"{url} tells what it does without a key: /metrics"),
        ("fix", f"{url} works for anybody without a key: /tokenize"),
        ("fix", f"{url} lets anybody change weights or caches without a key: /collective_rpc"),
    ]
    assert set(asked) == {"GET"}


def test_a_closed_server_is_well() -> None:
    with server_double(lambda path: 200 if path == "/health" else 401) as (url, _):
        assert patient_look(url) == [Check("ok", "server", f"{url}: without a key only /health")]


def test_a_server_that_is_not_there_and_an_address_that_is_never_asked_are_told() -> None:
    url = f"http://127.0.0.1:{own_port()}"
    (gone,) = patient_look(f"{url}/v1")
    assert (gone.level, gone.text) == ("fix", f"nothing answers at {url}")
    with pytest.raises(UserError, match="metadata service"):
        look_at_server("http://169.254.169.254/")
    with pytest.raises(UserError, match="--server: an endpoint is an http or https URL"):
        look_at_server("file:///etc/passwd")


def test_changing_weights_from_elsewhere_stops_a_dry_run(monkeypatch: pytest.MonkeyPatch) -> None:
    from dreamgym_kit.adapters.models.vllm import launch

    monkeypatch.setattr(launch, "is_loopback", lambda host: False)
    with server_double(lambda path: 405 if path == "/pause" else 401) as (url, _):
        (found,) = patient_look(url)
    assert (found.level, "/pause" in found.text) == ("stop", True)
