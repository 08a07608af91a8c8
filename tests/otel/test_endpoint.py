"""An OTLP/HTTP endpoint gets all spans, once, with headers; what it does not take is said with its reason."""

import contextlib
import gzip
import logging
import socket
import socketserver
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from each_row import each_row

from dreamgym_kit.adapters.otel.sinks import export_run, headers_from, traces_url
from dreamgym_kit.errors import UserError
from dreamgym_kit.rollout.rundir import RunDirectory
from dreamgym_kit.types import Episode

Write = Callable[[Iterable[Episode]], Path]
SECRET = "c2VjcmV0LWtleS1vZi1zb21lYm9keQ"


@pytest.fixture
def directory(write_run: Write, episode: Episode) -> RunDirectory:
    return RunDirectory.open(write_run([episode, replace(episode, id="t.2", repeat=2)]))


@pytest.fixture(autouse=True)
def nothing_of_the_users_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HEADERS", "TRACES_HEADERS", "ENDPOINT", "COMPRESSION"):
        monkeypatch.delenv(f"OTEL_EXPORTER_OTLP_{name}", raising=False)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "60")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def no_long_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """For what is never answered."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")


def test_all_spans_arrive_as_protobuf_with_the_headers(
    directory: RunDirectory, collector: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUR_HEADERS", f"authorization=Basic {SECRET},x-project=shop")
    done = export_run(directory, collector.url, headers="OUR_HEADERS")
    assert (done.to, done.episodes, done.spans, done.refused) == (f"{collector.url}/v1/traces", 2, 12, 0)
    assert collector.paths == ["/v1/traces"]
    assert collector.headers[0]["content-type"] == "application/x-protobuf"
    assert collector.headers[0]["authorization"] == f"Basic {SECRET}"
    assert collector.headers[0]["x-project"] == "shop"
    spans = collector.spans()
    assert sorted({span.name for span in spans}) == [
        "chat",
        "execute_tool look",
        "execute_tool refund",
        "invoke_agent shop:graph",
    ]
    call = next(span for span in spans if span.name == "execute_tool look")
    known = {one.key: one.value for one in call.attributes}
    assert known["gen_ai.tool.call.result"].string_value == "captured"
    assert known["dreamgym.dreamt"].bool_value is True
    assert len({span.trace_id for span in spans}) == 2


def test_the_usual_variables_hold_too(
    directory: RunDirectory, collector: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"api-key={SECRET}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    export_run(directory, f"{collector.url}/api/public/otel/v1/traces")
    assert collector.paths == ["/api/public/otel/v1/traces"]
    assert collector.headers[0]["api-key"] == SECRET
    assert len(collector.spans()) == 12


def test_a_long_run_goes_in_several_requests_and_each_span_once(
    write_run: Write, episode: Episode, collector: Any
) -> None:
    many = [replace(episode, id=f"t.{number}", repeat=number) for number in range(1, 201)]
    export_run(RunDirectory.open(write_run(many)), collector.url)
    names = [(span.trace_id, span.span_id) for span in collector.spans()]
    assert len(names) == len(set(names)) == 1_200
    assert [len(request.resource_spans[0].scope_spans[0].spans) for request in collector.requests] == [
        500,
        500,
        200,
    ]


def test_an_endpoint_that_is_busy_is_asked_again(directory: RunDirectory, collector: Any) -> None:
    collector.answers = [(503, {"retry-after": "0"}, b"busy")]
    assert export_run(directory, collector.url).spans == 12
    assert len(collector.paths) == 2


@each_row(
    ("status", "before"), [*((one, 0) for one in (400, 401, 403, 404, 413, 500)), (401, 250), (401, 282)]
)
def test_a_refusal_is_said_with_its_reason_and_without_the_key(
    directory: RunDirectory,
    collector: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    status: int,
    before: int,
) -> None:
    """Wherever the key stands, and whatever it looks like: it would be UTF-16 to who guesses."""
    monkeypatch.setenv("OUR_HEADERS", f"authorization=Bearer {SECRET}")
    said = f"{'x' * before}bad key {SECRET} \x1b[31m no: Bearer {SECRET}\x1b[2J"
    collector.answers = [(status, {}, said.encode())] * 9
    with pytest.raises(UserError) as told, caplog.at_level(logging.DEBUG, "opentelemetry"):
        export_run(directory, collector.url, headers="OUR_HEADERS")
    assert str(told.value).startswith(f"{collector.url}/v1/traces: refused the spans (HTTP {status} ")
    assert "after it accepted 0. Nothing is lost" in str(told.value)
    assert "x" * min(before, 270) in str(told.value)
    assert SECRET[:4] not in str(told.value)
    assert "\\u" not in str(told.value)  # the same letters, spelt two by two
    assert "\x1b" not in str(told.value)
    assert capfd.readouterr().err == ""


def test_a_web_page_is_no_success(directory: RunDirectory, collector: Any) -> None:
    collector.answers = [(200, {"content-type": "text/html; charset=utf-8"}, b"<html>sign in</html>")]
    with pytest.raises(UserError, match="HTTP 200 with a web page: not an OTLP endpoint"):
        export_run(directory, collector.url)


def test_an_answer_that_unpacks_without_end_is_cut(directory: RunDirectory, collector: Any) -> None:
    packed = gzip.compress(b"a" * 200_000_000, 1)
    collector.answers = [(400, {"content-encoding": "gzip"}, packed)]
    tracemalloc.start()
    with pytest.raises(UserError, match="HTTP 400"):
        export_run(directory, collector.url)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20_000_000


@pytest.mark.usefixtures("no_long_waits")
def test_an_answer_that_drips_ends_with_the_time_out(directory: RunDirectory) -> None:
    class Drip(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(OSError):  # the caller has left
                self.request.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")
                while True:
                    self.request.sendall(b"x")
                    time.sleep(0.1)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Drip) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            # It drips for ever, so what ends it is the time-out; on a read alone where this process stalls.
            with pytest.raises(UserError, match=r"the answer did not end in time|timed out"):
                export_run(directory, f"http://127.0.0.1:{server.server_address[1]}")
        finally:
            server.shutdown()
            thread.join()


def test_a_redirect_is_not_followed_and_no_success(
    directory: RunDirectory, collector: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUR_HEADERS", f"x-key={SECRET}")
    collector.answers = [(302, {"location": f"{collector.url}/login"}, b"")]
    with pytest.raises(UserError, match="HTTP 302"):
        export_run(directory, collector.url, headers="OUR_HEADERS")
    assert collector.paths == ["/v1/traces"]


def test_spans_that_an_endpoint_did_not_keep_are_told(
    directory: RunDirectory, collector: Any, refusing: tuple[int, dict[str, str], bytes]
) -> None:
    collector.answers = [refusing]
    done = export_run(directory, collector.url)
    assert done.refused == 1
    assert done.warnings == (f"{collector.url}/v1/traces: 1 spans were refused (one is too old)",)


@pytest.mark.usefixtures("no_long_waits")
def test_an_endpoint_that_nobody_listens_at_is_named(directory: RunDirectory) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(UserError, match=r"/v1/traces: refused the spans \(ConnectionError: "):
            export_run(directory, url)


@each_row(
    ("given", "address"),
    [
        ("http://localhost:4318", "http://localhost:4318/v1/traces"),
        ("http://localhost:6006/v1/traces/", "http://localhost:6006/v1/traces"),
        ("https://api.smith.langchain.com/otel", "https://api.smith.langchain.com/otel/v1/traces"),
        ("http://[::1]:4318/", "http://[::1]:4318/v1/traces"),
    ],
)
def test_the_path_for_traces_is_added_where_it_is_missing(given: str, address: str) -> None:
    assert traces_url(given) == address


@each_row(
    "url",
    ["http://", "http://h:99999", "http://u:s3cr3t@host", "http://host?key=s3cr3t", "http://host#s3cr3t"],
)
def test_an_address_with_a_key_or_without_a_host_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(UserError, match="-o otel: ") as told:
        traces_url(url)
    assert "s3cr3t" not in str(told.value)


@each_row(
    ("variable", "content", "why"),
    [
        ("MISSING", None, "the environment variable MISSING is not set"),
        ("KEY", SECRET, "KEY does not contain valid headers"),
        ("KEY", f"a=1,{SECRET}", "KEY does not contain valid headers"),
        (f"authorization=Bearer {SECRET}", None, "not the headers themselves"),
    ],
)
def test_headers_come_from_a_variable_and_are_not_repeated(
    variable: str, content: str | None, why: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UserError, match=why) as told:
        headers_from(variable, {} if content is None else {variable: content})
    assert SECRET not in str(told.value) + capfd.readouterr().err
