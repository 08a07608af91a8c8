"""Messages to token ids and back, by the model directory's own chat template and tokenizer.

What the policy said before is put in with the ids that it sampled, not tokenised again, wherever the
template renders it as it was: so an episode's turns extend each other. Special tokens come from the template
and from what was sampled; where data spells one, it stays text.
"""

import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from dreamgym_kit.adapters.models.local_spelled import MARK, Rendered, SpelledTokens
from dreamgym_kit.chat import ChatMessage, ToolRequest
from dreamgym_kit.errors import EndpointError, NotJson
from dreamgym_kit.jsonread import read_json
from dreamgym_kit.plain import JsonValue

_HALVES = re.compile("[\ud800-\udfff]")


class Prompts:
    """Renders and reads. Usable from any thread: tokenizers are not, so one at a time."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._lock = threading.Lock()
        # the library copies all tools for each prompt, whether the template looks at them or not
        self._shows_tools = "tools" in str(tokenizer.chat_template)
        added = {place: one for place, one in tokenizer.added_tokens_decoder.items() if one.special}
        self._special = frozenset(added) | frozenset(tokenizer.all_special_ids)
        self._spelled = SpelledTokens([*map(str, added.values()), *tokenizer.all_special_tokens])
        # what a later piece stands behind while it is tokenised: it is no beginning of a text
        self._before = next(((place, str(one)) for place, one in added.items() if not one.rstrip), None)

    def render(self, messages: Sequence[ChatMessage], tools: Sequence[Mapping[str, JsonValue]]) -> Rendered:
        """The text that the model reads.

        Raises:
            EndpointError: the template refuses these messages.
        """
        told = [_as_template(one) for one in messages]
        shown = [dict(tool) for tool in tools] if tools and self._shows_tools else None
        suspect = shown is not None or self._spelled.may_stand_in(_texts(messages))
        mark = self._spelled.mark_for([told, shown]) if suspect else ""
        try:
            with self._lock:
                text = self._tokenizer.apply_chat_template(
                    self._spelled.marked(told, mark),
                    tools=self._spelled.marked(shown, mark),
                    add_generation_prompt=True,
                    tokenize=False,
                )
        except (TemplateError, TypeError, ValueError, KeyError, AttributeError) as error:
            why = " ".join(str(error).split())[:200]
            raise EndpointError(
                "rejected", f"the model's chat template refuses these messages: {why}"
            ) from None
        return Rendered(str(text), mark)

    def encode(self, rendered: Rendered) -> tuple[int, ...]:
        """Ids of a text: what the template wrote as a special token is one, what data spelled is none."""
        pieces = rendered.text.split(rendered.mark) if rendered.mark else [rendered.text]
        with self._lock:
            ids = self._ids(pieces[0])
            for piece in pieces[1:]:
                ids += self._ids_behind(piece)
        return tuple(ids)

    def said(self, ids: Sequence[int], mark: str, ends: frozenset[int]) -> str:
        """What a template writes of an answer when it is history, with the token that ended it."""
        whole = len(ids) - 1 if ids[-1] in ends else len(ids)
        if self._special.isdisjoint(ids[:whole]):
            return self.decode(ids)
        return str(self._spelled.marked(self.decode(ids[:whole]), mark or MARK)) + self.decode(ids[whole:])

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


def _texts(messages: Sequence[ChatMessage]) -> Iterator[str]:
    """All that messages say, as it is written."""
    for message in messages:
        yield from (message.content, message.role, message.name, message.call_id)
        for call in message.tool_calls:
            yield from (call.id, call.name, call.args)


def _as_template(message: ChatMessage) -> dict[str, Any]:
    """A message in the form that chat templates are written for."""
    said: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        said["tool_calls"] = [_as_call(call) for call in message.tool_calls]
    if message.role == "tool":
        said["tool_call_id"], said["name"] = message.call_id, message.name
    return said


def _as_call(call: ToolRequest) -> dict[str, Any]:
    try:
        args = read_json(call.args)
    except NotJson:
        args = call.args
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": args}}
