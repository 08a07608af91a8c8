"""One way to ask a chat model for a JSON object: fenced data, a closed schema, one correction, or nothing.

All text that came from tools, agents or tasks is data between lines that bear a mark which the data cannot
know. A mark that any of the data holds, however it is spelled, is drawn anew, so no text can close a fence.
"""

import ast
import json
import re
import secrets
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from jsonschema import Draft202012Validator

from dreamgym_kit.bounded_json import check_bounds, read_json
from dreamgym_kit.chat import ChatMessage, ChatReply, ChatRequest
from dreamgym_kit.errors import EndpointError, NotSerializable
from dreamgym_kit.interfaces import Account, ChatEndpoint
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.types import Transition

_MAX_PART = 4_000  # characters of one part of the data
_MAX_BYTES = 100_000
_MAX_STARTS = 8  # objects that are looked for in a reply
_SHOWN = 300  # characters of an unusable reply that are kept for the report
_MARKS = re.compile(r'\\.|["{}]', re.DOTALL)
_PYTHON = re.compile(r"[{\[,:]\s*(?:'|True\b|False\b|None\b)")
_NO_LETTERS = re.compile(r"[\W_]+")
T = TypeVar("T")


class UnusableReply(NotSerializable):
    """Neither a model's reply nor its correction can be used; `shown` has the reason and the correction."""

    def __init__(self, why: str, text: str) -> None:
        super().__init__(why)
        self.shown = f"{why} (it said: {' '.join(text.split())[:_SHOWN]})"


class CountedEndpoint:
    """Implements `interfaces.ChatEndpoint`: another one, whose answers are charged to a part of an episode.

    Args:
        endpoint: where the model answers.
        account: the episode's; None charges nobody.
        part: experience, judge or user.
    """

    def __init__(self, endpoint: ChatEndpoint, account: Account | None, part: str) -> None:
        self._endpoint, self._account, self._part = endpoint, account, part

    async def chat(self, request: ChatRequest) -> ChatReply:
        """See `interfaces.ChatEndpoint.chat`."""
        try:
            reply = await self._endpoint.chat(request)
        except EndpointError:
            if self._account is not None:
                self._account.count("endpoint_failures")
            raise
        if self._account is not None:
            self._account.spent(self._part, reply)
        return reply


async def ask(endpoint: ChatEndpoint, request: ChatRequest, read: Callable[[str], T]) -> T:
    """What `read` makes of the reply; the model corrects once what it refuses with `NotSerializable`.

    Raises:
        EndpointError: no answer came.
        UnusableReply: two answers came, and neither can be used; its cause is what `read` raised.
    """
    reply = await endpoint.chat(request)
    try:
        return _uncut(reply, read)
    except NotSerializable as error:
        correction = repair(reply.content, str(error))
    reply = await endpoint.chat(replace(request, messages=[*request.messages, *correction]))
    try:
        return _uncut(reply, read)
    except NotSerializable as error:
        raise UnusableReply(str(error), reply.content) from error


async def request_output(
    endpoint: ChatEndpoint,
    rules: str,
    data: str,
    schema: Mapping[str, JsonValue],
    *,
    name: str,
    seed: int = 0,
    max_tokens: int = 1024,
    check: Callable[[dict[str, Any]], str | None] = lambda _: None,
) -> dict[str, Any]:
    """Ask under fixed rules about fenced data. `check` says what is wrong beyond the schema.

    Raises:
        EndpointError: no answer came.
        NotSerializable: two answers came, and neither fits the schema.
    """

    def read(text: str) -> dict[str, Any]:
        output = read_object(text, schema)
        wrong = check(output)
        if wrong is not None:
            raise NotSerializable(wrong)
        return output

    messages = [ChatMessage("system", rules), ChatMessage("user", data)]
    request = ChatRequest(messages, schema=schema, schema_name=name, seed=seed, max_tokens=max_tokens)
    return await ask(endpoint, request, read)


def closed(**properties: JsonValue) -> dict[str, JsonValue]:
    """The schema of an object with exactly these properties."""
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(properties),
        "properties": properties,
    }


def read_object(text: str, schema: Mapping[str, JsonValue], *, max_bytes: int = _MAX_BYTES) -> dict[str, Any]:
    """Read the JSON object of a model's reply, whatever stands around it.

    Reasoning in `<think>` tags, fences of Markdown, words before and after are passed over; of several
    objects the last that fits counts, as a model that corrects itself means its last word. Objects as Python
    prints them are read too. So a reply whose packaging alone is wrong costs no second call.

    Raises:
        NotSerializable: no JSON object of the schema; names the field and what is wanted.
    """
    if len(text) > max_bytes:
        raise NotSerializable(f"larger than {max_bytes} bytes")
    validator, problem = Draft202012Validator(dict(schema)), ""
    for candidate in reversed(_objects_in(text[text.rfind("</think>") + 1 :])):
        try:
            output = read_literal(candidate)
        except NotSerializable as error:
            problem = problem or str(error)
            continue
        wrong = _problem(validator, output)
        if wrong is None and re.search("[\ud800-\udfff]", json.dumps(output, ensure_ascii=False)):
            wrong = "a text holds half of a surrogate pair, which is no character"
        if wrong is None:
            return output  # type: ignore[no-any-return]
        problem = problem or wrong
    raise NotSerializable(problem or "a JSON object is missing: send one, and nothing else")


