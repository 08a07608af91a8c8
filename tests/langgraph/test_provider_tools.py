"""Tools that the model's provider runs: what is bound decides, and nothing starts with one in it."""

from types import SimpleNamespace
from typing import Any

import pytest
from each_row import each_row
from shapes.models import ScriptedModelDouble

import dreamgym_kit
from dreamgym_kit import Task
from dreamgym_kit.adapters.langgraph.intercept.provider_tools import provider_tools
from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.errors import RealCallBlocked, UnsupportedGraph
from dreamgym_kit.rollout.rundir import RunDirectory
from dreamgym_kit.routing.process import entered
from dreamgym_kit.routing.router import CallRouter, Mode
from dreamgym_kit.routing.session import Session
from dreamgym_kit.settings.load import parse_settings

TASK = Task("t1", {"messages": [{"role": "user", "content": "hello"}]})
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
PROVIDERS: dict[str, dict[str, Any]] = {
    "web_search": {"type": "web_search"},
    "web_search_preview_2025_03_11": {"type": "web_search_preview_2025_03_11"},
    "file_search": {"type": "file_search", "vector_store_ids": ["vs_1"]},
    "code_interpreter": {"type": "code_interpreter", "container": {"type": "auto"}},
    "computer_use_preview": {"type": "computer_use_preview", "display_width": 1024},
    "image_generation": {"type": "image_generation"},
    "mcp": {"type": "mcp", "server_label": "bank", "server_url": "https://x", "require_approval": "never"},
    "web_search_20250305": {"type": "web_search_20250305", "name": "refund"},
    "code_execution_20250825": {"type": "code_execution_20250825", "name": "code_execution"},
    "mcp_toolset": {"type": "mcp_toolset", "mcp_server_name": "bank"},
    "google_search": {"google_search": {}},
    "code_execution": {"code_execution": {}, "function_declarations": [{"name": "f"}]},
    "of_next_year": {"type": "of_next_year", "parameters": SCHEMA},
}
OWN: list[Any] = [
    {"type": "function", "function": {"name": "web_search", "parameters": SCHEMA}},
    {"type": "function", "name": "code_interpreter", "parameters": SCHEMA},
    {"type": "custom", "name": "run", "format": {"type": "text"}},
    {"name": "web_search", "input_schema": SCHEMA},
    {"name": "web_search", "description": "without arguments"},
    {"title": "WebSearch", **SCHEMA},
    {"toolSpec": {"name": "web_search"}},
    {"function_declarations": [{"name": "google_search"}]},
    {"type": "bash_20250124", "name": "bash"},
    {"type": "namespace", "name": "crm", "tools": [{"type": "function", "name": "f"}]},
    SimpleNamespace(name="web_search"),
    print,
]


@each_row("name", PROVIDERS)
def test_what_is_bound_decides_and_not_its_name(name: str) -> None:
    assert provider_tools(PROVIDERS[name]) == [name]


@each_row("bound", OWN, ids=str)
def test_what_the_caller_runs_is_none_of_them(bound: Any) -> None:
    assert provider_tools(bound) == []


AGENT = """
from langchain.agents import create_agent
from shapes.models import ScriptedModelDouble

asked = []

class Model(ScriptedModelDouble):
    def bind_tools(self, tools, **kwargs):
        return self.bind(tools=list(tools))

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        asked.append(kwargs.get("tools"))
        return super()._generate(messages)

model = Model(script=["done"])
SEARCH = {"type": "web_search"}
"""
CREATED = AGENT + "graph = create_agent(model, [get_order, SEARCH])\n"
BY_HAND = """
from langgraph.graph import StateGraph, MessagesState, START
def made(node):
    return StateGraph(MessagesState).add_node("agent", node).add_edge(START, "agent").compile()
"""
BOUND = (
    AGENT
    + BY_HAND
    + (
        "bound = model.bind_tools([get_order, SEARCH])\n"
        "graph = made(lambda state: {'messages': [bound.invoke(state['messages'])]})\n"
    )
)
LATE = (
    AGENT
    + BY_HAND
    + ("graph = made(lambda state: {'messages': [model.bind_tools([get_order] + [SEARCH]).invoke('hi')]})\n")
)
GIVEN = (
    AGENT
    + BY_HAND
    + ("graph = made(lambda state: {'messages': [model.invoke('hi', tools=[get_order] + [SEARCH])]})\n")
)


@each_row("source", [CREATED, BOUND], ids=["create_agent", "bound in the module"])
def test_a_dream_does_not_start_with_one_and_the_message_says_what_takes_it_out(
    project: Any, source: str
) -> None:
    graph = project.write(source)
    with pytest.raises(UnsupportedGraph) as caught:
        dreamgym_kit.simulate(graph, [TASK], buffer=MemoryStore())
    (problem,) = caught.value.problems
    assert "'web_search' is a tool that the model's provider runs" in problem
    assert 'leave_out = ["web_search"]' in problem


@each_row("source", [LATE, GIVEN], ids=["bound in a node", "given with the call"])
def test_one_that_is_bound_only_in_the_run_is_refused_before_the_model_is_asked(
    project: Any, source: str
) -> None:
    graph = project.write(source)
    result = dreamgym_kit.simulate(graph, [TASK], buffer=MemoryStore())
    (one,) = RunDirectory.open(result.directory).episodes()
    assert one.stop == "violation"
    assert "'web_search' is a tool that the model's provider runs" in one.violations[0]
    assert __import__(project.module).asked == []


@each_row("source", [CREATED, BOUND, LATE, GIVEN])
def test_left_out_by_settings_the_model_is_told_of_the_others_alone(project: Any, source: str) -> None:
    graph = project.write(source)
    settings = parse_settings('leave_out = ["web_search"]')
    result = dreamgym_kit.simulate(graph, [TASK], buffer=MemoryStore(), settings=settings)
    (one,) = RunDirectory.open(result.directory).episodes()
    assert one.violations == ()
    ((kept,),) = __import__(project.module).asked
    assert kept.name == "get_order"


class Hosted(ScriptedModelDouble):
    mcp_servers: Any = None
    model_kwargs: Any = None


@each_row(
    "own", [{"mcp_servers": [{"url": "https://x"}]}, {"model_kwargs": {"tools": [{"type": "mcp"}]}}], ids=str
)
def test_what_the_model_itself_was_made_with_counts_too(own: Any) -> None:
    session = Session(CallRouter(Mode.DREAM))
    with entered(session), pytest.raises(RealCallBlocked, match="that the model's provider runs"):
        Hosted(script=["done"], **own).invoke("hi")
    allowed = Session(CallRouter(Mode.DREAM, left_out=frozenset({"mcp_servers", "mcp"})))
    with entered(allowed):
        assert Hosted(script=["done"], **own).invoke("hi").content == "done"
