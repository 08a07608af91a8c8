"""Send the spans of a run directory to an OTLP/JSON file or an OTLP/HTTP endpoint, in batches.

One episode is in memory at a time.

The file has one ExportTraceServiceRequest per line, the form that collectors read
(https://opentelemetry.io/docs/specs/otel/protocol/file-exporter/). The SDK encodes; protobuf's JSON has IDs
in base64, OTLP requires hex, so only the IDs are converted here.

The SDK's exporter sends to an endpoint. It controls encoding, compression, proxies, certificates, timeouts
and retries (by the usual OTEL_EXPORTER_OTLP_* variables), but reports only success or failure, with the
reason in a log. A `requests` session that records the last answer gives the reason to the user. It follows
no redirect, because headers contain keys, and a redirect is not a success. Answers are read with limits of
size and time: a server that drips, never ends or decompresses to gigabytes costs no more than "ok".
"""

import base64
import io
import json
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from os import environ
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.util.re import parse_env_headers

from dreamgym_kit.adapters.otel.episode_spans import RunFacts, Value, cleaned, episode_spans
from dreamgym_kit.errors import UserError
from dreamgym_kit.replay.masking import Masker, masked_answer, process_masker
from dreamgym_kit.report.sanitize import one_line
from dreamgym_kit.rollout.atomic_files import is_folder, replacing, write_whole
from dreamgym_kit.rollout.journal import masked_episode
from dreamgym_kit.rollout.rundir import Manifest, RunDirectory
from dreamgym_kit.types import Episode, Transition

_IDS = ("traceId", "spanId", "parentSpanId")
_spell = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


@contextmanager
def file_sink(path: Path) -> Iterator[Callable[[Sequence[ReadableSpan]], None]]:
    """Yield a function that writes spans as one line; the file appears, complete, when the block ends.

    Raises:
        RunDirectoryError: the file cannot be written; the old file stays.
    """
    with replacing(path) as descriptor:
        yield lambda spans: write_whole(descriptor, _spell(as_otlp_json(spans)).encode("utf-8") + b"\n")


def as_otlp_json(spans: Sequence[ReadableSpan]) -> dict[str, Any]:
    """Convert spans to an ExportTraceServiceRequest in OTLP's JSON encoding."""
    request: dict[str, Any] = MessageToDict(encode_spans(spans), use_integers_for_enums=True)
    for resource in request.get("resourceSpans", ()):
        for scope in resource.get("scopeSpans", ()):
            for span in scope.get("spans", ()):
                for name in _IDS:
                    if name in span:
                        span[name] = base64.b64decode(span[name]).hex()
    return request


TRACES = "/v1/traces"
_BY_DEFAULT = ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS")
_LONGEST = 300  # maximum characters of an endpoint's text, cut after masking secrets
_PATIENCE_S = 10.0


class _RecordingSession(requests.Session):
    """A session that records the result of the last request."""

    def __init__(self) -> None:
        super().__init__()
        self.outcome = "no answer"
        self.status = 0
        self.refused = 0  # spans refused by the endpoint's own count

    def request(self, *args: Any, **options: Any) -> requests.Response:
        options |= {"allow_redirects": False, "stream": True}
        self.status, timeout = 0, options.get("timeout")
        if isinstance(timeout, tuple):  # (connect, read), in seconds
            timeout = timeout[-1]
        patience = float(timeout) if isinstance(timeout, int | float) else _PATIENCE_S
        try:
            response = read_answer(super().request(*args, **options), patience)
        except requests.RequestException as error:
            self.outcome = _connection_failure(error)
            raise
        self.status = response.status_code
        kind = response.headers.get("content-type", "")
        if 200 <= response.status_code < 300 and kind.startswith("text/html"):
            self.status = 0
            self.outcome = f"HTTP {response.status_code} with a web page: not an OTLP endpoint"
            return response
        text = response.text if not 200 <= response.status_code < 300 else ""
        self.outcome = " ".join(f"HTTP {response.status_code} {response.reason or ''} {text}".split())
        if not text and "protobuf" in kind:
            self._record(response.content)
        return response

    def _record(self, content: bytes) -> None:
        try:
            partial = ExportTraceServiceResponse.FromString(content).partial_success
        except DecodeError:
            return
        self.refused += partial.rejected_spans
        self.outcome = partial.error_message or self.outcome


