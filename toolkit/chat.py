"""What is said to a chat model and what it answers: messages, requests, replies, sampled tokens."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dreamgym_kit.serialization import JsonValue


@dataclass(frozen=True, slots=True)
class ToolRequest:
    """A tool call as a chat model wrote it."""

    name: str
    args: str  # JSON text, as written
    id: str = ""  # what the answer to it refers to


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message to a chat model, or of one."""

    role: str  # system, user, assistant or tool
    content: str
    tool_calls: tuple[ToolRequest, ...] = ()  # of an assistant
    call_id: str = ""  # of a tool's answer: the request it answers
    name: str = ""  # of a tool's answer: the tool


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """What a chat model is asked. Sampling is never left to the server's defaults."""

    messages: Sequence[ChatMessage]
    schema: Mapping[str, JsonValue] | None = None  # JSON schema of the answer, where the server has that
    schema_name: str = "answer"
    temperature: float = 0.0
    top_p: float = 1.0
    max_tokens: int = 1024
    seed: int | None = None
    affinity: str = ""  # who asks: requests of one episode, or of one situation, have the same
    group: str = ""  # whose siblings ask: they prefer the same replica, whose cache they share; "": affinity
    tools: Sequence[Mapping[str, JsonValue]] = ()  # {"type": "function", "function": {...}}
    tool_choice: str = "auto"  # "auto", "none", "required", or the name of the one tool to be called
    parallel_calls: bool = True  # whether one answer may call several tools
    stop: tuple[str, ...] = ()  # texts at which the answer ends
    exact: bool = False  # the answer's token ids and log-probs are needed; without them it is no answer


@dataclass(frozen=True, slots=True)
class SampledTokens:
    """One answer as the model sampled it: what training needs, and nothing that was tokenised again."""

    prompt_ids: tuple[int, ...]
    ids: tuple[int, ...]  # sampled, the end token among them where it was reached
    logprobs: tuple[float, ...]  # natural, of each sampled id, over all tokens at the request's temperature
    version: str  # of the weights; "" where the server does not tell
    constrained: bool = False  # a grammar or top_p forbade tokens: not the policy's own choice


@dataclass(frozen=True, slots=True)
class ChatReply:
    """What a chat model said, and what it cost."""

    content: str
    finish_reason: str = "stop"  # "tool_calls"; "length": cut off; "abort": the server stopped it
    model: str = ""  # as the server names what answered
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0  # of the prompt, read from the server's cache
    cost_usd: float = 0.0
    attempts: int = 1  # requests that were sent for it
    elapsed_s: float = 0.0
    tool_calls: tuple[ToolRequest, ...] = ()
    tokens: SampledTokens | None = None  # only where the request was exact
    cache_told: bool = False  # whether the server said how many tokens its cache had
