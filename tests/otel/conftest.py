"""Runs to export, and an OTLP endpoint that really listens, decodes protobuf and answers as told."""

import gzip
import threading
from collections.abc import Callable, Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from dreamgym_kit.rollout.rundir import Manifest, RunDirectory
from dreamgym_kit.types import (
    Answer,
    Call,
    Effect,
    Environment,
    Episode,
    Finding,
    Source,
    Transition,
    Verdict,
)

BEGUN = 1_795_271_485.0
Write = Callable[..., Path]


@pytest.fixture
def write_run(tmp_path: Path) -> Write:
    """Write a run of these episodes and give its directory."""

    def write(episodes: Iterable[Episode], name: str = "a-run") -> Path:
        manifest = Manifest("7f3a", BEGUN, {"mode": "dream", "graph": "shop:graph", "n": 1, "seed": 5})
        with RunDirectory.create(tmp_path / "runs", name, manifest) as directory:
            with directory.journal() as journal:
                for episode in episodes:
                    journal.append(episode)
            return directory.path

    return write


def a_call(step: int, tool: str, content: Any, **answer: Any) -> Transition:
    told = Answer(content, answer.pop("source", Source.DERIVED), 0.75, **answer)
    asked = Call(tool, {"order": "o1", "n": step}, call_id=f"c{step}", node="tools")
    effect = Effect.DESTRUCTIVE if tool == "refund" else Effect.READ
    return Transition(
        asked, told, effect, "t.1", step, Environment("shop", 3), "t", elapsed_s=0.5, recorded_at=BEGUN + step
    )


@pytest.fixture
def run_dir(write_run: Write, episode: Episode) -> Path:
    """The directory of a run of that one episode."""
    return write_run([episode])


@pytest.fixture
def episode() -> Episode:
    """Looks an order up, refunds it, and the refund times out."""
    steps = (
        a_call(1, "look", "captured"),
        a_call(2, "refund", None, source=Source.FAULT, error="no answer", error_type="TimeoutError"),
    )
    asked = [{"id": one.call.call_id, "name": one.call.tool, "args": dict(one.call.args)} for one in steps]
    return Episode(
        id="t.1",
        task="t",
        repeat=1,
        environment=Environment("shop", 3),
        verdict=Verdict.FAILED,
        reason="not refunded",
        transitions=steps,
        messages=(
            {"role": "user", "content": "Refund o1."},
            {"role": "assistant", "content": "On it.", "tool_calls": [asked[0]]},
            {"role": "tool", "content": "captured", "tool_call_id": "c1"},
            {"role": "assistant", "content": "", "tool_calls": [asked[1]]},
            {"role": "tool", "content": "no answer", "tool_call_id": "c2", "status": "error"},
            {"role": "assistant", "content": "It failed."},
        ),
        reward=0.25,
        findings=(Finding("swallowed_error", "told nobody", (2,), "critical"),),
        started_at=BEGUN,
        elapsed_s=4.0,
    )


class Collector:
    """What was sent to it, decoded; `answers` are given in turn, then 200 for ever."""

    def __init__(self) -> None:
        self.requests: list[ExportTraceServiceRequest] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.answers: list[tuple[int, dict[str, str], bytes]] = []
        self.url = ""

    def spans(self) -> list[Any]:
        return [
            span
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]


@pytest.fixture
def collector() -> Iterator[Collector]:
    """A server on this machine."""
    seen = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            seen.paths.append(self.path)
            seen.headers.append({name.lower(): value for name, value in self.headers.items()})
            done = (200, {"content-type": "application/x-protobuf"}, b"")
            status, headers, content = seen.answers.pop(0) if seen.answers else done
            if status == 200:
                seen.requests.append(ExportTraceServiceRequest.FromString(body))
            self.send_response(status)
            for name, value in {**headers, "content-length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    seen.url = f"http://127.0.0.1:{server.server_port}"
    yield seen
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def refusing() -> tuple[int, dict[str, str], bytes]:
    """The answer of an endpoint that kept all spans but one."""
    answer = ExportTraceServiceResponse()
    answer.partial_success.rejected_spans = 1
    answer.partial_success.error_message = "one is too old"
    return 200, {"content-type": "application/x-protobuf"}, answer.SerializeToString()
