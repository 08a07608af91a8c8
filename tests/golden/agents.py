"""Three agents of different shapes over a small shop in a file; their models are scripts."""

import json
import operator
import os
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import ToolException, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Send, interrupt

SHOP = Path(os.environ.get("GOLDEN_SHOP", "shop.json"))
STOCK = {
    "o1": {"status": "open", "amount": 40, "customer": "Ana Ruiz"},
    "o2": {"status": "sent", "amount": 88, "customer": "Ben Ode"},
    "o3": {"status": "open", "amount": 12, "customer": "Cy Tran"},
}


class Shop:
    """The environment provider: one file, put back before each episode."""

    def configurable(self, world: Any, episode: str) -> dict[str, Any]:
        """Nothing."""
        return {}

    async def reset(self, world: Any, episode: str) -> None:
        """Write the stock as it was."""
        _keep({"orders": STOCK, "mails": [], "refunds": 0})

    async def close(self, episode: str) -> None:
        """Keep the file."""


def _shop() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(SHOP.read_text())
    return found


def _keep(shop: dict[str, Any]) -> None:
    """Write it whole: a call beside this one reads."""
    half = SHOP.with_suffix(".half")
    half.write_text(json.dumps(shop))
    half.replace(SHOP)


class ScriptedModelDouble(BaseChatModel):
    """Plays the script of its task, turn by turn: a text, or a list of (tool, arguments)."""

    scripts: dict[str, list[Any]]

    @property
    def _llm_type(self) -> str:
        return "scripted-double"

    def bind_tools(self, tools: Any, **kwargs: Any) -> "ScriptedModelDouble":
        """Leave the tools as they are."""
        return self

    def _generate(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        task = next(str(one.content) for one in messages if isinstance(one, HumanMessage))
        said = sum(isinstance(one, AIMessage) for one in messages)
        turns = self.scripts[task]
        turn = turns[min(said, len(turns) - 1)]
        calls = [] if isinstance(turn, str) else [
            {"name": name, "args": args, "id": f"c{said}-{place}", "type": "tool_call"}
            for place, (name, args) in enumerate(turn)
        ]  # fmt: skip
        usage = {"input_tokens": 90, "output_tokens": 9, "total_tokens": 99}
        message = AIMessage(turn if isinstance(turn, str) else "", tool_calls=calls, usage_metadata=usage)
        return ChatResult(generations=[ChatGeneration(message=message)])


@tool
def look_up_order(order_id: str) -> dict[str, Any]:
    """Read an order."""
    orders = _shop()["orders"]
    if order_id not in orders:
        raise ToolException(f"no order {order_id}")
    return {"order_id": order_id, **orders[order_id]}


@tool
async def cancel_an_order(order_id: str, reason: str) -> str:
    """Cancel an order."""
    shop = _shop()
    if shop["orders"][order_id]["status"] != "open":
        raise ToolException(f"{order_id} is {shop['orders'][order_id]['status']}")
    shop["orders"][order_id]["status"] = "cancelled"
    _keep(shop)
    return f"cancelled {order_id}"


@tool
def refund_an_order(order_id: str, amount: int) -> dict[str, Any]:
    """Refund money; a person is asked above 50."""
    if amount > 50 and (reply := interrupt({"question": f"refund {amount}?"})) != "yes":
        return {"refunded": 0, "why": reply}
    shop = _shop()
    shop["refunds"] += amount
    _keep(shop)
    return {"refunded": amount, "receipt": f"r-{shop['refunds']}"}


@tool
def mail_customer(order_id: str, text: str) -> str:
    """Send mail."""
    shop = _shop()
    shop["mails"].append([shop["orders"][order_id]["customer"], text])
    _keep(shop)
    return f"mail {len(shop['mails'])} sent"


@tool
def add_up(amounts: list[int]) -> int:
    """Add amounts; computes only."""
    return sum(amounts)


TOOLS = [look_up_order, cancel_an_order, refund_an_order, mail_customer, add_up]
SCRIPTS: dict[str, list[Any]] = {
    "cancel o1": [
        [("look_up_order", {"order_id": "o1"})],
        [("cancel_an_order", {"order_id": "o1", "reason": "asked"})],
        [("look_up_order", {"order_id": "o1"}), ("mail_customer", {"order_id": "o1", "text": "Done."})],
        "Order o1 is cancelled.",
    ],
    "cancel o2": [
        [("look_up_order", {"order_id": "o2"})],
        [("cancel_an_order", {"order_id": "o2", "reason": "asked"})],
        "Order o2 cannot be cancelled.",
    ],
    "refund o2": [
        [("look_up_order", {"order_id": "o2"}), ("add_up", {"amounts": [80, 8]})],
        [("refund_an_order", {"order_id": "o2", "amount": 88})],
        "I refunded order o2.",
    ],
    "refund o3 twice": [
        [("refund_an_order", {"order_id": "o3", "amount": 12})],
        [("refund_an_order", {"order_id": "o3", "amount": 12})],
        "Refunded.",
    ],
    "find o9": [[("look_up_order", {"order_id": "o9"})], "There is no such order."],
    "mail o3": [[("mail_customer", {"order_id": "o3", "text": "Hello  Cy,\nall well?"})], "Sent."],
}


def react() -> Any:
    """LangChain's own agent."""
    return create_agent(ScriptedModelDouble(scripts=SCRIPTS), TOOLS)


def nested() -> Any:
    """A supervisor whose worker is a graph of its own, with its own memory."""
    model = ScriptedModelDouble(scripts=SCRIPTS)
    worker = StateGraph(MessagesState)
    worker.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
    worker.add_node("tools", ToolNode(TOOLS, handle_tool_errors=True))
    worker.add_edge(START, "model")
    worker.add_conditional_edges(
        "model", lambda state: "tools" if state["messages"][-1].tool_calls else END, ["tools", END]
    )
    worker.add_edge("tools", "model")
    outer = StateGraph(MessagesState)
    outer.add_node("worker", worker.compile())
    outer.add_node("closing", lambda state: {"messages": [AIMessage("Anything else?")]})
    outer.add_edge(START, "worker")
    outer.add_edge("worker", "closing")
    outer.add_edge("closing", END)
    return outer.compile(checkpointer=InMemorySaver())


class Fan(TypedDict):
    """What the third agent works on."""

    messages: Annotated[list[AnyMessage], operator.add]
    orders: list[str]
    found: Annotated[list[Any], operator.add]


def note_in_ledger(order_id: str, text: str) -> str:
    """Write to the shop, and no tool: `[functions]` names it."""
    shop = _shop()
    shop["mails"].append([order_id, text])
    _keep(shop)
    return f"noted {order_id}"


def _look(state: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"found": [look_up_order.invoke({"order_id": state["order"]})]}
    except ToolException as error:
        return {"found": [{"order_id": state["order"], "status": str(error)}]}


def _note(state: Fan) -> dict[str, Any]:
    done = [
        note_in_ledger(one["order_id"], one["status"])
        for one in sorted(state["found"], key=lambda one: str(one["order_id"]))
    ]
    return {"messages": [AIMessage(", ".join(done))]}


def fan() -> Any:
    """Nodes that call tools and a function by themselves, without a model, and so in the order of arrival.

    LangGraph starts them together, but lets only one run at a time: threads may arrive in any order.
    """
    made = StateGraph(Fan)
    made.add_node("look", _look)
    made.add_node("note", _note)
    made.add_conditional_edges(
        START, lambda state: [Send("look", {"order": order}) for order in state["orders"]], ["look"]
    )
    made.add_edge("look", "note")
    made.add_edge("note", END)
    return made.compile().with_config(max_concurrency=1)


def says_so(outcome: Any) -> bool:
    """Check that the agent's last word fits what it did."""
    done = {step.call.tool for step in outcome.transitions if step.answer.error is None}
    said = str(outcome.messages[-1].get("content"))
    return "cannot" in said or "no such" in said or bool(done - {"look_up_order", "add_up"})
