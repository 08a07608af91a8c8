"""What acts beside the tools is found by reading, intercepted in a dream, and confirmed before real calls."""

import sys
from collections.abc import Mapping
from textwrap import dedent
from types import MappingProxyType
from typing import Any

import pytest
from each_row import each_row
from shapes.stage import ScriptedExperienceDouble

import dreamgym_kit
from dreamgym_kit import Episode, Task
from dreamgym_kit.adapters.langgraph.analysis.inspection import inspect_compiled
from dreamgym_kit.adapters.langgraph.analysis.inventory import taken
from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.errors import UnsupportedGraph, UserError
from dreamgym_kit.rollout.rundir import RunDirectory
from dreamgym_kit.rollout.tool_lock import confirm_lock
from dreamgym_kit.settings.load import load_settings, parse_settings

HELLO = {"messages": [{"role": "user", "content": "hi"}]}
BASE = """
    import logging, re, sys
    from typing import Annotated
    from langchain_core.callbacks import BaseCallbackHandler
    from langchain_core.messages import HumanMessage
    from langchain_core.tools import StructuredTool
    from langgraph.func import entrypoint, task
    from langgraph.graph import START, END, MessagesState, StateGraph
    from langgraph.prebuilt import ToolNode
    from pydantic import AfterValidator, BaseModel, field_validator

    RAN = []

    def acts(order):
        RAN.append(order)
        return "refunded"

    def only_computes(order):
        logging.getLogger(__name__).info("looked at %s", order)
        print(order)
        return re.sub("x", "y", order.strip())

    class Told(ScriptedModelDouble):
        def bind_tools(self, tools, **kwargs): return self.bind(tools=tools, **kwargs)

    def one_node(node):
        return StateGraph(MessagesState).add_node("node", node).add_edge(START, "node").compile()
"""
TABLE = """
    TOOLS = {"refund": BODY}
    model = Told(turns=["Action: refund[o1]", "done"])
    def node(state):
        said = model.invoke(state["messages"]).content
        found = re.search(r"Action: (\\w+)\\[(.*)\\]", said)
        return {"messages": [HumanMessage(str(TOOLS[found[1]](found[2])))]}
    graph = one_node(node)
"""
CODE = """
    def refund(order): return BODY(order)
    model = Told(turns=["refund('o1')"])
    def node(state):
        exec(model.invoke(state["messages"]).content, {"refund": refund})
        return {"messages": []}
    graph = one_node(node)
"""
FORM = """
    class Action(BaseModel):
        action: str
        order: str
    def refund(order): return BODY(order)
    model = Told(turns=[[("Action", {"action": "refund", "order": "o1"})]]).with_structured_output(Action)
    def node(state):
        said = model.invoke(state["messages"])
        return {"messages": [HumanMessage(refund(said.order) if said.action == "refund" else "no")]}
    graph = one_node(node)
"""
TASKS = """
    @task
    def refund(order): return BODY(order)
    model = Told(turns=["yes"])
    @entrypoint()
    def graph(given):
        model.invoke("should I refund?")
        return {"messages": [HumanMessage(refund("o1").result())]}
"""
BY_NAME = """
    class Desk:
        def refund(self, order): return BODY(order)
    desk = Desk()
    model = Told(turns=["refund"])
    def node(state):
        return {"messages": [HumanMessage(getattr(desk, model.invoke(state["messages"]).content)("o1"))]}
    graph = one_node(node)
"""
MIDDLEWARE = """
    from langchain.agents.middleware import wrap_tool_call
    def refund(order): return BODY(order)
    @wrap_tool_call
    def first(request, handler):
        refund("o1")
        return handler(request)
    graph = create_agent(ScriptedModelDouble(turns=[TURNS[0], "done"]), [get_order], middleware=[first])
"""
VALIDATOR = """
    def refund(order): return BODY(order)
    class Asked(BaseModel):
        order: str
        @field_validator("order")
        @classmethod
        def check(cls, value):
            refund(value)
            return value
    held = StructuredTool.from_function(lambda order: "x", name="reserve", description="d", args_schema=Asked)
    asks = ScriptedModelDouble(turns=[[("reserve", {"order": "o1"})], "done"])
    graph = create_agent(asks, [held])
"""
CALLBACK = """
    def refund(order): return BODY(order)
    class Hears(BaseCallbackHandler):
        raise_error = True
        def on_tool_start(self, serialized, given, **kwargs): refund("o1")
    heard = {"name": "reserve", "description": "d", "callbacks": [Hears()]}
    held = StructuredTool.from_function(lambda order: "x", **heard)
    asks = ScriptedModelDouble(turns=[[("reserve", {"order": "o1"})], "done"])
    graph = create_agent(asks, [held])
"""
CLIENT = """
    import subprocess
    class Bank:
        def refund(self, order):
            RAN.append(order)
            return subprocess.run(["true"])
    class Calm:
        def refund(self, order): return only_computes(order)
    bank = Bank() if BODY is acts else Calm()
    def node(state): return {"messages": [HumanMessage(str(bank.refund("o1")))]}
    graph = one_node(node)
"""
SHAPES = {
    "a table": TABLE,
    "code of the model's": CODE,
    "a structured answer": FORM,
    "a task": TASKS,
    "a method by name": BY_NAME,
    "middleware": MIDDLEWARE,
    "a validator": VALIDATOR,
    "a callback": CALLBACK,
    "a client": CLIENT,
}
FAST = ("a table", "a structured answer", "a client")  # the other harmless ones run in the slow suite
HARMLESS = [
    pytest.param(source, id=name, marks=() if name in FAST else pytest.mark.slow)
    for name, source in SHAPES.items()
]