class EndpointSink:
    """Sends spans, one request per batch. Close it after use.

    Attributes:
        sent: spans that the endpoint accepted.
        refused: spans that it refused, by its own count.

    Raises:
        UserError: the address or its headers cannot be used, or the endpoint refuses the spans.
    """

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self.url = traces_url(url)
        self.sent = 0
        secrets = [word for value in headers.values() for word in (value, *value.split())]
        self._masker = Masker(secrets)
        self._session = _RecordingSession()
        with _silenced():
            self._exporter = OTLPSpanExporter(endpoint=self.url, headers=headers, session=self._session)

    @property
    def refused(self) -> int:
        """See the class docstring."""
        return self._session.refused

    @property
    def outcome(self) -> str:
        """The result of the last request, without secrets."""
        return self._masker.text(one_line(self._session.outcome))[:_LONGEST]

    def send(self, spans: Sequence[ReadableSpan]) -> None:
        """Send a batch; returns after it was accepted."""
        with _silenced():
            try:
                taken = self._exporter.export(spans) is SpanExportResult.SUCCESS
            except requests.RequestException:  # older exporters raise it
                taken = False
        if not taken or not 200 <= self._session.status < 300:
            raise UserError(
                f"{self.url}: refused the spans ({self.outcome}) after it accepted {self.sent:,}. "
                "Nothing is lost: repeat the command to send all of them again with the same IDs."
            )
        self.sent += len(spans)

    def close(self) -> None:
        """Shut the exporter down."""
        with _silenced():
            self._exporter.shutdown()  # type: ignore[no-untyped-call]


def traces_url(url: str) -> str:
    """Return the URL for spans: unchanged if it ends with /v1/traces, else below the given base.

    Raises:
        UserError: not an http(s) URL, or has a user, a key or a query; the error does not repeat it.
    """
    try:
        parts = urlsplit(url.strip())
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable:
        raise UserError("-o otel: an endpoint must be an http or https URL, such as http://localhost:4318.")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise UserError(
            "-o otel: remove user, key and query from the URL; put headers in a variable and name it with "
            "--otel-headers."
        )
    path = parts.path.rstrip("/")
    return f"{parts.scheme}://{parts.netloc}{path if path.endswith(TRACES) else path + TRACES}"


