"""Five graphs over ChatOpenAI, which asks nobody here, and a policy that is steered through them.

What a policy with random weights would never say, a call of a tool, it is made to say where the shape needs
it; the tokens are sampled by the real engine all the same, and what it sampled is written down beside it.
"""

import warnings
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any, Literal

from langchain.agents import create_agent
from langchain.agents.structured_output import ToolStrategy
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, create_react_agent, tools_condition
from pydantic import BaseModel

from dreamgym_kit.adapters.models.local import LocalPolicy
from dreamgym_kit.chat import ChatReply, ChatRequest, SampledTokens

ROUNDS = 3  # calls of the tool before the last word


@tool
def get_order(order_id: Literal["o1", "o2", "o3"]) -> str:
    """Read an order."""
    raise AssertionError("a real tool ran")


class Verdict(BaseModel):
    """What became of an order."""

    order_id: Literal["o1", "o2", "o3"]
    fine: bool


def _model(*, streaming: bool) -> ChatOpenAI:
    return ChatOpenAI(model="gpt-x", api_key="none", streaming=streaming)


def _agent(*, streaming: bool) -> Any:
    return create_agent(_model(streaming=streaming), [get_order], system_prompt="You are at a desk.")


def _react(*, streaming: bool) -> Any:
    return create_react_agent(_model(streaming=streaming), [get_order])


def _state_graph(*, streaming: bool) -> Any:
    model = _model(streaming=streaming).bind_tools([get_order])

    def agent(state: Any) -> Any:
        if not streaming:
            return {"messages": [model.invoke(state["messages"])]}
        parts = list(model.stream(state["messages"]))
        return {"messages": [sum(parts[1:], parts[0])]}

    graph = StateGraph(MessagesState)
    graph.add_node("agent", agent)
    graph.add_node("tools", ToolNode([get_order]))
    graph.add_edge(START, "agent")
    graph.add_conditional_edges("agent", tools_condition)
    graph.add_edge("tools", "agent")
    return graph.compile()


def _supervisor(*, streaming: bool) -> Any:
    from langgraph_supervisor import create_supervisor

    def worker(name: str) -> Any:
        return create_agent(_model(streaming=streaming), [get_order], name=name)

    team = create_supervisor([worker("desk"), worker("store")], model=_model(streaming=streaming))
    return team.compile()


def _structured(*, streaming: bool) -> Any:
    return create_agent(_model(streaming=streaming), [get_order], response_format=ToolStrategy(Verdict))


SHAPES: Mapping[str, Callable[..., Any]] = {
    "create_agent": _agent,
    "create_react_agent": _react,
    "StateGraph": _state_graph,
    "supervisor": _supervisor,
    "structured output": _structured,
}


def made(shape: str, *, streaming: bool) -> Any:
    """The graph of a shape."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return SHAPES[shape](streaming=streaming)


class SteeredPolicyDouble:
    """The real engine in process, made to call the tools that a shape needs.

    A grammar forces the calls; that it did is not told, so that what follows treats the turns as sampled
    freely. `sampled`: what the engine said it sampled, in the order of its answers.
    """

    def __init__(self, policy: LocalPolicy) -> None:
        self.sampled: list[SampledTokens] = []
        self._policy = policy

    def episode(self, key: str) -> AbstractAsyncContextManager[None]:
        return self._policy.episode(key)

    async def chat(self, request: ChatRequest) -> ChatReply:
        forced = _forced(request)
        reply = await self._policy.chat(replace(request, tool_choice=forced))
        assert reply.tokens is not None
        self.sampled.append(reply.tokens)
        return replace(reply, tokens=replace(reply.tokens, constrained=False))


def _forced(request: ChatRequest) -> str:
    """The tool that has to be called now, else "auto": the policy says what it likes."""
    functions: list[Any] = [tool["function"] for tool in request.tools]
    names = [function["name"] for function in functions]
    called = [call.name for message in request.messages for call in message.tool_calls]
    handoffs = [name for name in names if name.startswith("transfer_to_")]
    if handoffs:
        done = sum(name.startswith("transfer_to_") for name in called)
        return handoffs[done] if done < len(handoffs) else "auto"
    if called.count("get_order") < ROUNDS or (called and called[-1].startswith("transfer_to_")):
        return "get_order"
    return "Verdict" if "Verdict" in names else "auto"
