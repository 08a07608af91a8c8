"""The agent that the whole-run benches run: four answers of the model, three calls of the tool `look`."""

import asyncio
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import BaseTool, tool

MODEL_CALLS = 4


class ModelDouble(BaseChatModel):
    """Answers by a script, each time after `latency_s`, without using the processor meanwhile."""

    latency_s: float = 0.0
    tools: tuple[str, ...] = ("look",)  # called in turn

    @property
    def _llm_type(self) -> str:
        return "double"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        raise NotImplementedError

    async def _agenerate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        if self.latency_s:
            await asyncio.sleep(self.latency_s)
        turn = 1 + sum(isinstance(message, AIMessage) for message in messages)
        name = self.tools[turn % len(self.tools)]
        calls = [{"name": name, "args": {"item": turn}, "id": f"call_{turn}"}]
        message = AIMessage("", tool_calls=calls) if turn < MODEL_CALLS else AIMessage("done")
        return ChatResult(generations=[ChatGeneration(message=message)])


@tool
async def look(item: int) -> str:
    """Look at an item."""
    return f"item {item} is red"


@tool("look")
def look_in_thread(item: int) -> str:
    """Look at an item."""
    return f"item {item} is red"


@tool
def weigh(item: int) -> str:
    """Weigh an item."""
    return f"item {item} weighs {item} kg"


def agent(model: BaseChatModel, *tools: BaseTool) -> Any:
    """An agent as `create_agent` makes it."""
    return create_agent(model, list(tools), system_prompt="You look at three items, one after the other.")


def question(number: int) -> dict[str, Any]:
    """The input of one episode."""
    return {"messages": [{"role": "user", "content": f"Please look at the three items, customer {number}."}]}
