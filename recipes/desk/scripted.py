"""A chat model that is no language model: it reads the conversation and follows `policy`.

It stands in where no model can be assumed (demo, tests), and says so by its name. It has one planted bug:
after a refund that timed out it refunds the same payment again instead of looking first; `fixed=True`
mends exactly that.
"""

import random
from collections.abc import Callable, Sequence
from typing import Any, Literal

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.messages.tool import tool_call
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.runnables.config import ensure_config
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from dreamgym_kit.errors import NotJson
from dreamgym_kit.jsonread import read_json
from dreamgym_kit.recipes.desk.policy import Habits, Reply, Turn, next_turn
from dreamgym_kit.recipes.desk.world import TENANT

Variant = Literal["senior", "junior", "slip", "mixed"]

_CHARACTERS_PER_TOKEN = 4  # a rule of thumb; the counts are for budgets and reports to have some
_MIXED = (Habits("senior"), Habits("senior"), Habits("junior"), Habits("slip", seed="1"))


class ScriptedDeskModel(BaseChatModel):
    """Chooses tool calls by code, from the last request and the answers since.

    Equal conversations get equal replies; only "mixed" also goes by the episode, so that the episodes of
    a group differ as a sampled model's would.
    """

    variant: Variant = "senior"
    fixed: bool = False
    seed: int = 0

    @property
    def _llm_type(self) -> str:
        return "scripted-desk"

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Take the tools as any chat model does; the script knows them by name."""
        return self.bind(tools=_as_openai(tuple(tools)), tool_choice=tool_choice, **kwargs)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        del stop, run_manager, kwargs
        text, replies = read_conversation(messages)
        turn = next_turn(text, replies, self._habits())
        message = _message(turn, calls_before=_count_calls(messages), prompt=messages)
        return ChatResult(generations=[ChatGeneration(message=message)])

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        del run_manager
        return self._generate(messages, stop, **kwargs)

    def _habits(self) -> Habits:
        if self.variant == "mixed":
            episode = ensure_config().get("configurable", {}).get(TENANT)
            drawn = random.Random(f"{self.seed} {episode}").choice(_MIXED)  # noqa: S311  variety, not secrets
            return Habits(drawn.kind, looks_first=self.fixed, seed=drawn.seed)
        return Habits(self.variant, looks_first=self.fixed, seed=str(self.seed))


def _as_openai(tools: tuple[Any, ...]) -> list[dict[str, Any]]:
    """The tools in OpenAI's form. An agent binds the same ones for every call: they are converted once."""
    before, made = _converted[0]
    if len(before) != len(tools) or any(one is not other for one, other in zip(before, tools, strict=True)):
        made = [convert_to_openai_tool(each) for each in tools]
        _converted[0] = (tools, made)
    return [dict(one) for one in made]


_converted: list[tuple[tuple[Any, ...], list[dict[str, Any]]]] = [((), [])]  # the last tools, and their form


def read_conversation(messages: Sequence[BaseMessage]) -> tuple[str, list[list[Reply]]]:
    """Find the last request and, for each turn of the agent since, the replies in the order of its calls."""
    asked = max((at for at, message in enumerate(messages) if isinstance(message, HumanMessage)), default=-1)
    since = messages[asked + 1 :]
    answers = {message.tool_call_id: message for message in since if isinstance(message, ToolMessage)}
    turns = [message.tool_calls for message in since if isinstance(message, AIMessage) and message.tool_calls]
    replies = [[_reply(answers.get(call["id"] or "")) for call in calls] for calls in turns]
    return (_text(messages[asked]) if asked >= 0 else ""), replies


def _reply(message: ToolMessage | None) -> Reply:
    if message is None:
        return Reply(error="no answer")
    text = _text(message)
    if message.status == "error":
        return Reply(error=text)
    try:
        return Reply(read_json(text))
    except NotJson:
        return Reply(text)


def _text(message: BaseMessage) -> str:
    """The text of a message, also where it comes in blocks, as from an MCP tool."""
    if isinstance(message.content, str):
        return message.content
    blocks = [block if isinstance(block, str) else str(block.get("text", "")) for block in message.content]
    return "".join(blocks)


def _count_calls(messages: Sequence[BaseMessage]) -> int:
    return sum(len(message.tool_calls) for message in messages if isinstance(message, AIMessage))


def _message(turn: Turn | str, *, calls_before: int, prompt: Sequence[BaseMessage]) -> AIMessage:
    uses = () if isinstance(turn, str) else turn.uses
    text = turn if isinstance(turn, str) else turn.text
    calls = [
        tool_call(name=use.tool, args=dict(use.args), id=f"call_{calls_before + number:02d}")
        for number, use in enumerate(uses, start=1)
    ]
    said = len(text) + sum(len(use.tool) + len(str(dict(use.args))) for use in uses)
    read = sum(len(_text(message)) for message in prompt)
    tokens_in, tokens_out = (-(-count // _CHARACTERS_PER_TOKEN) for count in (read, said))
    return AIMessage(
        text,
        tool_calls=calls,
        usage_metadata={
            "input_tokens": tokens_in,
            "output_tokens": tokens_out,
            "total_tokens": tokens_in + tokens_out,
        },
    )
