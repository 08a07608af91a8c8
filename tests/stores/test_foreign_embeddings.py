"""`buffer search` over somebody's embeddings endpoint that fails, is slow or gives other vectors.

Each is named in one line with code 2; the rows stay, and are found by vectors once the endpoint is well.
"""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dreamgym_kit.adapters.embedders import choosing
from dreamgym_kit.adapters.embedders.endpoint import EndpointEmbedder
from dreamgym_kit.adapters.stores.opening import opened_to_add
from dreamgym_kit.adapters.stores.sqlite import SqliteStore
from dreamgym_kit.cli.main import app
from dreamgym_kit.errors import UserError
from dreamgym_kit.settings.load import load_settings
from dreamgym_kit.vocabulary import Answer, Call, Effect, Transition


class ForeignServerDouble(ThreadingHTTPServer):
    """Speaks `/v1/embeddings`, well or in one of the ways of `way`, from the `after`-th request on."""

    daemon_threads = True

    def __init__(self) -> None:
        self.way, self.after, self.asked = "", 0, 0
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}/v1"


class _Handler(BaseHTTPRequestHandler):
    server: ForeignServerDouble

    def do_POST(self) -> None:
        self.server.asked += 1
        texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["input"]
        way = self.server.way if self.server.asked > self.server.after else ""
        if way == "slow":
            time.sleep(1.5)
        size = 5 if way == "other" else 3
        rows = [
            {"index": place, "embedding": [len(text), text.count("a"), 2.5, 1, 1][:size]}
            for place, text in enumerate(texts)
        ]
        body = b"<html>" if way == "page" else json.dumps({"data": rows}).encode()
        self.send_response(500 if way == "fails" else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[ForeignServerDouble]:
    server = ForeignServerDouble()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


ROWS = 70  # more than one request takes


@pytest.fixture
def project(tmp_path: Path, server: ForeignServerDouble, monkeypatch: pytest.MonkeyPatch) -> Path:
    class Quick(EndpointEmbedder):
        def __init__(self, *args: object, **more: object) -> None:
            super().__init__(*args, **{**more, "wait_s": 0.01, "timeout_s": 0.3})

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(choosing, "EndpointEmbedder", Quick)
    (tmp_path / "dreamgym.toml").write_text(
        f'[replay]\nembedder = "{server.url}"\nembedder_model = "small"\nembedder_dimension = 3\n'
    )
    rows = [
        Transition(Call("get", {"id": step}), Answer(f"a lamp {'a' * step}"), Effect.READ, "t.1", step)
        for step in range(1, ROWS + 1)
    ]
    with opened_to_add(tmp_path / "dreamgym.db", load_settings(environ={})) as store:
        store.put(rows)
    return tmp_path


def search(*more: str):
    return CliRunner().invoke(app, ["buffer", "search", "lamp", "--json", *more])


@pytest.mark.parametrize(
    "after", [0, 1, None], ids=["from the start", "in the middle of the vectors", "once all had been made"]
)
@pytest.mark.parametrize(
    ("way", "said"),
    [
        ("fails", "answered HTTP 500"),
        ("slow", "cannot be reached"),
        ("page", "answered no JSON"),
        ("other", "gave vectors of shape ("),
    ],
)
def test_an_endpoint_that_goes_wrong_is_named_and_nothing_is_lost(
    project: Path, server: ForeignServerDouble, way: str, said: str, after: int | None
) -> None:
    if after is None:
        assert search().exit_code == 0
        after = server.asked
    server.way, server.after = way, after
    done = search()
    assert isinstance(done.exception, UserError)
    assert f"{server.url}/embeddings: {said}" in str(done.exception)
    assert "check the endpoint, its model 'small' and the dimension" in str(done.exception)
    with closing(SqliteStore(project / "dreamgym.db", read_only=True)) as store:
        assert store.count() == ROWS
    server.way = ""
    found = json.loads(search().stdout)["hits"]
    assert {place for hit in found for place in hit["places"]} == {"words", "vectors"}
