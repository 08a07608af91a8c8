"""Spans as an OTLP/JSON file: one ExportTraceServiceRequest a line, the form that collectors read.

https://opentelemetry.io/docs/specs/otel/protocol/file-exporter/. The SDK encodes; protobuf's JSON has the
ids in base64, OTLP wants them in hex, and that is all that is changed here.
"""

import base64
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from google.protobuf.json_format import MessageToDict
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan

from dreamgym_kit.rollout.files import open_plain, refused, require_replaceable, write_whole

_IDS = ("traceId", "spanId", "parentSpanId")
_spell = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


class FileSink:
    """Writes beside `path` and puts the file in its place at the end: a reader finds the old or the new one.

    Use as a context manager.

    Raises:
        RunDirectoryError: the file cannot be written; what stood there still does.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._beside = path.with_name(f".{path.name}.new")

    def send(self, spans: Sequence[ReadableSpan]) -> None:
        """Write spans as one line."""
        line = _spell(as_otlp_json(spans)).encode("utf-8") + b"\n"
        try:
            write_whole(self._descriptor, line)
        except OSError as error:
            raise refused(self._path, "cannot be written", error) from error

    def __enter__(self) -> Self:
        require_replaceable(self._path)
        try:
            self._beside.unlink(missing_ok=True)
        except OSError as error:
            raise refused(self._path, "cannot be written", error) from error
        self._descriptor = open_plain(self._beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            try:
                os.fsync(self._descriptor)
            finally:
                os.close(self._descriptor)
            if kind is None:
                self._beside.replace(self._path)
        except OSError as refusal:
            raise refused(self._path, "cannot be written", refusal) from refusal
        finally:
            with suppress(OSError):
                self._beside.unlink(missing_ok=True)


def as_otlp_json(spans: Sequence[ReadableSpan]) -> dict[str, Any]:
    """Give spans as an ExportTraceServiceRequest in OTLP's JSON encoding."""
    request: dict[str, Any] = MessageToDict(encode_spans(spans), use_integers_for_enums=True)
    for resource in request.get("resourceSpans", ()):
        for scope in resource.get("scopeSpans", ()):
            for span in scope.get("spans", ()):
                for name in _IDS:
                    if name in span:
                        span[name] = base64.b64decode(span[name]).hex()
    return request
