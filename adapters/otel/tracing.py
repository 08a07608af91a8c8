"""A tracer of the OpenTelemetry SDK for what happened before: given times, given ids, given to one sink.

Ids are made of the run and the episode, so that the same export gives the same trace again and a backend that
knows it can tell. Nothing of the process's own tracing is used: no global provider, no sampling and no limits
that its environment may set, since a cut attribute is a changed call.
"""

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import Span, SpanKind, Tracer, set_span_in_context

from dreamgym_kit.errors import UserError

Value = str | bool | int | float | Sequence[str]
Attributes = Mapping[str, Value]

_NO_LIMITS = dict.fromkeys(
    (
        *("max_attributes", "max_events", "max_links", "max_span_attributes", "max_event_attributes"),
        *("max_link_attributes", "max_attribute_length", "max_span_attribute_length"),
    ),
    SpanLimits.UNSET,
)
_INT64 = 2**63


class _GivenIds(IdGenerator):
    """Ids from names: the same names, the same ids."""

    def __init__(self) -> None:
        self.trace, self.span = "", ""

    def generate_trace_id(self) -> int:
        return _number(self.trace, 16)

    def generate_span_id(self) -> int:
        return _number(f"{self.trace} {self.span}", 8)


class _Ended(SpanProcessor):
    """Hands over each span that ended."""

    def __init__(self, take: Callable[[ReadableSpan], None]) -> None:
        self._take = take

    def on_end(self, span: ReadableSpan) -> None:
        self._take(span)


class PastTracer:
    """Begins spans of a trace that is named, at times that are told.

    Args:
        resource: what all spans are of.
        take: hears each span when it ends.

    Raises:
        UserError: the SDK is switched off by the environment.
    """

    def __init__(self, resource: Attributes, version: str, take: Callable[[ReadableSpan], None]) -> None:
        if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
            raise UserError("OTEL_SDK_DISABLED is set, and OpenTelemetry writes nothing then; unset it.")
        self._ids = _GivenIds()
        provider = TracerProvider(
            sampler=ALWAYS_ON,
            resource=Resource.create(cleaned(resource)),
            shutdown_on_exit=False,
            id_generator=self._ids,
            span_limits=SpanLimits(**_NO_LIMITS),
        )
        provider.add_span_processor(_Ended(take))
        self._tracer: Tracer = provider.get_tracer("dreamgym-kit", version)

    def begin(
        self,
        trace: str,
        name: str,
        span: str,
        *,
        at_s: float,
        parent: Span | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: Attributes,
    ) -> Span:
        """Begin a span.

        Args:
            trace: name of the trace; its id is made of it.
            name: what is shown.
            span: name of the span within its trace.
            at_s: when, in Unix time.
            parent: None for the first of a trace.
            kind: whether it calls something outside.
            attributes: what is known of it.
        """
        self._ids.trace, self._ids.span = trace, span
        return self._tracer.start_span(
            cleaned_text(name),
            context=set_span_in_context(parent, Context()) if parent is not None else Context(),
            kind=kind,
            attributes=cleaned(attributes),
            start_time=nanoseconds(at_s),
        )


def nanoseconds(at_s: float) -> int:
    """Unix time as OpenTelemetry has it."""
    return max(0, round(at_s * 1e9))


def cleaned(attributes: Attributes) -> dict[str, Value]:
    """Attributes that protobuf can hold: UTF-8 texts, whole numbers of 64 bits."""
    return {name: _cleaned(value) for name, value in attributes.items()}


def cleaned_text(text: str) -> str:
    """A text without lone surrogates, which have no UTF-8 form."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _cleaned(value: Value) -> Value:
    if isinstance(value, str):
        return cleaned_text(value)
    if isinstance(value, (bool, float)):
        return value
    if isinstance(value, int):
        return value if -_INT64 <= value < _INT64 else str(value)
    return [cleaned_text(text) for text in value]


def _number(name: str, size: int) -> int:
    """A number of `size` bytes that is made of a name; never zero, which is no id."""
    digest = hashlib.sha256(name.encode("utf-8", "backslashreplace")).digest()
    return int.from_bytes(digest[:size], "big") or 1
