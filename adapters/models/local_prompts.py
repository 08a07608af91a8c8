"""Messages to token ids and back, by the model directory's own chat template and tokenizer.

What the policy said before is put in with the ids that it sampled, not tokenised again, wherever the
template renders it as it was: so an episode's turns extend each other. Special tokens come from the template
and from what was sampled; where data spells one, it stays text: a tool's answer with `<|im_end|>` in it must
not end the tool's turn. Before a template sees data, each special token spelled in it is cut behind its first
letter by a mark, a character that the data lacks; behind the template the text is tokenised in pieces, from
mark to mark, and no piece spells a special token that the template did not write.
"""

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from dreamgym_kit.bounded_json import read_json
from dreamgym_kit.chat import ChatMessage, ToolRequest
from dreamgym_kit.deployment.model_files import one_line
from dreamgym_kit.errors import EndpointError, NotSerializable
from dreamgym_kit.serialization import JsonValue

_MARKS = tuple(map(chr, range(0xFDD0, 0xFDF0)))  # noncharacters: no text that is exchanged has them
_MARK = _MARKS[0]  # unless data has it
_HALVES = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Rendered:
    """What a template wrote."""

    text: str
    mark: str = ""  # stands in the text where data would spell a special token; "": nowhere


class SpelledTokens:
    """Finds the special tokens of one tokenizer in data."""

    def __init__(self, tokens: Iterable[str]) -> None:
        longest_first = sorted({token for token in tokens if len(token) > 1}, key=len, reverse=True)
        self._any = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def mark_for(self, data: Any) -> str:
        """The mark that this data needs; "" where it spells no special token.

        Raises:
            EndpointError: the data uses up every mark there is, as no text does by chance.
        """
        if self._any is None or not any(map(self._any.search, _texts_in(data))):
            return ""
        for mark in _MARKS:
            if not any(mark in text for text in _texts_in(data)):
                return mark
        raise EndpointError(
            "rejected", "the messages spell special tokens between noncharacters (U+FDD0 ...)"
        )

    def marked(self, data: Any, mark: str) -> Any:
        """The data, each special token in it cut by the mark."""
        return _mapped(data, lambda text: mark.join(self._pieces(text))) if mark else data

    def _pieces(self, text: str) -> Iterator[str]:
        """The text, cut so that no piece spells a special token, overlapping ones neither."""
        begin = 0
        while self._any is not None and (match := self._any.search(text, begin)) is not None:
            yield text[begin : match.start() + 1]
            begin = match.start() + 1
        yield text[begin:]


def _texts_in(data: Any) -> Iterator[str]:
    if isinstance(data, str):
        yield data
    elif isinstance(data, Mapping):
        for key, value in data.items():
            yield from _texts_in(key)
            yield from _texts_in(value)
    elif isinstance(data, (list, tuple)):
        for value in data:
            yield from _texts_in(value)


def _mapped(data: Any, change: Callable[[str], str]) -> Any:
    if isinstance(data, str):
        return change(data)
    if isinstance(data, Mapping):
        return {_mapped(key, change): _mapped(value, change) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_mapped(value, change) for value in data]
    return data


class Prompts:
    """Renders and reads. Usable from any thread: tokenizers are not, so one at a time."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._lock = threading.Lock()
        # the library copies all tools for each prompt, whether the template looks at them or not
        self._shows_tools = "tools" in str(tokenizer.chat_template)
        added = {place: token for place, token in tokenizer.added_tokens_decoder.items() if token.special}
        self._special = frozenset(added) | frozenset(tokenizer.all_special_ids)
        self._spelled = SpelledTokens([*map(str, added.values()), *tokenizer.all_special_tokens])
        # what a later piece stands behind while it is tokenised: it is no beginning of a text
        self._before = next(((place, str(token)) for place, token in added.items() if not token.rstrip), None)

    def render(self, messages: Sequence[ChatMessage], tools: Sequence[Mapping[str, JsonValue]]) -> Rendered:
        """The text that the model reads.

        Raises:
            EndpointError: the template refuses these messages.
        """
        history = [_as_template(message) for message in messages]
        shown = [dict(tool) for tool in tools] if tools and self._shows_tools else None
        mark = self._spelled.mark_for([history, shown])
        try:
            with self._lock:
                text = self._tokenizer.apply_chat_template(
                    self._spelled.marked(history, mark),
                    tools=self._spelled.marked(shown, mark),
                    add_generation_prompt=True,
                    tokenize=False,
                )
        except (TemplateError, TypeError, ValueError, KeyError, AttributeError) as error:
            why = f"the model's chat template refuses these messages: {one_line(error)}"
            raise EndpointError("rejected", why) from None
        return Rendered(str(text), mark)

    def encode(self, rendered: Rendered) -> tuple[int, ...]:
        """Ids of a text: what the template wrote as a special token is one, what data spelled is none."""
        pieces = rendered.text.split(rendered.mark) if rendered.mark else [rendered.text]
        with self._lock:
            ids = self._ids(pieces[0])
            for piece in pieces[1:]:
                ids += self._ids_behind(piece)
        return tuple(ids)

    def render_answer(self, ids: Sequence[int], mark: str, ends: frozenset[int]) -> str:
        """What a template writes of an answer when it is history, with the token that ended it."""
        whole = len(ids) - 1 if ids[-1] in ends else len(ids)
        if self._special.isdisjoint(ids[:whole]):
            return self.decode(ids)
        return str(self._spelled.marked(self.decode(ids[:whole]), mark or _MARK)) + self.decode(ids[whole:])

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer(whole_characters(text), add_special_tokens=False)["input_ids"]
        return ids

    def _ids_behind(self, piece: str) -> list[int]:
        place, before = self._before or (-1, "")
        ids = self._ids(before + piece)
        return ids[1:] if ids[:1] == [place] else self._ids(piece)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, special tokens spelled out."""
        with self._lock:
            text: Any = self._tokenizer.decode(
                list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False
            )
        return str(text)


def whole_characters(text: str) -> str:
    """The text with a sign for each half of a character, which tools do send and no tokenizer reads."""
    return _HALVES.sub("\N{REPLACEMENT CHARACTER}", text)


def _as_template(message: ChatMessage) -> dict[str, Any]:
    """A message in the form that chat templates are written for."""
    fields: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        fields["tool_calls"] = [_as_call(call) for call in message.tool_calls]
    if message.role == "tool":
        fields["tool_call_id"], fields["name"] = message.call_id, message.name
    return fields


def _as_call(call: ToolRequest) -> dict[str, Any]:
    try:
        args = read_json(call.args)
    except NotSerializable:
        args = call.args
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": args}}
