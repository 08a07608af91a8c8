"""The common form of all formats, and its conversion: calls, model turns, or why a record is neither.

Formats locate tool, arguments and answer. Here calls become transitions: order, turns, and the identifier of
the state before each call. Calls of one model turn do not see each other, as in the call log. A format's own
turns are used; otherwise a turn ends with a model call of that trace, else overlapping calls are one turn.
An unanswered call may have changed the environment, so it counts as a write, but gives no transition.

Traces wrap arguments and answers: JSON as text, a Python dict as text, LangChain's ToolMessage (flat or a
constructor), an MCP result, `{"input": {...}}`. They are unwrapped to what the tool was called with and what
the agent saw. Text stays text unless its format declares JSON.
"""

import ast
import re
import warnings
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby

from dreamgym_kit.bounded_json import read_json
from dreamgym_kit.dream.call_log import CallPosition, WriteLog
from dreamgym_kit.errors import NotSerializable
from dreamgym_kit.replay.transfer import UnreadableLine
from dreamgym_kit.routing.effects import guess_effect
from dreamgym_kit.serialization import JsonValue, escaped, to_json
from dreamgym_kit.types import Answer, Call, Effect, Environment, Transition

_MAX_LITERAL = 200_000  # maximum characters of a Python dict as text
_MAX_BRACKETS = 2_000
_MAX_DEEP = 50
_BRACKET = re.compile(r"[\[\]{}()]")
_SIGNS = re.compile(r"(?:[-+~]\s*){20}")  # each is a level for the parser
_KIND = re.compile(r"([A-Za-z_][\w.]*(?:Error|Exception|Timeout|Interrupt))\(")


def decoded(text: JsonValue) -> JsonValue:
    """Parse a list or object from JSON or Python text; return other values unchanged."""
    if not isinstance(text, str) or text.lstrip()[:1] not in ("{", "["):
        return text
    try:
        return read_json(text)
    except NotSerializable:
        return _literal(text)


def _literal(text: str) -> JsonValue:
    """Parse a Python list or dict without running it; return other text unchanged."""
    if len(text) > _MAX_LITERAL or not _shallow(text):
        return text
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # foreign text may have invalid escapes
            return to_json(ast.literal_eval(text.strip()))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text


def _shallow(text: str) -> bool:
    """Return whether a text is safe for Python's parser, which has no limits."""
    depth = 0
    brackets = _BRACKET.findall(text)
    for bracket in brackets:
        depth += 1 if bracket in "[{(" else -1
        if depth > _MAX_DEEP:
            return False
    return len(brackets) <= _MAX_BRACKETS and _SIGNS.search(text) is None


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of a call; `bare`: a single value without its name."""

    args: Mapping[str, JsonValue]
    bare: bool = False


def arguments(value: JsonValue, *, names: Sequence[str] = ()) -> Arguments:
    """Parse arguments.

    Args:
        value: an object, JSON or Python text of one, or a single value.
        names: the tool's parameters in order, if known: names for positional values.
    """
    content = decoded(value)
    if content is None or content == "":
        return Arguments({})
    if not isinstance(content, dict):
        return Arguments({names[0] if len(names) == 1 else "input": to_json(content)}, bare=len(names) != 1)
    if "input_str" in content:  # OpenLLMetry over LangChain
        inner = content.get("inputs")
        return arguments(inner if isinstance(inner, dict) else content["input_str"], names=names)
    if isinstance(content.get("args"), list) and isinstance(content.get("kwargs"), dict):  # smolagents
        positional = {
            names[place] if place < len(names) else f"arg{place}": item
            for place, item in enumerate(content["args"])
        }
        return Arguments(to_json({**positional, **content["kwargs"]}), bare=len(names) < len(positional))
    if list(content) == ["input"] and isinstance(inner := decoded(content["input"]), dict):  # LangSmith
        return Arguments(to_json(inner))
    return Arguments(to_json(content))


@dataclass(frozen=True, slots=True)
class ParsedReply:
    """An answer as the agent saw it, with its wrapper's other fields."""

    content: JsonValue
    error: str | None = None
    call_id: str | None = None
    tool: str | None = None
    artifact: JsonValue = None