def read_literal(text: str) -> Any:
    """Read a JSON value, or one as Python prints it ('single quotes', True, None).

    Raises:
        NotSerializable: neither; says why it is not JSON.
    """
    try:
        return read_json(text)
    except NotSerializable as error:
        if not _PYTHON.search(text):
            raise
        try:
            check_bounds(text)
            return read_json(json.dumps(ast.literal_eval(text.strip()), allow_nan=False))
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError, NotSerializable):
            raise error from None


def _objects_in(text: str) -> list[str]:
    """Return a text's outermost objects in order; if none ends, the text from the first brace on."""
    objects: list[str] = []
    start = text.find("{")
    for _ in range(_MAX_STARTS):
        if start < 0:
            break
        end = _end_of_object(text, start)
        if end < 0 and not objects:
            objects.append(text[start:])
        elif end > 0:
            objects.append(text[start:end])
        start = text.find("{", max(end, start + 1))
    return objects


def _end_of_object(text: str, start: int) -> int:
    """Where the object ends that begins at `start`; -1 where it does not."""
    depth, quoted = 0, False
    for mark in _MARKS.finditer(text, start):
        if mark[0] == '"':
            quoted = not quoted
        elif not quoted and mark[0] in "{}":
            depth += 1 if mark[0] == "{" else -1
            if depth == 0:
                return mark.end()
    return -1


def _problem(validator: Draft202012Validator, output: JsonValue) -> str | None:
    """What keeps an object from fitting its schema, with its place."""
    errors = sorted(validator.iter_errors(output), key=lambda error: list(map(str, error.absolute_path)))
    if not errors:
        return None
    wrong = errors[0]
    place = ".".join(map(str, wrong.absolute_path)) or "the object"
    text = f"{place}: {wrong.message[:200]}"
    missing = [error.message for error in errors if error.validator == "required" and error is not wrong]
    return f"{text}; {'; '.join(missing)[:200]}" if missing else text


def call_data(entry: Transition) -> dict[str, JsonValue]:
    """A call and its answer as data."""
    answer = entry.answer
    if answer.error is not None:
        outcome: dict[str, JsonValue] = {"error": answer.error}
    else:
        outcome = {"answer": answer.content if answer.update is None else dict(answer.update)}
    return {"tool": entry.call.tool, "args": dict(entry.call.args), **outcome}


def fenced(parts: Sequence[tuple[str, JsonValue]]) -> str:
    """Named data between lines of one mark drawn for it, and the mark named after them."""
    spelled = [(name, spell_line(value)) for name, value in parts]
    mark = draw_mark([letters(text) for _, text in spelled], drawn_mark)
    return "\n".join([*(fence(mark, *part) for part in spelled), f"Fence lines bear the mark {mark}."])


def repair(text: str, wrong: str) -> list[ChatMessage]:
    """What follows a reply that could not be used; the reason may quote data, so it is fenced too."""
    reason = " ".join(wrong.split())[:_MAX_PART]
    mark = draw_mark([letters(reason)], drawn_mark)
    why = f"That cannot be used. Why, as data between lines of the mark {mark}:"
    correct = "Send the corrected JSON object only."
    return [
        ChatMessage("assistant", text[:_MAX_PART]),
        ChatMessage("user", f"{why}\n{fence(mark, 'reason', reason)}\n{correct}"),
    ]


def drawn_mark() -> str:
    """A mark that nobody can foresee."""
    return secrets.token_hex(8)


def draw_mark(texts: Sequence[str], draw: Callable[[], str], wanted: str | None = None) -> str:
    """A mark, `wanted` if possible, that stands in none of these texts (see `letters`)."""
    mark = wanted or draw()
    while any(letters(mark) in text for text in texts):
        mark = draw()
    return mark


def letters(text: str) -> str:
    """Letters and digits alone: a mark that is spaced out, in capitals or in wide letters is that mark."""
    plain = text if text.isascii() else unicodedata.normalize("NFKC", text)
    return _NO_LETTERS.sub("", plain.casefold())


def fence(mark: str, name: str, text: str) -> str:
    """One part of the data between its lines."""
    return f"<<{mark} {name}\n{text}\n{mark}>>"


def spell_line(value: JsonValue) -> str:
    """One line: a line of data can never look like a line of ours."""
    text = json.dumps(value, ensure_ascii=False)
    text = text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029").replace("\x85", "\\u0085")
    return text if len(text) <= _MAX_PART else f"{text[:_MAX_PART]} (cut: {len(text)} characters)"


def _uncut(reply: ChatReply, read: Callable[[str], T]) -> T:
    if reply.finish_reason == "length":
        raise NotSerializable("it was cut off at its largest length; be brief")
    return read(reply.content)
