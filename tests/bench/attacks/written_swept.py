"""More cases written by hand: a sweep over what LangGraph, LangChain and Python let an agent hand them.

The model names nothing here: what runs is the agent's own code, so a twin declares nothing.
"""

from collections.abc import Mapping

from attacks.project import HEAD, Case
from attacks.written_in_nodes import FUNCTION, _works

_SAYS = 'def work(state):\n    return {"messages": [AIMessage("done")]}\n'
_TOOL = '@effect("pure")\n@tool\ndef note(text: str) -> str:\n    "Take a note."\n    return text\n'
_AGENT = 'graph = create_agent(Scripted(script=[[asks("note", text="o1")]]), [note], {})\n'


def _class(methods: str, name: str = "Desk") -> str:
    lines = "".join(f"    {line}\n" for line in methods.splitlines())
    return f"\nclass {name}:\n{lines}"


def _agent(before: str, more: str) -> str:
    return FUNCTION + _TOOL + before + _AGENT.format(more)


def _graph(before: str, node: str = "work", *, state: str = "MessagesState", more: str = "") -> str:
    return (
        f"{FUNCTION}{before}\nbuild = StateGraph({state})\nbuild.add_node({node}{more})\n"
        'build.add_edge(START, "work")\nbuild.add_edge("work", END)\ngraph = build.compile()\n'
    )


_HOOKED = """
class Middle(AgentMiddleware):
    def {0}:
        $name("o1")
        return {1}
"""
_CUSTOM_STATE = """
class State(TypedDict):
    messages: Annotated[list, {0}]
"""
_FROM = "from typing import Annotated\nfrom langgraph.graph.message import add_messages\n"
_CHANNEL = """
from langgraph.channels import LastValue
class Own(LastValue):
    def update(self, values):
        if values:
            $name("o1")
        return super().update(values)
"""
_DATA_STATE = """
from dataclasses import field
@dataclass
class State:
    messages: list[Any]
    order: str = ""
    def __post_init__(self):
        $name("o1")
"""
_COMPUTED = """
from pydantic import computed_field
class Order(BaseModel):
    order: str
    @computed_field
    @property
    def {0}(self) -> str:
        order = self.order
        return $act
"""
_SERIAL = """
from pydantic import field_serializer
class Order(BaseModel):
    order: str
    @field_serializer("order")
    def told(self, order):
        return $act
"""
_META = """
class Meta(type):
    def __call__(cls, order):
        return $act
class Order(metaclass=Meta):
    pass
"""
_SUBCLASSED = """
class Base:
    def __init_subclass__(cls, order="o1", **more):
        cls.out = $act
"""
_DESCRIBED = """
class Line:
    def __get__(self, owner, kind):
        order = "o1"
        return $act
class Order:
    line = Line()
"""
_NAMED = """
class Line:
    def __set_name__(self, owner, name):
        order = "o1"
        self.out = $act
"""
_RUNNABLE = """
from langchain_core.runnables import Runnable
class Own(Runnable):
    def invoke(self, given, config=None, **more):
        order = "o1"
        return {"messages": [AIMessage($act)]}
"""
_PARSER = """
from langchain_core.output_parsers import BaseOutputParser
class Parser(BaseOutputParser):
    def parse(self, order):
        return $act
"""
_HOLDER = """
from langgraph.prebuilt import InjectedState
from typing import Annotated
class Holder:
    def $name(self, order):
        return $act
class State(MessagesState):
    desk: Any
@effect("pure")
@tool
def note(text: str, state: Annotated[dict, InjectedState]) -> str:
    "Take a note."
    return state["desk"].$name(text)
def began(state):
    return {"desk": Holder()}
build = StateGraph(State)
bound = Scripted(script=[[asks("note", text="o1")]]).bind_tools([note])
build.add_node("begin", began)
build.add_node("ask", lambda state: {"messages": [bound.invoke(state["messages"])]})
build.add_node("act", ToolNode([note]))
build.add_edge(START, "begin")
build.add_edge("begin", "ask")
build.add_conditional_edges("ask", lambda state: "act" if state["messages"][-1].tool_calls else END)
build.add_edge("act", "ask")
graph = build.compile()
"""
_WRITER = """
from langgraph.config import get_stream_writer
class Told:
    def __str__(self):
        order = "o1"
        return $act
def work(state):
    get_stream_writer()({"told": str(Told())})
    return {"messages": [AIMessage("done")]}
"""
_COMMAND = """
from langgraph.types import Command
def work(state) -> Command:
    return Command(update=lambda_update(), goto=END)
def lambda_update():
    return [("messages", AIMessage($name("o1")))]
build = StateGraph(MessagesState)
build.add_node("work", work)
build.add_edge(START, "work")
graph = build.compile()
"""
_DEFERRED = """
from langgraph.types import Send
class Lazy(dict):
    def __getitem__(self, key):
        order = "o1"
        return $act
def one(given):
    return {"messages": [AIMessage(given["order"])]}
build = StateGraph(MessagesState)
build.add_node("one", one)
build.add_conditional_edges(START, lambda state: [Send("one", Lazy())], ["one"])
graph = build.compile()
"""
_FUNCTIONAL = """
from langgraph.types import RetryPolicy
@task(retry_policy=RetryPolicy(initial_interval=0.01, jitter=False, retry_on=lambda error: bool($name("o1"))))
def once(order):
    if not tries:
        tries.append(1)
        raise ValueError("again")
    return order
tries = []
@entrypoint()
def graph(given):
    return {"messages": [HumanMessage("please"), AIMessage(once("done").result())]}
"""
_FINAL = """
def ended(order):
    return $act
@task
def last(order):
    return ended(order)
@entrypoint()
def graph(given):
    out = last("o1").result()
    return entrypoint.final(value={"messages": [HumanMessage("please"), AIMessage(out)]}, save=out)
"""
_KEYED = """
from langgraph.types import CachePolicy
from langgraph.cache.memory import InMemoryCache
def keyed(given):
    return $name("o1")
build = StateGraph(MessagesState)
build.add_node("work", work, cache_policy=CachePolicy(key_func=keyed))
build.add_edge(START, "work")
graph = build.compile(cache=InMemoryCache())
"""
_PICKLED = """
class Order:
    def __reduce__(self):
        return $name, ("o1",)
"""
_WAITS = """async def waits():
    loop = asyncio.get_running_loop()
    done = loop.create_future()
    def later():
        try:
            done.set_result($name('o1'))
        except BaseException as error:
            done.set_exception(RuntimeError(str(error)))
            raise
    loop.{0}
    return await done
out = asyncio.run(waits())"""
_FINDER = """
import importlib.abc, importlib.machinery
class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        return importlib.machinery.ModuleSpec(name, self) if name == "late_desk" else None
    def exec_module(self, module):
        order = "o1"
        module.out = $act
sys.meta_path.append(Finder())
"""
_HISTORY = """
from langchain_core.chat_history import InMemoryChatMessageHistory
from langchain_core.runnables.history import RunnableWithMessageHistory
def history(session_id):
    $name("o1")
    return InMemoryChatMessageHistory()
"""
_THROWS = """
class Failed(Exception):
    def __str__(self):
        order = "o1"
        return $act
"""

