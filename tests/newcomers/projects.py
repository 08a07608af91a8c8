"""Projects as newcomers bring them; the chat models in them are doubles that say what they are told to."""

import json
from pathlib import Path

VERBS = ("get", "list", "search", "check", "create", "update", "cancel", "delete", "send", "refund")
NOUNS = ("customer_account", "shipping_address", "invoice")
THIRTY = tuple(f"{verb}_{noun}" for noun in NOUNS for verb in VERBS)

_HEAD = """\
from langchain_core.language_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition


class ModelDouble(FakeMessagesListChatModel):
    def bind_tools(self, tools, **kwargs):
        return self

"""
_TOOL = '''
@tool
def {name}(id: str) -> str:
    """{name}: what the back office does with one of them, in a sentence that is rather longer than a line."""
    return "ok"

'''
_TAIL = """
asked = {{"name": "{first}", "args": {{"id": "7"}}, "id": "1"}}
model = ModelDouble(responses=[AIMessage(content="", tool_calls=[asked]), AIMessage(content="Done.")])
TOOLS = [{names}]


def agent(state):
    return {{"messages": [model.bind_tools(TOOLS).invoke(state["messages"])]}}


builder = StateGraph(MessagesState)
builder.add_node("agent", agent)
builder.add_node("tools", ToolNode(TOOLS))
builder.add_edge(START, "agent")
builder.add_conditional_edges("agent", tools_condition)
builder.add_edge("tools", "agent")
graph = builder.compile()
"""


def agent(*names: str, before: str = "", after: str = "") -> str:
    """The source of an agent with these tools; `before` and `after` run when it is imported."""
    chosen = names or ("get_invoice", "send_invoice")
    tools = "".join(_TOOL.format(name=name) for name in chosen)
    tail = _TAIL.format(first=chosen[0], names=", ".join(chosen))
    return f"{before}\n{_HEAD}{tools}{tail}{after}\n"


def project(folder: Path) -> Path:
    """Two graphs as langgraph.json has them: a package under src/, an environment file that is not there."""
    package = folder / "src" / "shop"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "words.py").write_text('HELLO = "hello"\n')
    reads = (
        "import os\nfrom .words import HELLO\nfrom shop.words import HELLO as AGAIN\nos.environ['SHOP_URL']"
    )
    (package / "sales.py").write_text(agent(before=reads))
    (package / "support.py").write_text(agent(after="\ndef make(config):\n    return graph\n"))
    graphs = {"sales": "./src/shop/sales.py:graph", "support": {"path": "./src/shop/support.py:make"}}
    described = {"dependencies": ["./src", "langchain"], "graphs": graphs, "env": ".env"}
    (folder / "langgraph.json").write_text(json.dumps(described))
    return folder
