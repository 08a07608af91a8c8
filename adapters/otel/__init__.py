"""A run's episodes as OpenTelemetry GenAI spans, to a file or an endpoint."""

from importlib.util import find_spec

from dreamgym_kit.errors import MissingExtra

_NEEDED = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")


def require_extra(needed_by: str) -> None:
    """Raise MissingExtra where the SDK or its OTLP exporter is not installed."""
    if not all(map(_is_there, _NEEDED)):
        raise MissingExtra("otel", needed_by=needed_by)


def _is_there(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # one of the packages that it lies in
        return False
