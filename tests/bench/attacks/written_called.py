"""More cases written by hand: functions that a framework calls, beside every tool and node.

The model names nothing here: what runs is the agent's own code, so a twin declares nothing.
"""

from collections.abc import Mapping

from attacks.project import HEAD, Case
from attacks.written_in_nodes import FUNCTION, ONE_NODE

_REDUCER = """
from typing import Annotated
from langgraph.graph.message import add_messages
def joined(old, new):
    $name("o1")
    return add_messages(old, new)
class State(TypedDict):
    messages: Annotated[list, joined]
def work(state):
    return {"messages": [AIMessage("done")]}
build = StateGraph(State)
build.add_node("work", work)
build.add_edge(START, "work")
build.add_edge("work", END)
graph = build.compile()
"""
_STATE = """
class State(BaseModel):
    messages: list[Any]
    order: str = ""
    @field_validator("messages")
    @classmethod
    def seen(cls, messages):
        $name("o1")
        return messages
def work(state):
    return {"messages": [AIMessage("done")]}
build = StateGraph(State)
build.add_node("work", work)
build.add_edge(START, "work")
build.add_edge("work", END)
graph = build.compile()
"""
_ANSWER = """
class Report(BaseModel):
    "A report."
    order: str
    def model_post_init(self, context):
        $name(self.order)
from langchain.agents.structured_output import ToolStrategy
model = Scripted(script=[[asks("Report", order="o1")]])
graph = create_agent(model, [], response_format=ToolStrategy(Report))
"""
_HANDLED = """
def failing(text: str) -> str:
    "Take a note."
    raise ValueError(text)
noted = effect("pure")(StructuredTool.from_function(failing, name="note", description="Take a note."))
bound = Scripted(script=[[asks("note", text="about o1")]]).bind_tools([noted])
def ask(state):
    return {"messages": [bound.invoke(state["messages"])]}
def handled(error: ValueError) -> str:
    return $name("o1")
build = StateGraph(MessagesState)
build.add_node("ask", ask)
build.add_node("act", ToolNode([noted], handle_tool_errors=handled))
build.add_edge(START, "ask")
build.add_conditional_edges("ask", lambda state: "act" if state["messages"][-1].tool_calls else END)
build.add_edge("act", "ask")
graph = build.compile()
"""
_RETRY = """
from langgraph.types import RetryPolicy
tries = []
def work(state):
    tries.append(1)
    if len(tries) == 1:
        raise ValueError("again")
    return {"messages": [AIMessage("done")]}
def again(error):
    return bool($name("o1"))
build = StateGraph(MessagesState)
build.add_node("work", work, retry_policy=RetryPolicy(initial_interval=0.01, jitter=False, retry_on=again))
build.add_edge(START, "work")
build.add_edge("work", END)
graph = build.compile()
"""
_LISTENS = (
    """
class Hears(BaseCallbackHandler):
    raise_error = True
    run_inline = True
    def on_chat_model_start(self, serialized, messages, **more):
        $name("o1")
model = Scripted(script=["done"], callbacks=[Hears()])
def work(state):
    return {"messages": [model.invoke(state["messages"])]}
"""
    + ONE_NODE
)
_GRAPH_LISTENS = (
    """
class Hears(BaseCallbackHandler):
    raise_error = True
    run_inline = True
    def on_chain_start(self, serialized, given, **more):
        $name("o1")
def work(state):
    return {"messages": [AIMessage("done")]}
"""
    + ONE_NODE
    + "graph = graph.with_config(callbacks=[Hears()])\n"
)
_PARTIAL_NODE = (
    """
def work_for(account, state):
    return {"messages": [AIMessage($name("o1"))]}
work = functools.partial(work_for, "main")
"""
    + ONE_NODE
)
_BACKGROUND = (
    """
model = Scripted(script=["yes"])
async def later():
    await asyncio.sleep(0)
    return $name("o1")
async def work(state):
    started = asyncio.create_task(later())
    said = await model.ainvoke(state["messages"])
    return {"messages": [said, AIMessage(await started)]}
"""
    + ONE_NODE
)
_PROMPT = """
from langchain.agents.middleware import dynamic_prompt
@dynamic_prompt
def prompt(request):
    return $name("o1")
graph = create_agent(Scripted(script=["done"]), [], middleware=[prompt])
"""
_MODEL_CALL = """
from langchain.agents.middleware import wrap_model_call
@wrap_model_call
def watched(request, handler):
    $name("o1")
    return handler(request)
graph = create_agent(Scripted(script=["done"]), [], middleware=[watched])
"""
_AFTER = """
from langchain.agents.middleware import after_agent
@after_agent
def closing(state, runtime):
    return {"messages": [AIMessage($name("o1"))]}
graph = create_agent(Scripted(script=["done"]), [], middleware=[closing])
"""
_SENT = """
from langgraph.types import Send
def one(given):
    return {"messages": [AIMessage($name(given["order"]))]}
build = StateGraph(MessagesState)
build.add_node("plan", lambda state: {"messages": []})
build.add_node("one", one)
build.add_edge(START, "plan")
build.add_conditional_edges("plan", lambda state: [Send("one", {"order": "o1"})], ["one"])
graph = build.compile()
"""
_PARSED = """
class Own(StructuredTool):
    def _parse_input(self, given, tool_call_id):
        $name("o1")
        return super()._parse_input(given, tool_call_id)
held = effect("pure")(Own.from_function(lambda text: text, name="note", description="Take a note."))
graph = create_agent(Scripted(script=[[asks("note", text="o1")]]), [held])
"""
_DEFAULT = """
from pydantic import Field
class Note(BaseModel):
    text: str
    number: str = Field(default_factory=lambda: $name("o1"))
def note(text: str, number: str) -> str:
    return text
held = effect("pure")(StructuredTool.from_function(note, name="note", description="Note.", args_schema=Note))
graph = create_agent(Scripted(script=[[asks("note", text="o1")]]), [held])
"""

CALLED: Mapping[str, tuple[str, str]] = {
    "reducer": ("a reducer of the state", _REDUCER),
    "state_validator": ("a validator of the state", _STATE),
    "answer_form": ("the answer form's model_post_init", _ANSWER),
    "error_handler": ("a ToolNode's handler of errors", _HANDLED),
    "retry_on": ("a retry policy's retry_on", _RETRY),
    "model_callback": ("a callback of the model", _LISTENS),
    "graph_callback": ("a callback of the graph", _GRAPH_LISTENS),
    "partial_node": ("a node that is a partial", _PARTIAL_NODE),
    "background_task": ("an asyncio task of a node", _BACKGROUND),
    "dynamic_prompt": ("a middleware's prompt", _PROMPT),
    "model_call": ("a middleware around the model", _MODEL_CALL),
    "after_agent": ("a middleware after the agent", _AFTER),
    "sent": ("a node that is reached by Send", _SENT),
    "parse_input": ("a tool's own _parse_input", _PARSED),
    "default_factory": ("a default of an argument", _DEFAULT),
}


def called() -> list[Case]:
    """All of them."""
    return [
        Case(
            name,
            {"agent.py": HEAD + FUNCTION + text},
            about=about,
            is_async=name == "background_task",
        )
        for name, (about, text) in CALLED.items()
    ]
