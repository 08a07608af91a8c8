"""Messages to token ids and back, by the model directory's own chat template and tokenizer.

What the policy said before is put in with the ids that it sampled, not tokenised again, wherever the
template renders it as it was: so an episode's turns extend each other.
"""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from dreamgym_kit.errors import EndpointError, NotJson
from dreamgym_kit.jsonread import read_json
from dreamgym_kit.plain import JsonValue
from dreamgym_kit.ports import ChatMessage, ToolRequest


class Prompts:
    """Renders and reads. Usable from any thread: tokenizers are not, so one at a time."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._lock = threading.Lock()
        # the library copies all tools for each prompt, whether the template looks at them or not
        self._shows_tools = "tools" in str(tokenizer.chat_template)

    def render(self, messages: Sequence[ChatMessage], tools: Sequence[Mapping[str, JsonValue]]) -> str:
        """The text that the model reads.

        Raises:
            EndpointError: the template refuses these messages.
        """
        try:
            with self._lock:
                text = self._tokenizer.apply_chat_template(
                    [_as_template(one) for one in messages],
                    tools=[dict(tool) for tool in tools] if tools and self._shows_tools else None,
                    add_generation_prompt=True,
                    tokenize=False,
                )
        except (TemplateError, TypeError, ValueError, KeyError, AttributeError) as error:
            why = " ".join(str(error).split())[:200]
            raise EndpointError(
                "rejected", f"the model's chat template refuses these messages: {why}"
            ) from None
        return str(text)

    def encode(self, text: str) -> tuple[int, ...]:
        """Ids of a text, special tokens in it read as such."""
        with self._lock:
            return tuple(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, special tokens spelled out."""
        with self._lock:
            text: Any = self._tokenizer.decode(
                list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False
            )
        return str(text)


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
