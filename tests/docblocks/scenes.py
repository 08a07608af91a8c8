"""The folders in which pages are read: empty, with an agent in it, or a project with recordings and runs.

The agent's "chat model" is a function, so nothing here needs a key. What its tools really do is written to
`touched`.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

AGENT = '''
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition


def really(what):
    with open("touched", "a") as file:
        print(what, file=file)


@tool
def list_orders() -> list:
    """List all orders."""
    really("list_orders")
    return [{"order_id": "o1", "status": "paid", "payment_id": "P1"}]


@tool
def get_order(order_id: str) -> dict:
    """Look up an order."""
    really(f"get_order {order_id}")
    return {"order_id": order_id, "status": "paid", "payment_id": "P1"}


@tool
def cancel_order(order_id: str) -> str:
    """Cancel an order."""
    really(f"cancel_order {order_id}")
    return "cancelled"


@tool
def refund_payment(payment_id: str) -> str:
    """Pay money back for a damaged order."""
    really(f"refund_payment {payment_id}")
    return "refunded"


STEPS = {
    "get_order": {"order_id": "o1"},
    "cancel_order": {"order_id": "o1"},
    "refund_payment": {"payment_id": "P1"},
}


def model_double(state):
    done = [message.name for message in state["messages"] if isinstance(message, ToolMessage)]
    asked = state["messages"][0].content.lower()
    for name in list(STEPS)[: 3 if "refund" in asked else 2 if "cancel" in asked else 1]:
        if name not in done:
            return {"messages": [AIMessage("", tool_calls=[{"name": name, "args": STEPS[name], "id": name}])]}
    return {"messages": [AIMessage("Done: order o1.")]}


builder = StateGraph(MessagesState)
builder.add_node("think", model_double)
builder.add_node("tools", ToolNode([list_orders, get_order, cancel_order, refund_payment]))
builder.add_edge(START, "think")
builder.add_conditional_edges("think", tools_condition)
builder.add_edge("tools", "think")
graph = builder.compile()
'''
SETTINGS = """
graph = "my_agent:graph"
tasks = "tasks.jsonl"

[tools]
list_orders = { effect = "read" }
get_order = { effect = "read" }
cancel_order = { effect = "write" }
refund_payment = { effect = "destructive" }

[environments.shop]
ref = "shop_world:Shop"
"""
WORLD = """
class Shop:
    def configurable(self, world, episode):
        return {}

    async def reset(self, world, episode):
        pass

    async def close(self, episode):
        pass
"""
TASKS = [
    {
        "id": "refund-1",
        "input": "Refund order o1.",
        "world": {"name": "shop", "seed": 2},
        "expect": {"calls": ["get_order"]},
    },
    {
        "id": "cancel-1",
        "input": "Cancel order o1.",
        "world": {"name": "shop", "seed": 3},
        "expect": {"calls": ["cancel_order"]},
    },
]
EMPTY, WITH_AGENT, AT_WORK = "empty", "with an agent", "at work"
SCENES = {
    "docs/quickstart.md": EMPTY,
    "docs/tasks.md": EMPTY,
    "README.md": WITH_AGENT,
    "docs/your-agent.md": WITH_AGENT,
}
"""Where each page is read; every other one in the project at work."""

Shell = Callable[[str, Path], str]


def with_agent(folder: Path) -> None:
    """An agent of one's own, and nothing of the kit yet."""
    folder.joinpath("my_agent.py").write_text(AGENT)


def at_work(folder: Path, shell: Shell) -> None:
    """A project with recordings, runs, and files of other tools under the names that pages use."""
    with_agent(folder)
    folder.joinpath("shop_world.py").write_text(WORLD)
    folder.joinpath("dreamgym.toml").write_text(SETTINGS)
    folder.joinpath("tasks.jsonl").write_text("".join(f"{json.dumps(task)}\n" for task in TASKS))
    folder.joinpath("customers.txt").write_text("o1\n")
    shell("dreamgym-kit record --yes", folder)
    shell("dreamgym-kit buffer export recordings.jsonl", folder)
    shell("dreamgym-kit simulate", folder)
    run = max(folder.glob("runs/*/"), key=lambda found: found.stat().st_mtime)
    for name in ("RUN", "BEFORE", "AFTER"):
        shutil.copytree(run, folder / name)
    folder.joinpath("langsmith_runs.jsonl").write_text(json.dumps(LANGSMITH) + "\n")
    folder.joinpath("runs.jsonl").write_text(json.dumps(LANGSMITH) + "\n")
    folder.joinpath("spans.json").write_text(json.dumps([SPAN]))


LANGSMITH = {
    "id": "1e0ba6b6-7f4c-4b1e-8a53-000000000001",
    "trace_id": "1e0ba6b6-7f4c-4b1e-8a53-000000000000",
    "name": "get_order",
    "run_type": "tool",
    "start_time": "2026-11-01T10:00:00",
    "end_time": "2026-11-01T10:00:01",
    "inputs": {"order_id": "o1"},
    "outputs": {"output": {"order_id": "o1", "customer_name": "Ann Example", "email": "ann@example.com"}},
}
SPAN = {
    "trace_id": "0af7651916cd43dd8448eb211c80319c",
    "span_id": "b7ad6b7169203331",
    "name": "execute_tool get_order",
    "start_time_unix_nano": "1762000000000000000",
    "end_time_unix_nano": "1762000001000000000",
    "attributes": {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "get_order",
        "gen_ai.tool.call.arguments": '{"order_id": "o1"}',
        "gen_ai.tool.call.result": '{"order_id": "o1", "status": "paid"}',
    },
}
