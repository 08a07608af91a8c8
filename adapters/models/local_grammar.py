"""Answers that have to have a form: a JSON schema, or calls of tools whose arguments follow theirs.

A grammar (llguidance) forbids tokens before one is chosen. What it leaves is not the policy's own choice:
such answers are marked, and not trained on.
"""

import json
import threading
from collections.abc import Mapping
from typing import Any

import llguidance.hf
import torch
from llguidance import LLMatcher
from transformers import PreTrainedTokenizerBase

from dreamgym_kit.adapters.models.wire import SPACING, SPELLED
from dreamgym_kit.chat import ChatRequest
from dreamgym_kit.errors import EndpointError
from dreamgym_kit.serialization import JsonValue

_MARKS = ("<tool_call>", "</tool_call>")
_MAX_CACHED = 256  # compiled grammars


class Grammars:
    """Makes grammars for one tokenizer; each text is compiled once."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, *, vocabulary: int, ends: frozenset[int]) -> None:
        self._tokenizer, self._vocabulary, self._ends = tokenizer, vocabulary, ends
        self._read: Any = None  # llguidance's own tokenizer: made when first needed, for it may take a second
        self._compiled: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._marks = {mark: tokenizer(mark, add_special_tokens=False)["input_ids"] for mark in _MARKS}

    def of(self, request: ChatRequest) -> "Grammar | None":
        """What a request's answer has to follow; None where it is free.

        Raises:
            EndpointError: a schema is none that a grammar can be made of, or the named tool is not there.
        """
        with self._lock:
            text = self._lark(request)
            return None if text is None else Grammar(self._matcher(text).deep_copy())

    def _matcher(self, text: str) -> Any:
        matcher = self._compiled.get(text)
        if matcher is None:
            matcher = LLMatcher(self._reader(), LLMatcher.grammar_from_lark(text), log_level=0)
            if matcher.is_error():
                why = " ".join(matcher.get_error().split())[:200]
                raise EndpointError("rejected", f"no grammar can be made of the schema: {why}")
            if len(self._compiled) >= _MAX_CACHED:
                self._compiled.clear()
            self._compiled[text] = matcher
        return matcher

    def _reader(self) -> Any:
        if self._read is None:
            self._read = llguidance.hf.from_tokenizer(
                self._tokenizer, n_vocab=self._vocabulary, eos_token=sorted(self._ends)
            )
        return self._read

    def _lark(self, request: ChatRequest) -> str | None:
        tools = [] if request.tool_choice == "none" else [_Function(tool) for tool in request.tools]
        answer = None if request.schema is None else f"answer: {_json(request.schema)}\n"
        if request.tool_choice not in ("auto", "none", "required"):
            tools = [tool for tool in tools if tool.name == request.tool_choice]
            if not tools:
                raise EndpointError("rejected", f"tool_choice names '{request.tool_choice}', no tool offered")
            return self._calls(tools, "call")
        if tools and request.tool_choice == "required":
            return self._calls(tools, "calls" if request.parallel_calls else "call")
        if answer is not None:
            return self._calls(tools, "calls | answer") + answer if tools else _head("answer") + answer
        if any(tool.strict for tool in tools):
            return self._free(tools, request.parallel_calls)
        return None

    def _calls(self, tools: list["_Function"], start: str) -> str:
        opening, closing = self._mark("<tool_call>"), self._mark("</tool_call>")
        grammar = _head(start) + 'calls: call ("\\n" call)*\n'
        return grammar + f"call: {opening} one {closing}\n" + _choices(tools)

    def _free(self, tools: list["_Function"], parallel: bool) -> str:
        """Text as the model likes it, and calls as they have to be."""
        opening, closing = self._mark("<tool_call>"), self._mark("</tool_call>")
        grammar = _head("call* TEXT" if parallel else "call | TEXT") + "TEXT: /(.|\\n)*/\n"
        begun = f"begun: TEXT {opening}\n" if opening[0] == "<" else f"begun[lazy]: TEXT {opening}\n"
        return grammar + begun + f"call: begun one {closing}\n" + _choices(tools)

    def _mark(self, text: str) -> str:
        """A mark of the form as a grammar names it: a token of its own, or letters."""
        ids = self._marks[text]
        whole = len(ids) == 1 and self._reader().is_special_token(ids[0])
        return text if whole else json.dumps(text)


class Grammar:
    """One answer's way through a grammar."""

    def __init__(self, matcher: Any) -> None:
        self._matcher = matcher

    def forbidden(self) -> torch.Tensor:
        """[vocabulary] True where a token is not allowed now."""
        allowed = torch.frombuffer(bytearray(self._matcher.compute_logit_bias()), dtype=torch.uint8)
        if not allowed.any():
            raise EndpointError("server", f"the grammar is stuck: {self._matcher.get_error()[:200]}")
        return allowed == 0

    def took(self, token: int) -> bool:
        """Go on with this token; False once the answer is whole."""
        if not self._matcher.consume_token(token):
            raise EndpointError("server", f"the grammar is stuck: {self._matcher.get_error()[:200]}")
        return not self._matcher.is_stopped()


class _Function:
    """A tool as offered, in the form of OpenAI."""

    def __init__(self, tool: Mapping[str, JsonValue]) -> None:
        function: Any = tool.get("function", tool)
        self.name = str(function.get("name", ""))
        self.strict = function.get("strict") is True
        self.parameters: Any = function.get("parameters") or {"type": "object"}


def _head(start: str) -> str:
    return f"%llguidance {{}}\nstart: {start}\n"


def _choices(tools: list[_Function]) -> str:
    names = " | ".join(f"one_{number}" for number in range(len(tools)))
    rules = [
        f'one_{number}: {json.dumps(_opening(tool.name))} {_json(tool.parameters)} "}}\\n"'
        for number, tool in enumerate(tools)
    ]
    return "\n".join([f"one: {names}", *rules, ""])


def _opening(name: str) -> str:
    return f'\n{{"name": {json.dumps(name, ensure_ascii=False)}, "arguments": '


def _json(schema: Mapping[str, Any]) -> str:
    return "%json " + json.dumps({**schema, SPELLED: SPACING})