def written(project: Any, source: str, body: str) -> str:
    return str(project.write(dedent(BASE) + f"BODY = {body}\n" + dedent(source)))


def simulated(graph: str, settings: str = "") -> Episode:
    result = dreamgym_kit.simulate(
        graph, [Task("t", HELLO)], experience=ScriptedExperienceDouble(), settings=parse_settings(settings)
    )
    (episode,) = RunDirectory.open(result.directory).episodes()
    return episode


@each_row("source", SHAPES.values(), ids=SHAPES)
def test_what_acts_is_intercepted(project: Any, source: str) -> None:
    episode = simulated(written(project, source, "acts"))
    assert sys.modules[project.module].RAN == []
    assert {"refund", "acts"} & {entry.call.tool for entry in episode.transitions}
    assert (episode.stop, episode.violations) == ("finished", ())


@pytest.mark.parametrize("source", HARMLESS)
def test_its_harmless_twin_runs_to_its_end(project: Any, source: str) -> None:
    episode = simulated(written(project, source, "only_computes"))
    assert (episode.stop, episode.violations) == ("finished", ())
    assert not {"refund", "only_computes"} & {entry.call.tool for entry in episode.transitions}


def test_real_calls_want_each_effect_confirmed_before_the_first(project: Any) -> None:
    graph = written(project, TABLE, "acts")
    with pytest.raises(UserError, match=rf'\[functions."{project.module}:acts"\] effect = "destructive"'):
        dreamgym_kit.record(graph, [Task("t", HELLO)], buffer=MemoryStore())
    assert sys.modules[project.module].RAN == []
    settings = parse_settings(f'[functions."{project.module}:acts"]\neffect = "write"\nname = "refund"\n')
    store = MemoryStore()
    dreamgym_kit.record(graph, [Task("t", HELLO)], buffer=store, settings=settings)
    assert sys.modules[project.module].RAN == ["o1"]
    assert [entry.call.tool for entry in store.scan()] == ["refund"]