def reply(value: JsonValue, *, is_json: bool = False) -> ParsedReply:
    """Unwrap an answer.

    Args:
        value: the trace's value.
        is_json: text is JSON; otherwise only wrappers are removed.
    """
    content = decoded(value)
    if isinstance(content, dict):
        if (message := tool_message(content)) is not None:
            return _from_message(message)
        if _is_mcp(content):
            text = _blocks(content["content"])
            failed = content.get("isError") is True or content.get("is_error") is True
            return ParsedReply(text, error=_as_text(text) if failed else None)
    if is_json or not isinstance(value, str):
        return ParsedReply(to_json(_blocks(content)))
    return ParsedReply(to_json(value))


def tool_message(fields: JsonValue) -> Mapping[str, JsonValue] | None:
    """Return the fields of a ToolMessage in any form, or None."""
    for _ in range(4):
        if not isinstance(fields, dict):
            return None
        if "tool_call_id" in fields and "content" in fields:
            return fields
        if fields.get("type") == "constructor" and isinstance(fields.get("kwargs"), dict):
            fields = fields["kwargs"]
        elif isinstance(fields.get("data"), dict) and fields.get("type") == "tool":
            fields = fields["data"]
        elif "output" in fields and set(fields) <= {"output", "kwargs"}:
            fields = decoded(fields["output"])
        else:
            return None
    return None


def _from_message(message: Mapping[str, JsonValue]) -> ParsedReply:
    content = to_json(_blocks(message["content"]))
    failed = message.get("status") == "error"
    call_id, name = message.get("tool_call_id"), message.get("name")
    return ParsedReply(
        content,
        error=_as_text(content) if failed else None,
        call_id=call_id if isinstance(call_id, str) else None,
        tool=name if isinstance(name, str) else None,
        artifact=to_json(message.get("artifact")),
    )


def _is_mcp(fields: Mapping[str, JsonValue]) -> bool:
    content = fields.get("content")
    return (
        isinstance(content, list)
        and bool(content)
        and all(isinstance(block, dict) and "type" in block for block in content)
        and set(fields) <= {"content", "isError", "is_error", "structuredContent", "_meta", "meta"}
    )


def _blocks(content: JsonValue) -> JsonValue:
    """Return the text of a single text block; other content unchanged."""
    if isinstance(content, list) and len(content) == 1 and isinstance(content[0], dict):
        block = content[0]
        text = block.get("text")
        if isinstance(text, str) and (set(block) == {"text"} or block.get("type") == "text"):
            return text
    return content


def _as_text(content: JsonValue) -> str:
    return content if isinstance(content, str) and content else "the tool failed"


def answer(
    result: ParsedReply | None, *, error: str | None = None, error_type: str | None = None
) -> Answer | None:
    """Return an answer or failure; None if the trace has neither."""
    if result is None and error is None:
        return None
    result = result or ParsedReply(None)
    reason = error if error is not None else result.error
    return Answer(
        escaped(result.content),
        artifact=escaped(result.artifact),
        error=None if reason is None else reason[:10_000],
        error_type=None if reason is None else (error_type or "ToolException"),
    )


def failure(text: str) -> tuple[str, str | None]:
    """Split an exception's text into message and class: "ValueError('too much')Traceback ..."."""
    head = text.split("Traceback (most recent call last)", 1)[0].strip() or text.strip()
    kind = _KIND.match(head)
    if kind is None or not head.endswith(")"):
        return head, None
    inner = decoded(f"[{head[kind.end() : -1]}]")
    only = inner[0] if isinstance(inner, list) and len(inner) == 1 else None
    return (only if isinstance(only, str) else head), kind[1].rpartition(".")[2]


def seconds(stamp: JsonValue) -> float:
    """Return Unix time in seconds from a timestamp in any common unit or ISO text; 0.0 if absent."""
    if isinstance(stamp, str):
        if stamp.isdigit() and len(stamp) < 30:
            return seconds(int(stamp))
        try:
            return datetime.fromisoformat(stamp).timestamp()
        except (ValueError, OverflowError):
            return 0.0
    if isinstance(stamp, bool) or not isinstance(stamp, (int, float)) or not 0 < stamp < 1e22:
        return 0.0
    for least, unit in ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3)):
        if stamp > least:
            return stamp / unit
    return float(stamp)


def text_of(value: JsonValue) -> str | None:
    """Return a non-empty text, else None."""
    return value if isinstance(value, str) and value else None


@dataclass(frozen=True, slots=True)
class TraceRecord:
    """One JSON object of a file: a span, a run, an observation, a conversation."""

    line: int  # first line, 1-based
    value: Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True)
class Passed:
    """A valid record without a call."""

    kind: str  # "model span", "thought", "span"