def headers_from(variable: str | None, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Read headers from an environment variable: `key=value,key=value`, as in OTEL_EXPORTER_OTLP_HEADERS.

    Args:
        variable: its name; None: the standard ones, if set.
        environ: default: the process's environment.

    Raises:
        UserError: the variable is not set or has no headers; the error does not repeat its content.
    """
    variables = os.environ if environ is None else environ
    if variable is None:
        return _parsed(next((variables[name] for name in _BY_DEFAULT if variables.get(name)), ""))
    if not variable.isidentifier():
        raise UserError(
            "--otel-headers: give the name of an environment variable, not the headers themselves."
        )
    text = variables.get(variable, "")
    if not text.strip():
        raise UserError(f"--otel-headers: the environment variable {variable} is not set.")
    headers = _parsed(text)
    if not headers or len(headers) != len([part for part in text.split(",") if part.strip()]):
        raise UserError(
            f"--otel-headers: {variable} does not contain valid headers; write key=value,key=value, a "
            "comma inside a value as %2C."
        )
    return headers


def _parsed(text: str) -> dict[str, str]:
    with _silenced():
        return dict(parse_env_headers(text, liberal=True))


def _connection_failure(error: requests.RequestException) -> str:
    """Return the innermost reason: `requests` wraps system errors several times."""
    cause: BaseException = error
    while (inner := cause.__cause__ or cause.__context__) is not None:
        cause = inner
    reason = getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
    return f"{type(error).__name__}: {reason}"


@contextmanager
def _silenced() -> Iterator[None]:
    """Silence the SDK's log: it repeats invalid headers and every failed attempt."""
    log = logging.getLogger("opentelemetry")
    before, quiet = log.propagate, logging.NullHandler()
    log.addHandler(quiet)
    log.propagate = False
    try:
        yield
    finally:
        log.propagate = before
        log.removeHandler(quiet)


MOST = 65_536  # maximum bytes of an answer; a refusal of spans has a few hundred


def read_answer(response: requests.Response, seconds: float) -> requests.Response:
    """Read a streamed answer, cut at `MOST` bytes.

    Raises:
        requests.ReadTimeout: it does not end within `seconds`.
    """
    until, body = time.monotonic() + seconds, bytearray()
    try:
        for part in response.iter_content(1):  # a larger size would block for more bytes
            body += part
            if len(body) >= MOST:
                break
            if time.monotonic() > until:
                raise requests.ReadTimeout("the answer did not end in time")
    finally:
        response.close()
    read = requests.Response()
    read.status_code, read.reason, read.url = response.status_code, response.reason, response.url
    read.headers = response.headers
    read.encoding = "utf-8"
    read.raw = io.BytesIO(bytes(body[:MOST]))
    return read


Send = Callable[[Sequence[ReadableSpan]], None]  # delivers a batch, or raises
_SPANS, _CHARACTERS = 500, 1_000_000  # per request; collectors accept 20 MiB, some backends 4
SERVICE = "dreamgym-kit"
_PROJECT = "openinference.project.name"  # Phoenix groups traces by it


@dataclass(frozen=True, slots=True)
class ExportReport:
    """The result of an export.

    Attributes:
        to: the file or the address.
        episodes: number of traces.
        spans: number of spans.
        refused: spans that the endpoint refused.
        warnings: warnings for the user.
    """

    to: str
    episodes: int
    spans: int
    refused: int = 0
    warnings: tuple[str, ...] = ()


def export_run(directory: RunDirectory, target: str, *, headers: str | None = None) -> ExportReport:
    """Export every finished episode of a run.

    Args:
        directory: the run, open for reading; it is not changed.
        target: a file, or an OTLP/HTTP endpoint.
        headers: name of the environment variable that holds an endpoint's headers.

    Raises:
        UserError: the target cannot be used or refuses the spans.
        RunDirectoryError: the journal is damaged, or the file cannot be written.
    """
    if target.strip().lower().startswith(("http://", "https://")):
        with closing(EndpointSink(target, headers_from(headers))) as endpoint:
            done = _export(directory, endpoint.send, to=endpoint.url)
        lost = (f"{endpoint.url}: {endpoint.refused:,} spans were refused ({endpoint.outcome})",)
        return replace(
            done, refused=endpoint.refused, warnings=(*done.warnings, *(lost if endpoint.refused else ()))
        )
    if headers is not None:
        raise UserError("--otel-headers: a file has no headers; remove the option, or give an endpoint.")
    path = Path(target)
    if "://" in target or is_folder(path) or not is_folder(path.absolute().parent):
        raise UserError(f"-o otel:{target}: give a file in an existing folder, or an http(s) endpoint.")
    with file_sink(path) as send:
        return _export(directory, send, to=str(path))


def _in_batches(spans: Iterable[ReadableSpan]) -> Iterator[list[ReadableSpan]]:
    """Group spans into requests."""
    batch, size = list[ReadableSpan](), 0
    for span in spans:
        batch.append(span)
        size += sum(len(value) for value in (span.attributes or {}).values() if isinstance(value, str))
        if len(batch) >= _SPANS or size >= _CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _export(directory: RunDirectory, send: Send, *, to: str) -> ExportReport:
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        raise UserError("OTEL_SDK_DISABLED is set, so OpenTelemetry would write nothing; unset it.")
    manifest, masker = directory.manifest, process_masker()
    kit = version("dreamgym-kit")
    # another machine may use the same short ID, but not at the same time
    name = f"{manifest.run}-{manifest.created_at!r}"
    facts = RunFacts(
        name=name,
        run=manifest.run,
        graph=masker.text(_fact(manifest, "graph")),
        created_at=manifest.created_at,
        resource=Resource.create(cleaned(_resource(manifest, name, kit, masker))),
        scope=InstrumentationScope("dreamgym-kit", kit),
    )
    episodes, count, sent = directory.episodes(), 0, 0

    def spans() -> Iterator[ReadableSpan]:
        nonlocal count
        for episode in episodes:
            yield from episode_spans(_masked(episode, masker), facts)
            count += 1

    for batch in _in_batches(spans()):
        send(batch)
        sent += len(batch)
    torn = () if episodes.torn is None else (f"{directory.path}: {episodes.torn}",)
    return ExportReport(to=to, episodes=count, spans=sent, warnings=torn)


def _resource(manifest: Manifest, name: str, kit: str, masker: Masker) -> dict[str, Value]:
    """Return the resource of a run's spans; names from the environment take precedence."""
    facts: dict[str, Value] = {
        "service.version": kit,
        "service.instance.id": name,
        "dreamgym.run": manifest.run,
        "dreamgym.mode": _fact(manifest, "mode"),
        "dreamgym.graph": masker.text(_fact(manifest, "graph")),
        "dreamgym.seed": _fact(manifest, "seed"),
    }
    given = environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    if not environ.get("OTEL_SERVICE_NAME") and "service.name=" not in given:
        facts["service.name"] = SERVICE
    if f"{_PROJECT}=" not in given:
        facts[_PROJECT] = environ.get("OTEL_SERVICE_NAME") or SERVICE
    return facts


def _fact(manifest: Manifest, name: str) -> str:
    return str(manifest.matters.get(name, ""))


def _masked(episode: Episode, masker: Masker) -> Episode:
    """Mask again with the process's current secrets, because the data leaves the machine."""
    steps = tuple(_masked_step(step, masker) for step in episode.transitions)
    return replace(masked_episode(episode, masker), transitions=steps)


def _masked_step(step: Transition, masker: Masker) -> Transition:
    args, answer = masker.plain(step.call.args), masked_answer(step.answer, masker)
    if args is step.call.args and answer is step.answer:
        return step
    return replace(step, call=replace(step.call, args=args), answer=answer)