SWEPT: Mapping[str, tuple[str, str]] = {
    # what LangGraph calls
    "channel": (
        "a channel of one's own",
        _graph(
            f"{_FROM}{_CHANNEL}class State(TypedDict):\n    messages: Annotated[list, add_messages]\n"
            '    order: Annotated[str, Own]\ndef work(state):\n    return {"messages": [AIMessage("done")], '
            '"order": "o1"}\n',
            '"work", work',
            state="State",
        ),
    ),
    "reducer_object": (
        "an object as a reducer",
        _graph(
            f"{_FROM}class Joins:\n    def __call__(self, old, new):\n        $name('o1')\n"
            f"        return add_messages(old, new)\n{_CUSTOM_STATE.format('Joins()')}{_SAYS}",
            '"work", work',
            state="State",
        ),
    ),
    "reducer_partial": (
        "a partial as a reducer",
        _graph(
            f"{_FROM}def joins(order, old, new):\n    $name(order)\n    return add_messages(old, new)\n"
            f"{_CUSTOM_STATE.format('functools.partial(joins, chr(111))')}{_SAYS}",
            '"work", work',
            state="State",
        ),
    ),
    "data_state": ("__post_init__ of the state", _graph(_DATA_STATE + _SAYS, '"work", work', state="State")),
    "state_default": (
        "a default of the state",
        _graph(
            "from pydantic import Field\nclass State(BaseModel):\n    messages: list[Any]\n"
            f"    order: str = Field(default_factory=lambda: $name('o1'))\n{_SAYS}",
            '"work", work',
            state="State",
        ),
    ),
    "context_default": (
        "a default of the runtime context",
        _graph(
            "from dataclasses import field\n@dataclass\nclass Context:\n"
            "    order: str = field(default_factory="
            "lambda: $name('o1'))\n    messages: Any = None\n"
            "def work(state):\n    return {'messages': [AIMessage(Context().order)]}\n",
            '"work", work',
        ).replace("(MessagesState)", "(MessagesState, context_schema=Context)"),
    ),
    "cache_key": ("a cache policy's key_func", FUNCTION + _SAYS + _KEYED),
    "task_retry": ("a task's retry_on", FUNCTION + _FUNCTIONAL),
    "final_value": ("a task under entrypoint.final", _FINAL),
    "command_update": ("the update of a Command", FUNCTION + _COMMAND),
    "sent_object": ("an object that Send hands on", _DEFERRED),
    "stream_writer": ("what a stream writer is given", _graph(_WRITER, '"work", work')),
    "error_handler_node": (
        "a node's fallback",
        _graph(
            "def broken(state):\n    raise ValueError('o1')\ndef mended(state):\n    $name('o1')\n"
            "    return {'messages': [AIMessage('done')]}\n",
            '"work", RunnableLambda(broken).with_fallbacks([RunnableLambda(mended)])',
        ),
    ),
    "node_object": (
        "an object with __call__ as a node",
        _graph(
            "class Work:\n    def __call__(self, state):\n        order = 'o1'\n"
            "        return {'messages': [AIMessage($act)]}\n",
            '"work", Work()',
        ),
    ),
    "node_runnable": ("a Runnable class as a node", _graph(_RUNNABLE, '"work", Own()')),
    "node_branch": (
        "a RunnableBranch as a node",
        _graph(
            "from langchain_core.runnables import RunnableBranch\ndef acts(state):\n"
            "    return {'messages': [AIMessage($name('o1'))]}\n",
            '"work", RunnableBranch((lambda state: True, acts), lambda state: {})',
        ),
    ),
    "node_generator": (
        "a RunnableGenerator as a node",
        _graph(
            "from langchain_core.runnables import RunnableGenerator\nasync def acts(states):\n"
            "    async for state in states:\n        yield {'messages': [AIMessage($name('o1'))]}\n",
            '"work", RunnableGenerator(acts)',
        ),
    ),
    "node_assign": (
        "RunnablePassthrough.assign as a node",
        _graph(
            "from langchain_core.runnables import RunnablePassthrough\ndef acts(state):\n"
            "    return [AIMessage($name('o1'))]\n",
            '"work", RunnablePassthrough.assign(messages=acts)',
        ),
    ),
    "node_parallel": (
        "a RunnableParallel as a node",
        _graph(
            "from langchain_core.runnables import RunnableParallel\ndef acts(state):\n"
            "    return [AIMessage($name('o1'))]\n",
            '"work", RunnableParallel(messages=RunnableLambda(acts))',
        ),
    ),
    "node_retry": (
        "with_retry around a node",
        _graph(
            "def acts(state):\n    return {'messages': [AIMessage($name('o1'))]}\n",
            '"work", RunnableLambda(acts).with_retry(stop_after_attempt=2)',
        ),
    ),
    "node_listener": (
        "a listener of a node",
        _graph(_SAYS, '"work", RunnableLambda(work).with_listeners(on_end=lambda run: $name("o1"))'),
    ),
    "node_each": (
        "map over a runnable",
        _graph(
            "def acts(state):\n    return [AIMessage($name('o1'))]\n"
            "each = RunnableLambda(lambda state: [1]) | RunnableLambda(acts).map()\n"
            "def work(state):\n    return {'messages': each.invoke(state)[0]}\n",
            '"work", work',
        ),
    ),
    "parser": (
        "an output parser of one's own",
        _graph(
            _PARSER + 'chain = Scripted(script=["o1"]) | Parser()\n'
            "def work(state):\n    return {'messages': [AIMessage(chain.invoke(state['messages']))]}\n",
            '"work", work',
        ),
    ),
    "history": (
        "a factory of message histories",
        _graph(
            _HISTORY
            + 'chain = RunnableWithMessageHistory(Scripted(script=["done"]), history)\ndef work(state):\n'
            "    config = {'configurable': {'session_id': 's'}}\n"
            "    return {'messages': [chain.invoke(state['messages'], config)]}\n",
            '"work", work',
        ),
    ),
    "router_acts": (
        "a router that acts",
        FUNCTION
        + _SAYS
        + (
            "def chosen(state):\n    $name('o1')\n    return END\nbuild = StateGraph(MessagesState)\n"
            'build.add_node("work", work)\nbuild.add_edge(START, "work")\n'
            'build.add_conditional_edges("work", chosen)\ngraph = build.compile()\n'
        ),
    ),
    "entry_router": (
        "a router at the start",
        FUNCTION
        + _SAYS
        + (
            "def chosen(state):\n    $name('o1')\n    return 'work'\nbuild = StateGraph(MessagesState)\n"
            'build.add_node("work", work)\nbuild.add_conditional_edges(START, chosen)\n'
            "graph = build.compile()\n"
        ),
    ),
    # what an agent of LangChain calls
    "before_model": (
        "before_model",
        _agent(_HOOKED.format("before_model(self, state, runtime)", "None"), "middleware=[Middle()]"),
    ),
    "after_model": (
        "after_model",
        _agent(_HOOKED.format("after_model(self, state, runtime)", "None"), "middleware=[Middle()]"),
    ),
    "before_agent": (
        "before_agent",
        _agent(_HOOKED.format("before_agent(self, state, runtime)", "None"), "middleware=[Middle()]"),
    ),
    "wrap_model": (
        "wrap_model_call of a class",
        _agent(
            _HOOKED.format("wrap_model_call(self, request, handler)", "handler(request)"),
            "middleware=[Middle()]",
        ),
    ),
    "middleware_tools": (
        "a tool that middleware brings",
        _agent(
            '$pure\n@tool\ndef change(order: str) -> str:\n    "Change an order."\n    return $act\n'
            "class Middle(AgentMiddleware):\n    tools = [change]\n",
            "middleware=[Middle()]",
        ).replace('asks("note", text="o1")', 'asks("change", order="o1")'),
    ),
    "middleware_state": (
        "a state schema of middleware",
        _agent(
            f"{_FROM}from langchain.agents import AgentState\ndef joins(old, new):\n    $name('o1')\n"
            "    return new\nclass Own(AgentState):\n    seen: Annotated[str, joins]\n"
            "class Middle(AgentMiddleware):\n    state_schema = Own\n"
            "    def before_model(self, state, runtime):\n"
            "        return {'seen': 'o1'}\n",
            "middleware=[Middle()]",
        ),
    ),
    "injected_state": ("a client in the state of a tool that computes", _HOLDER),
    "argument_model": (
        "validators of an argument's own model",
        _agent(
            "class Inner(BaseModel):\n    order: str\n    def model_post_init(self, context):\n"
            "        $name(self.order)\n"
            '@effect("pure")\n@tool\ndef change(inner: Inner) -> str:\n    "Change."\n'
            "    return inner.order\n",
            "",
        )
        .replace("[note]", "[change]")
        .replace('asks("note", text="o1")', 'asks("change", inner={"order": "o1"})'),
    ),
    "tool_artifact": (
        "an object whose text a tool gives",
        _agent(
            _class("def __str__(self):\n    order = 'o1'\n    return $act")
            + '@effect("pure")\n@tool\ndef change(order: str) -> str:\n    "Change."\n'
            '    return f"{Desk()}"\n',
            "",
        )
        .replace("[note]", "[change]")
        .replace('asks("note", text="o1")', 'asks("change", order="o1")'),
    ),
    "pure_helper": (
        "a helper under a pure tool",
        _agent(
            'def helper(order):\n    return $act\n@effect("pure")\n@tool\ndef change(order: str) -> str:\n'
            '    "Change."\n    return helper(order)\n',
            "",
        )
        .replace("[note]", "[change]")
        .replace('asks("note", text="o1")', 'asks("change", order="o1")'),
    ),
    "callable_tool_error": (
        "a tool's handle_tool_error",
        _agent(
            "from langchain_core.tools import ToolException\ndef broken(text: str) -> str:\n"
            "    raise ToolException(text)\n"
            "def handled(error):\n    return $name('o1')\n"
            "noted = effect('pure')(StructuredTool.from_function(broken, "
            'name="note", description="Note.", handle_tool_error=handled))\n',
            "",
        ).replace("[note]", "[noted]"),
    ),
    "validation_handler": (
        "a tool's handle_validation_error",
        _agent(
            "def handled(error):\n    return $name('o1')\n"
            "class Note(BaseModel):\n    text: int\n"
            'noted = effect("pure")(StructuredTool.from_function(lambda text: str(text), name="note", '
            'description="Note.", args_schema=Note, handle_validation_error=handled))\n',
            "",
        ).replace("[note]", "[noted]"),
    ),
    # what Python calls
    "computed_field": (
        "a computed field",
        _works('out = Order(order="o1").model_dump()["$name"]', _COMPUTED.format("$name")),
    ),
    "serializer": ("a field's serializer", _works('out = Order(order="o1").model_dump()["order"]', _SERIAL)),
    "metaclass": ("a metaclass's __call__", _works('out = Order("o1")', _META)),
    "init_subclass": ("__init_subclass__", _works("class Sub(Base):\n    pass\nout = Sub.out", _SUBCLASSED)),
    "descriptor": ("a descriptor", _works("out = Order().line", _DESCRIBED)),
    "set_name": (
        "__set_name__",
        _works("class Order:\n    line = Line()\nout = vars(Order)['line'].out", _NAMED),
    ),
    "getattr_method": (
        "__getattr__",
        _works(
            "out = Desk().anything", _class("def __getattr__(self, name):\n    order = 'o1'\n    return $act")
        ),
    ),
    "getitem": (
        "__getitem__",
        _works('out = Desk()["o1"]', _class("def __getitem__(self, order):\n    return $act")),
    ),
    "operator": (
        "an operator",
        _works('out = Desk() >> "o1"', _class("def __rshift__(self, order):\n    return $act")),
    ),
    "formatted": (
        "__format__",
        _works('out = f"{Desk():o1}"', _class("def __format__(self, order):\n    return $act")),
    ),
    "compared": (
        "__eq__",
        _works(
            'Desk() == "o1"\nout = "well"',
            _class("__hash__ = None\ndef __eq__(self, order):\n    return bool($act)"),
        ),
    ),
    "iterated": (
        "__iter__",
        _works("out = [*Desk()][0]", _class("def __iter__(self):\n    order = 'o1'\n    yield $act")),
    ),
    "context": (
        "a context manager",
        _works(
            "with Desk() as out:\n    pass",
            _class(
                "def __enter__(self):\n    order = 'o1'\n    return $act\ndef __exit__(self, *error):\n"
                "    return None"
            ),
        ),
    ),
    "exit": (
        "the end of a context manager",
        _works(
            'with Desk():\n    out = "well"',
            _class(
                "def __enter__(self):\n    return self\ndef __exit__(self, *error):\n    order = 'o1'\n"
                "    $act"
            ),
        ),
    ),
    "contextmanager": (
        "@contextmanager",
        _works(
            'with desk("o1") as out:\n    pass',
            "\nimport contextlib\n@contextlib.contextmanager\ndef desk(order):\n    yield $act\n",
        ),
    ),
    "deleted": (
        "__del__",
        _works(
            'desk = Desk()\ndel desk\nout = "well"', _class("def __del__(self):\n    order = 'o1'\n    $act")
        ),
    ),
    "generator": ("a generator", _works('out = next(desk("o1"))', "\ndef desk(order):\n    yield $act\n")),
    "async_generator": (
        "an async generator",
        _works(
            'async def first():\n    async for one in desk("o1"):\n        return one\n'
            "out = asyncio.run(first())",
            "\nasync def desk(order):\n    yield $act\n",
        ),
    ),
    "decorated": (
        "a decorator that acts",
        _works(
            'out = plain("o1")',
            "\ndef acting(inner):\n    def outer(order):\n        return $act\n    return outer\n"
            "@acting\ndef plain(order):\n    return order\n",
        ),
    ),
    "pickled": (
        "pickle's __reduce__",
        _works("import pickle\nout = pickle.loads(pickle.dumps(Order()))", FUNCTION + _PICKLED),
    ),
    "copied_object": (
        "copy's __deepcopy__",
        _works(
            "import copy\nout = copy.deepcopy(Desk())",
            _class("def __deepcopy__(self, memo):\n    order = 'o1'\n    return $act"),
        ),
    ),
    "imported": ("an import hook", _works("import late_desk\nout = late_desk.out", _FINDER)),
    "traced": (
        "sys.settrace",
        _works(
            "def seen(frame, event, arg):\n    sys.settrace(None)\n    $name('o1')\nsys.settrace(seen)\n"
            "str(len([]))\n"
            "(lambda: 1)()\nsys.settrace(None)\nout = 'well'"
        ),
    ),
    "profiled": (
        "sys.setprofile",
        _works(
            "def seen(frame, event, arg):\n    sys.setprofile(None)\n    $name('o1')\n"
            "sys.setprofile(seen)\nlen([])\n"
            "sys.setprofile(None)\nout = 'well'"
        ),
    ),
    "signalled": (
        "a signal handler",
        _works(
            "import os, signal\ndef heard(number, frame):\n    $name('o1')\n"
            "signal.signal(signal.SIGUSR1, heard)\n"
            "os.kill(os.getpid(), signal.SIGUSR1)\nout = 'well'"
        ).replace("def work(", "async def work("),
    ),
    "excepthook": (
        "sys.excepthook",
        _works(
            "def hook(*error):\n    $name('o1')\nsys.excepthook = hook\n"
            "sys.excepthook(ValueError, ValueError(), None)\n"
            "out = 'well'"
        ),
    ),
    "unraisable": (
        "sys.unraisablehook",
        _works(
            "def hook(error):\n    $name('o1')\nclass Bad:\n    def __del__(self):\n"
            "        raise ValueError\n"
            "before, sys.unraisablehook = sys.unraisablehook, hook\nbad = Bad()\ndel bad\n"
            "sys.unraisablehook = before\nout = 'well'"
        ),
    ),
    "exception_text": (
        "the text of an exception",
        _works("try:\n    raise Failed\nexcept Failed as error:\n    out = str(error)", _THROWS),
    ),
    "call_later": ("asyncio's call_later", _works(_WAITS.format("call_later(0.01, later)"))),
    "call_soon": ("asyncio's call_soon_threadsafe", _works(_WAITS.format("call_soon_threadsafe(later)"))),
    "executor": (
        "run_in_executor",
        _works(
            "async def waits():\n"
            "    return await asyncio.get_running_loop().run_in_executor(None, $name, 'o1')\n"
            "out = asyncio.run(waits())"
        ),
    ),
    "garbage": (
        "gc.callbacks",
        _works(
            "import gc\ndef seen(phase, facts):\n    gc.callbacks.remove(seen)\n    $name('o1')\n"
            "gc.callbacks.append(seen)\ngc.collect()\nout = 'well'"
        ),
    ),
    "audit_hook": (
        "an audit hook of one's own",
        _works(
            "fired = []\ndef heard(event, args):\n    if event == 'mine' and not fired:\n"
            "        fired.append(1)\n"
            "        $name('o1')\nsys.addaudithook(heard)\nsys.audit('mine')\nout = 'well'"
        ),
    ),
    "sorted_key": ("the key of sorted", _works('out = sorted(["o1"], key=$name)[0]')),
    "default_dict": (
        "a defaultdict's factory",
        _works('from collections import defaultdict\nout = defaultdict(lambda: $name("o1"))["x"]'),
    ),
    "reduced": ("functools.reduce", _works('out = functools.reduce(lambda a, b: $name(b), ["o1"], "")')),
    "replaced": ("re.sub with a function", _works('out = re.sub("o1", lambda found: $name(found[0]), "o1")')),
    "cached": (
        "functools.cached_property",
        _works(
            "out = Desk().line",
            _class("@functools.cached_property\ndef line(self):\n    order = 'o1'\n    return $act"),
        ),
    ),
    "partial_method": (
        "functools.partialmethod",
        _works(
            "out = Desk().pay()",
            _class(
                "def carried(self, order):\n    return $act\npay = functools.partialmethod(carried, 'o1')"
            ),
        ),
    ),
    "logged": (
        "a handler of logging",
        _works(
            "import logging\nclass Sends(logging.Handler):\n    def emit(self, record):\n"
            "        $name('o1')\n"
            "log = logging.getLogger('own'); log.propagate = False; log.handlers = [Sends()]\n"
            "log.warning('x')\nout = 'well'"
        ),
    ),
    "encoder": (
        "a JSON encoder's default",
        _works("import json\nout = json.dumps(object(), default=lambda value: $name('o1'))"),
    ),
    "argument_type": (
        "argparse's type",
        _works(
            "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('order', type=$name)\n"
            "out = parser.parse_args(['o1']).order"
        ),
    ),
    "compiled": (
        "compiled code in types.FunctionType",
        _works(
            "import types\ncode = compile('out = $name(\"o1\")', 'made', 'exec')\nspace = {'$name': $name}\n"
            "types.FunctionType(code, space)()\nout = space['out']"
        ),
    ),
}


def swept() -> list[Case]:
    """All of them."""
    return [
        Case(
            f"swept_{name}",
            {"agent.py": HEAD + text},
            about=about,
            entry="cli",
            is_async=name in ("node_generator", "signalled"),
            twin_settings='[functions."agent:once"]\neffect = "pure"\n' if name == "task_retry" else "",
        )
        for name, (about, text) in SWEPT.items()
    ]
