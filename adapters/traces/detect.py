"""Which format a record is of. Asked record by record, so that a file may hold several."""

from collections.abc import Mapping
from enum import StrEnum

from dreamgym_kit.adapters.traces import langfuse, langsmith, openai_messages, otlp, trl
from dreamgym_kit.plain import JsonValue


class Format(StrEnum):
    """What `buffer import --format` can be told; `auto` asks each record."""

    AUTO = "auto"
    TRANSITIONS = "transitions"  # the kit's own
    MESSAGES = "messages"  # OpenAI, Responses, LangChain, Anthropic; messages+tools of TRL
    TRL = "trl"  # prompt+completion, ShareGPT, steps of text
    LANGSMITH = "langsmith"
    SPANS = "spans"  # OpenTelemetry GenAI and OpenInference, in OTLP, Tempo, Jaeger or flat form
    LANGFUSE = "langfuse"


def format_of(value: Mapping[str, JsonValue]) -> Format | None:
    """The format of a record, or None."""
    if {"call", "answer", "effect"} <= value.keys():
        return Format.TRANSITIONS
    if langsmith.is_run(value):
        return Format.LANGSMITH
    if langfuse.is_observation(value):
        return Format.LANGFUSE
    if otlp.is_span(value):
        return Format.SPANS
    if openai_messages.is_conversation(value):
        return Format.MESSAGES
    if trl.is_row(value):
        return Format.TRL
    return None