def test_a_guess_that_a_person_confirmed_in_the_lock_is_enough_for_real_calls(
    project: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI", raising=False)  # there nothing is written
    graph = written(project, TABLE, "acts")
    (file := project.folder / "dreamgym.toml").write_text("")
    settings, lock = load_settings(file=file, environ={}), project.folder / "dreamgym.lock"
    task = Task("t", HELLO)
    dreamgym_kit.simulate(graph, [task], experience=ScriptedExperienceDouble(), settings=settings)
    with pytest.raises(UserError, match="dreamgym-kit init --confirm"):
        dreamgym_kit.record(graph, [task], buffer=MemoryStore(), settings=settings)
    assert sys.modules[project.module].RAN == []
    confirm_lock(lock, {})
    lock.write_text((confirmed := lock.read_text()).replace('digest = "', 'digest = "0'))
    with pytest.raises(UserError, match="would run for real"):  # it was another function then
        dreamgym_kit.record(graph, [task], buffer=MemoryStore(), settings=settings)
    lock.write_text(confirmed)
    dreamgym_kit.record(graph, [task], buffer=(store := MemoryStore()), settings=settings)
    assert (sys.modules[project.module].RAN, len(list(store.scan()))) == (["o1"], 1)


def test_the_inventory_is_the_same_each_time_and_says_who_decided(project: Any) -> None:
    project.write(
        dedent(BASE) + "BODY = acts\n" + dedent(TABLE) + "TOOLS['pay'] = lambda order: acts(order)\n"
    )
    module = __import__(project.module)
    settings = parse_settings(f'[functions."{project.module}:acts"]\neffect = "write"\n')
    first = taken(module.graph, settings).entries
    inspect_compiled(module.graph, settings)  # hooks them
    assert taken(module.graph, settings).entries == first
    assert [(one.reference, one.confirmed, one.effect.value) for one in first] == [
        (f"{project.module}:<lambda>", False, "destructive"),
        (f"{project.module}:acts", True, "write"),
    ]


CLIENT = """
    def node(state, config):
        config["configurable"]["client"].post(model.invoke(state["messages"]).content)
        return {}
"""
ACTING = """
from functools import partial
from langchain_core.runnables import RunnableLambda
class Client:
    def get(self, address): acts(address)
    def __or__(self, address): acts(address)
class Own(Told):
    def refund(self, order): acts(order)
def node(state, client=None):
    model.invoke(state['messages'])
    """
NOTHING_TO_INTERCEPT = [
    ("def node(state): return {'messages': [model.invoke(state['messages'])]}", "", True),
    (
        "from langchain_core.prompts import ChatPromptTemplate\nnode = ChatPromptTemplate([]) | model",
        "",
        True,
    ),
    ("def node(state): return {}", "", False),
    (CLIENT, "", False),
    (
        "from colorsys import rgb_to_hsv\nfrom functools import partial\nnode = partial(rgb_to_hsv, 1, 2)",
        "",
        False,
    ),
    (CLIENT, "[nodes.node]\neffect = 'pure'\n", True),
    (f"def made(): return Client()\n{ACTING}made().get('x')", "", False),
    (f"def made(): return Client()\n{ACTING}made() | 1", "", False),
    (f"{ACTING}exec(model.invoke(state['messages']).content)", "", False),
    (f"{ACTING}getattr(state['messages'][0], 'client').get('x')", "", False),
    (f"{ACTING}sender.invoke('x')\nsender = RunnableLambda(acts)", "", False),
    (f"{ACTING}client.get('x')\nnode = partial(node, client=Client())", "", False),
    (f"{ACTING}model.refund('o1')\nmodel = Own(turns=[])", "", False),
    (f"{ACTING}getattr(state['messages'][0], 'content')", "", True),
]


@each_row(
    ("nodes", "settings", "runs"),
    NOTHING_TO_INTERCEPT,
    ids=[
        *("a model", "a prompt and a model", "no model", "a client", "a library's function", "named"),
        *("an object made elsewhere", "an operator", "a model's program", "by name", "a runnable"),
        *("a partial's object", "a model's own method", "a field by name"),
    ],
)
def test_a_graph_with_nothing_to_intercept_is_refused_unless_it_only_asks_a_model(
    project: Any, monkeypatch: pytest.MonkeyPatch, nodes: str, settings: str, runs: bool
) -> None:
    source = f"model = Told(turns=['done'])\n{dedent(nodes)}\ngraph = one_node(node)\n"
    spec = written(project, source, "acts")
    graph = __import__(project.module).graph
    with monkeypatch.context() as alone:
        alone.setattr("dreamgym_kit.adapters.langgraph.analysis.inspection.HOLDINGS", _Empty())
        alone.setattr("dreamgym_kit.adapters.langgraph.analysis.inspection.hooked_names", set)
        facts = inspect_compiled(graph, parse_settings(settings))
        assert bool(facts.problems) is not runs, facts.problems
        if runs:
            assert any("nothing in this graph can be intercepted" in text for text in facts.warnings)
            return
        with pytest.raises(UnsupportedGraph, match="nothing in this graph can be intercepted"):
            dreamgym_kit.simulate(spec, [Task("t", HELLO)], buffer=MemoryStore())
        assert '[nodes.node] effect = "pure"' in facts.problems[0]
        assert not inspect_compiled(graph, parse_settings("[nodes.node]\neffect = 'pure'\n")).problems


ASKS = """
    import dataclasses, functools, operator, subprocess
    from pydantic import Field, computed_field
    from typing import TypedDict
    from langchain_core.runnables import RunnableBranch, RunnableGenerator, RunnableLambda
    from langchain_core.runnables import RunnablePassthrough
    from langgraph.channels import BinaryOperatorAggregate
    from langgraph.types import CachePolicy, RetryPolicy
    def harmless(*given): return str(given)
    model = Told(turns=["done"])
    def node(state): return {"messages": [model.invoke("hi")]}
    def kept(old, new):
        BODY("o1")
        return new
    def built(state=MessagesState, context=None, router=None, run=node, **policies):
        made = StateGraph(state, context_schema=context)
        made.add_node("node", run, **policies)
        made.add_edge(START, "node")
        if router: made.add_conditional_edges("node", router)
        return made.compile()
"""
CALLED_BY_LANGGRAPH = {
    "a reducer": """
class State(TypedDict):
    messages: Annotated[list, kept]
graph = built(State)""",
    "a channel": """
class Own(BinaryOperatorAggregate):
    def update(self, values):
        BODY("o1")
        return super().update(values)
class State(TypedDict):
    messages: Annotated[list, Own(list, operator.add)]
graph = built(State)""",
    "a partial in a reducer": """
def three(order, old, new):
    BODY(order)
    return new
class State(TypedDict):
    messages: Annotated[list, functools.partial(three, "o1")]
graph = built(State)""",
    "retry_on": 'graph = built(retry_policy=RetryPolicy(retry_on=lambda error: bool(BODY("o1"))))',
    "key_func": 'graph = built(cache_policy=CachePolicy(key_func=lambda given: str(BODY("o1"))))',
    "a router": """
def chosen(state):
    BODY("o1")
    return END
graph = built(router=chosen)""",
    "a state's validator": """
class State(BaseModel):
    messages: list
    @field_validator("messages")
    @classmethod
    def seen(cls, value):
        BODY("o1")
        return value
graph = built(State)""",
    "a state's default": """
class State(BaseModel):
    messages: list
    order: str = Field(default_factory=lambda: str(BODY("o1")))
graph = built(State)""",
    "a state's post_init": """
@dataclasses.dataclass
class State:
    messages: list
    def __post_init__(self): BODY("o1")
graph = built(State)""",
    "a state's descriptor": """
class Watched:
    def __get__(self, owner, kind): return "o1"
    def __set__(self, owner, value): BODY("o1")
@dataclasses.dataclass
class State:
    messages: list
    order: str = Watched()
graph = built(State)""",
    "a context's default": """
@dataclasses.dataclass
class Context:
    order: str = dataclasses.field(default_factory=lambda: BODY("o1"))
graph = built(context=Context)""",
    "a callback": """
class Hears(BaseCallbackHandler):
    def on_chain_start(self, *given, **more): BODY("o1")
graph = built().with_config(callbacks=[Hears()])""",
    "a branch of a runnable": """
graph = built(run=RunnableBranch((lambda state: True, lambda state: BODY("o1") and {}), node))""",
    "a fallback": """
other = RunnableLambda(lambda state: BODY("o1"))
graph = built(run=RunnableLambda(node).with_fallbacks([other]))""",
    "a generator": """
def said(states):
    for state in states:
        BODY("o1")
        yield node(state)
graph = built(run=RunnableGenerator(said))""",
    "an assigned value": """
graph = built(run=RunnablePassthrough.assign(order=lambda state: BODY("o1")) | node)""",
    "a listener": """
graph = built(run=RunnableLambda(node).with_listeners(on_start=lambda run: BODY("o1")))""",
    "in a graph in it": """
class State(TypedDict):
    messages: Annotated[list, kept]
graph = built(run=built(State))""",
}


@each_row("source", CALLED_BY_LANGGRAPH.values(), ids=CALLED_BY_LANGGRAPH)
def test_whatever_langgraph_itself_calls_is_read_before_a_graph_is_said_to_ask_a_model_only(
    project: Any, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    monkeypatch.setattr("dreamgym_kit.adapters.langgraph.analysis.inspection.HOLDINGS", _Empty())
    monkeypatch.setattr("dreamgym_kit.adapters.langgraph.analysis.inspection.hooked_names", set)
    found = {}
    for body in ("harmless", "subprocess.run"):
        project.new_row()
        project.write(dedent(BASE) + dedent(ASKS) + f"def BODY(order): return {body}(order)\n" + source)
        found[body] = inspect_compiled(__import__(project.module).graph, parse_settings(""))
    assert not found["harmless"].problems, found["harmless"].problems
    acting = found["subprocess.run"]
    assert acting.problems or [entry.name for entry in acting.inventory] == ["BODY"], acting


USUAL = """
    import datetime, json, os, pathlib, uuid
    from langchain_core.prompts import ChatPromptTemplate
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.store.memory import InMemoryStore

    class Route(BaseModel):
        next: str
    TOOLS = {"get_order": get_order}
    MODEL = Told(turns=["done"])
    router = MODEL.with_structured_output(Route)
    prompt = ChatPromptTemplate.from_messages([("system", "be kind")])
    store, saver = InMemoryStore(), InMemorySaver()
    CACHED = {}
    def trimmed(messages): return messages[-3:]
    def shown(messages): return json.dumps([one.content for one in messages])
    def loaded():
        CACHED["prompt"] = pathlib.Path("prompt.txt").read_text() + open("more.txt").read()
        return CACHED["prompt"]
    FORMS = {"json": shown, "short": trimmed}
    def route(state):
        said = router.invoke(trimmed(state["messages"]))
        logging.getLogger("x").warning(shown(state["messages"]))
        return {"messages": [("ai", f"{said} {datetime.datetime.now()} {uuid.uuid4()} {os.getenv('HOME')}")]}
    async def agent(state):
        store.put(("notes",), "key", {"text": loaded()})
        chain = prompt | MODEL.bind_tools([get_order])
        return {"messages": [await chain.ainvoke({"form": FORMS["json"](state["messages"])})]}
    async def act(state):
        asked = state["messages"][-1].tool_calls
        return {"messages": [await TOOLS[call["name"]].ainvoke(call) for call in asked]}
    helper = create_agent(MODEL, [get_order, cancel_order])
    def asks_helper(state): return {"messages": helper.invoke(state)["messages"]}
    made = StateGraph(MessagesState)
    for name, node in {"route": route, "agent": agent, "act": act, "asks": asks_helper}.items():
        made.add_node(name, node)
    made.add_edge(START, "route")
    made.add_conditional_edges("agent", lambda state: "act" if state["messages"][-1].tool_calls else END)
    graph = made.compile(checkpointer=saver, store=store)
"""


def test_what_agents_usually_have_beside_their_tools_is_not_listed(project: Any) -> None:
    written(project, USUAL, "acts")
    found = taken(__import__(project.module).graph, parse_settings(""))
    assert (found.entries, found.acting) == ([], [])


class _Empty:
    """What a fresh process holds: other tests' tools are alive in this one."""

    structured: frozenset[str] = frozenset()
    schemas: frozenset[str] = frozenset()
    unhookable: Mapping[str, str] = MappingProxyType({})

    def scan(self, living: Any) -> None: ...

    def tools(self) -> list[Any]:
        return []
