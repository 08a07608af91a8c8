"""Names of the formats of recordings that can be imported. Without other imports: `--help` must be quick."""

from enum import StrEnum


class Format(StrEnum):
    """What `buffer import --format` can be told."""

    AUTO = "auto"  # asks each record
    TRANSITIONS = "transitions"  # the kit's own
    MESSAGES = "messages"  # OpenAI, Responses, LangChain, Anthropic; messages+tools of TRL
    TRL = "trl"  # prompt+completion, ShareGPT, steps of text
    LANGSMITH = "langsmith"
    SPANS = "spans"  # OpenTelemetry GenAI and OpenInference, in OTLP, Tempo, Jaeger or flat form
    LANGFUSE = "langfuse"
