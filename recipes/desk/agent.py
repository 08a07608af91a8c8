"""The desk's agent: a create_agent graph over the tools, with the house rules as its prompt.

Its scripted model is no language model: it reads the conversation and follows `policy`. It stands in where no
model can be assumed (demo, tests), and says so by its name. It has one planted bug: after a refund that timed
out it refunds the same payment again instead of looking first; `fixed=True` mends exactly that.
"""

import operator
import os
import random
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, NotRequired

from langchain.agents import AgentState, create_agent
from langchain.chat_models import init_chat_model
from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.messages.tool import tool_call
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.runnables.config import ensure_config
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.graph.state import CompiledStateGraph

from dreamgym_kit.bounded_json import read_json
from dreamgym_kit.errors import NotSerializable, UserError
from dreamgym_kit.recipes.desk.environment import TENANT
from dreamgym_kit.recipes.desk.policy import Habits, ScriptReply, ScriptTurn, next_turn

Variant = Literal["senior", "junior", "slip", "mixed"]

_CHARACTERS_PER_TOKEN = 4  # a rule of thumb; the counts are for budgets and reports to have some
_MIXED = (Habits("senior"), Habits("senior"), Habits("junior"), Habits("slip", seed="1"))


class DeskState(AgentState[Any]):
    """What the desk's graph keeps besides the messages."""

    escalated: NotRequired[Annotated[list[str], operator.add]]  # orders and customers, in order


MODEL_VARIABLE = "DESK_MODEL"
SCRIPTED = "scripted"

RULES = """\
You work a shop's support desk. Use the tools; say in one sentence at the end what was done.
- Find the customer by first name. Act only on orders of the customer who writes; if an order is not
  theirs, open a ticket "identity" and change nothing.
- Charged twice: only if an order has two captured payments, refund the later one in full, then send a mail.
- Cancel an order: only if it is new or packed. Cancel it, refund its payment in full, send a mail.
  Otherwise open a ticket "return".
- Cancel all open orders: cancel each that is new or packed and open one ticket "refund"; accounting
  pays back, you do not. With no open order do nothing.
- Broken item: refund what refund_quote says for amount and days, then send a mail. If it says none, open a
  ticket "repair".
- Customer moved: change the city; escalate each of their shipped orders with reason "address".
- Order late: track the parcel. Lost: send it again and send a mail. Delivered: escalate the order with reason
  "missing". Otherwise only tell them.
- Complaint: gold customers are escalated with reason "complaint", after summing up the case; others get a
  ticket "complaint".
- Delete an account: only with no new, packed or shipped order. Send a mail first, then delete the customer.
  Otherwise open a ticket "delete".
- A refund that timed out may have arrived: list the payments before you try it again.
"""

_SCRIPTS: dict[str, tuple[Variant, bool]] = {
    "": ("senior", False),
    "fixed": ("senior", True),
    "junior": ("junior", False),
    "slip": ("slip", False),
    "mixed": ("mixed", False),
}


def choose_model(name: str | None = None) -> BaseChatModel:
    """Give the chat model of that name.

    Args:
        name: what `init_chat_model` takes ("openai:gpt-5-mini"), or "scripted", "scripted:fixed",
            "scripted:junior", "scripted:slip", "scripted:mixed"; `$DESK_MODEL` when None, else "scripted".

    Raises:
        UserError: there is no such script, or the provider's package or key is missing.
    """
    chosen = name or os.environ.get(MODEL_VARIABLE) or SCRIPTED
    kind, _, script = chosen.partition(":")
    if kind != SCRIPTED:
        return _real_model(chosen)
    if script not in _SCRIPTS:
        scripts = ", ".join(filter(None, _SCRIPTS))
        raise UserError(f"{MODEL_VARIABLE}: there is no script '{script}'; known: {scripts}.")
    variant, fixed = _SCRIPTS[script]
    return ScriptedDeskModel(variant=variant, fixed=fixed)


def build_agent(
    tools: Sequence[BaseTool], model: str | BaseChatModel | None = None
) -> CompiledStateGraph[Any, Any, Any, Any]:
    """Build the agent over these tools."""
    chosen = model if isinstance(model, BaseChatModel) else choose_model(model)
    return create_agent(chosen, list(tools), system_prompt=RULES, state_schema=DeskState, name="desk")


def _real_model(name: str) -> BaseChatModel:
    try:
        model = init_chat_model(name)
    except Exception as error:  # providers raise their own kinds; each means: not usable as named
        reason = str(error).strip().split("\n", 1)[0] or type(error).__name__
        raise UserError(
            f"{MODEL_VARIABLE}: '{name}' cannot be used ({reason}); install its package and set its key, or "
            f"use {SCRIPTED}."
        ) from error
    return model


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
        calls = sum(len(message.tool_calls) for message in messages if isinstance(message, AIMessage))
        message = _message(turn, calls_before=calls, prompt=messages)
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
    if len(before) != len(tools) or any(tool is not other for tool, other in zip(before, tools, strict=True)):
        made = [convert_to_openai_tool(each) for each in tools]
        _converted[0] = (tools, made)
    return [dict(schema) for schema in made]


_converted: list[tuple[tuple[Any, ...], list[dict[str, Any]]]] = [((), [])]  # the last tools, and their form


def read_conversation(messages: Sequence[BaseMessage]) -> tuple[str, list[list[ScriptReply]]]:
    """Find the last request and, for each turn of the agent since, the replies in the order of its calls."""
    last = max((at for at, message in enumerate(messages) if isinstance(message, HumanMessage)), default=-1)
    since = messages[last + 1 :]
    answers = {message.tool_call_id: message for message in since if isinstance(message, ToolMessage)}
    turns = [message.tool_calls for message in since if isinstance(message, AIMessage) and message.tool_calls]
    replies = [[_reply(answers.get(call["id"] or "")) for call in calls] for calls in turns]
    return (str(messages[last].text) if last >= 0 else ""), replies


def _reply(message: ToolMessage | None) -> ScriptReply:
    if message is None:
        return ScriptReply(error="no answer")
    text = str(message.text)  # also of one in blocks, as from an MCP tool
    if message.status == "error":
        return ScriptReply(error=text)
    try:
        return ScriptReply(read_json(text))
    except NotSerializable:
        return ScriptReply(text)


def _message(turn: ScriptTurn | str, *, calls_before: int, prompt: Sequence[BaseMessage]) -> AIMessage:
    uses = () if isinstance(turn, str) else turn.uses
    text = turn if isinstance(turn, str) else turn.text
    calls = [
        tool_call(name=use.tool, args=dict(use.args), id=f"call_{calls_before + number:02d}")
        for number, use in enumerate(uses, start=1)
    ]
    written = len(text) + sum(len(use.tool) + len(str(dict(use.args))) for use in uses)
    read = sum(len(message.text) for message in prompt)
    tokens_in, tokens_out = (-(-count // _CHARACTERS_PER_TOKEN) for count in (read, written))
    return AIMessage(
        text,
        tool_calls=calls,
        usage_metadata={
            "input_tokens": tokens_in,
            "output_tokens": tokens_out,
            "total_tokens": tokens_in + tokens_out,
        },
    )