@dataclass(frozen=True, slots=True)
class SeenCall:
    """A tool call in a trace. Order within an episode: by `turn` if known, else by time."""

    line: int
    episode: str
    tool: str
    args: Mapping[str, JsonValue]
    answer: Answer | None  # None: missing in the trace
    call_id: str | None = None
    node: str | None = None
    description: str = ""
    turn: int | None = None  # the model's turn; None: derived from `SeenTurn`s and times
    index: int | None = None  # position in its turn, if a model span has it
    start_s: float = 0.0  # Unix time; 0.0 without times
    end_s: float = 0.0
    span: str = ""  # ID of the span or run
    bare: bool = False  # the arguments are a single value without its name


RequestedCall = tuple[str | None, str, Mapping[str, JsonValue]]  # call id, tool, arguments


@dataclass(frozen=True, slots=True)
class SeenTurn:
    """A model call in a trace: its requested calls and its end."""

    line: int
    episode: str
    end_s: float
    calls: tuple[RequestedCall, ...] = ()


Item = SeenCall | SeenTurn | UnreadableLine | Passed | Transition


Effects = Callable[[str, str], Effect]  # tool name, description


@dataclass(frozen=True, slots=True)
class Belonging:
    """Environment and tenant of imported transitions; None: from the trace, else the default."""

    environment: Environment | None = None
    tenant: str | None = None


def guessed(name: str, description: str) -> Effect:
    """Return the effect that name and description suggest; see `routing.effects`."""
    return guess_effect(name, description)[0]


def transitions_of(
    calls: Iterable[SeenCall], turns: Iterable[SeenTurn], belonging: Belonging, effects: Effects = guessed
) -> Iterator[Transition | UnreadableLine]:
    """Order each episode and identify its states; episodes are sorted by start."""
    episodes: dict[str, list[SeenCall]] = defaultdict(list)
    for call in calls:
        episodes[call.episode].append(call)
    ends: dict[str, list[float]] = defaultdict(list)
    for turn in turns:
        ends[turn.episode].append(turn.end_s)
    for name, episode in episodes.items():
        yield from _episode(_with_turns(episode, sorted(ends[name])), belonging, effects)


def _with_turns(calls: Sequence[SeenCall], ends: Sequence[float]) -> list[SeenCall]:
    if all(call.turn is not None for call in calls):
        return sorted(calls, key=lambda call: call.turn or 0)
    ordered = sorted(calls, key=lambda call: call.start_s)
    turn, latest, model_calls = 0, ordered[0].start_s, bisect_right(ends, ordered[0].start_s)
    numbered: list[SeenCall] = []
    for call in ordered:
        before = bisect_right(ends, call.start_s)
        if (before > model_calls) if ends else (bool(numbered) and call.start_s >= latest):
            turn, latest = turn + 1, call.end_s
        model_calls, latest = before, max(latest, call.end_s)
        numbered.append(replace(call, turn=turn))
    by_turn = groupby(numbered, key=lambda call: call.turn)
    return [call for _, together in by_turn for call in _in_order(list(together))]


def _in_order(together: list[SeenCall]) -> list[SeenCall]:
    """Sort calls of one turn by request if known for all: threads start them in any order."""
    if any(call.index is None for call in together):
        return together
    return sorted(together, key=lambda call: call.index or 0)


def _episode(
    calls: Sequence[SeenCall], belonging: Belonging, effects: Effects
) -> Iterator[Transition | UnreadableLine]:
    writes = WriteLog()
    for step, seen in enumerate(calls, start=1):
        turn = seen.turn or 0
        call = Call(seen.tool, seen.args, seen.call_id, seen.node)
        effect = effects(seen.tool, seen.description)
        if seen.answer is None:
            yield UnreadableLine(seen.line, _unanswered(seen), unanswered=True)
        else:
            yield Transition(
                call=call,
                answer=seen.answer,
                effect=effect,
                episode=seen.episode,
                step=step,
                environment=belonging.environment or Environment(),
                after=writes.before(turn),
                tenant=belonging.tenant or "default",
                elapsed_s=max(0.0, seen.end_s - seen.start_s) if seen.start_s else 0.0,
                recorded_at=seen.start_s,
            )
        if effect.changes_environment:
            writes.add(CallPosition(turn, step, step), call.key)


def _unanswered(seen: SeenCall) -> str:
    named = f" (span {seen.span})" if seen.span else f" ({seen.call_id})" if seen.call_id else ""
    return f"call of {seen.tool}{named}: the trace has no answer to it"
