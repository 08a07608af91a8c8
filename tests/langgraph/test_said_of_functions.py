"""What a person said of a function holds for it however it is met, and for no other function."""

import sys
from typing import Any

from each_row import each_row
from shapes.stage import ScriptedExperienceDouble

import dreamgym_kit
from dreamgym_kit import Episode, Task
from dreamgym_kit.rollout.rundir import RunDirectory
from dreamgym_kit.settings.load import parse_settings

HELLO = {"messages": [{"role": "user", "content": "hi"}]}
BASE = """
import functools, importlib
from dreamgym_kit import effect
from langchain_core.messages import HumanMessage
from langchain_core.tools import StructuredTool
from langgraph.graph import START, END, MessagesState, StateGraph

RAN = []
SCHEMA = {"type": "function", "function": {"name": "spell_out", "parameters": {"type": "object"}}}
MODEL = ScriptedModelDouble(turns=[[("spell_out", {"order": "o1"})], "done"])

def looped(told, get):
    def work(state):
        messages = list(state["messages"])
        bound = told()
        while True:
            said = bound.invoke(messages)
            messages.append(said)
            if not said.tool_calls:
                return {"messages": [said]}
            for call in said.tool_calls:
                messages.append(HumanMessage(str({call["name"]: get()}[call["name"]](**call["args"]))))
    made = StateGraph(MessagesState)
    made.add_node("work", work)
    made.add_edge(START, "work")
    made.add_edge("work", END)
    return made.compile()

def told_by_schema(): return MODEL.bind(tools=[SCHEMA])
"""
MORE = """
RAN = []
sink = None
def passed_on(order):
    return sink(order) if sink else order.upper()
def spell_out(order):
    RAN.append(order)
    return order.upper()
"""
WRAPS = """
def tried(function):
    @functools.wraps(function)
    def again(*args, **kwargs):
        RAN.append("tried")
        return function(*args, **kwargs)
    return again

@tried
def spell_out(order):
    "Spell."
    RAN.append(order)
    return order.upper()
"""


def simulated(project: Any, source: str, settings: str = "") -> Episode:
    """One episode; OTHER stands for the name of the agent's module, which has a second one beside it."""
    name = project.module
    for folder in (project.folder / f"pkg_{name}", project.folder):
        folder.mkdir(exist_ok=True)
        (folder / f"{name}_more.py").write_text(MORE)
    (project.folder / f"pkg_{name}" / "__init__.py").write_text("")
    graph = project.write(BASE + source.replace("OTHER", name))
    result = dreamgym_kit.simulate(
        graph,
        [Task("t", HELLO)],
        experience=ScriptedExperienceDouble(),
        settings=parse_settings(settings.replace("OTHER", name)),
    )
    (episode,) = RunDirectory.open(result.directory).episodes()
    return episode


def ran(project: Any) -> list[str]:
    """What real bodies left in the memory of the project's modules."""
    modules = [module for name, module in list(sys.modules.items()) if project.module in name]
    return [one for module in modules for one in getattr(module, "RAN", ())]


PURE = 'effect = "pure"\nname = "spell_out"\n'
RELOADED = (
    "import OTHER_more\ngraph = looped(told_by_schema, lambda: importlib.reload(OTHER_more).spell_out)\n"
)
TWICE = """
import sys
sys.path.insert(0, str(Path(__file__).parent / "pkg_OTHER"))
import OTHER_more
sys.path.pop(0)
graph = looped(told_by_schema, lambda: OTHER_more.spell_out)
"""
CACHED = """
@functools.lru_cache
def spell_out(order: str) -> str:
    "Spell."
    RAN.append(order)
    return order.upper()
effect("pure")(spell_out)
graph = looped(lambda: MODEL.bind_tools([spell_out]), lambda: spell_out)
"""
IN_A_TABLE = """
TABLE = {}
def register(function):
    TABLE["spell_out"] = function
@register
@effect("pure")
def spell_out(order: str) -> str:
    "Spell."
    RAN.append(order)
    return order.upper()
graph = looped(lambda: MODEL.bind_tools([TABLE["spell_out"]]), lambda: TABLE["spell_out"])
"""
CLOSURE = """
def made_for(user):
    def spell_out(order: str) -> str:
        "Spell."
        RAN.append(order)
        return order.upper()
    return effect("pure")(spell_out)
graph = looped(lambda: MODEL.bind_tools([made_for("u1")]), lambda: made_for("u2"))
"""
SAME: dict[str, tuple[str, str, list[str]]] = {
    "loaded again": (RELOADED, f'[functions."OTHER_more:spell_out"]\n{PURE}', ["o1"]),
    "imported twice": (TWICE, f'[functions."pkg_OTHER.OTHER_more:spell_out"]\n{PURE}', ["o1"]),
    "behind a cache": (CACHED, "", ["o1"]),
    "bound while the graph runs": (IN_A_TABLE, "", ["o1"]),
    "a closure made anew": (CLOSURE, "", ["o1"]),
    "around another": (
        f"{WRAPS}graph = looped(told_by_schema, lambda: spell_out)\n",
        f'[functions."OTHER:spell_out"]\n{PURE}',
        ["tried", "o1"],
    ),
}


@each_row(("source", "settings", "bodies"), SAME.values(), ids=SAME)
def test_what_is_pure_runs_however_it_is_met(
    project: Any, source: str, settings: str, bodies: list[str]
) -> None:
    episode = simulated(project, source, settings)
    assert episode.violations == ()
    assert (ran(project), episode.stop) == (bodies, "finished")
    assert (episode.stop, episode.violations) == ("finished", ())
    assert [entry.call.tool for entry in episode.transitions] == ["spell_out"]


HOLDING = """
def pay(order):
    RAN.append("paid")
    return "paid"
def harmless(order):
    return "x"
def made(acts):
    def spell_out(order: str) -> str:
        "Spell."
        return acts(order)
    return spell_out
spell_out = made(harmless)
other = made(pay)
graph = looped(told_by_schema, lambda: other)
"""
HOLDING_A_NAME = """
ACCOUNTS = {"test": lambda order: "x", "live": lambda order: RAN.append("paid")}
def made(account):
    def spell_out(order: str) -> str:
        "Spell."
        return ACCOUNTS[account](order)
    return spell_out
spell_out = made("test")
other = made("live")
graph = looped(told_by_schema, lambda: other)
"""
OTHERS = {
    "what it wraps, run past it": f"{WRAPS.replace('order.upper()', 'RAN.append(1)')}"
    "inner = spell_out.__wrapped__\ngraph = looped(told_by_schema, lambda: inner)\n",
    "another of its factory": HOLDING,
    "another of its factory, of another account": HOLDING_A_NAME,
    "one that overrides it": """
class Desk:
    def spell_out(self, order): return order.upper()
class Paying(Desk):
    def spell_out(self, order): return RAN.append("paid")
spell_out = Desk.spell_out
desk = Paying()
graph = looped(told_by_schema, lambda: desk.spell_out)
""",
    "its lines loaded again, with another function under a name": """
import importlib.util, OTHER_more
spec = importlib.util.spec_from_file_location("OTHER_more_live", OTHER_more.__file__)
live = importlib.util.module_from_spec(spec)
spec.loader.exec_module(live)
spell_out, live.sink = OTHER_more.passed_on, RAN.append
graph = looped(told_by_schema, lambda: live.passed_on)
""",
    "its lines with other names": """
import types
CODE = "def spell_out(order): return act(order)"
spaces = [{"act": str.upper}, {"act": RAN.append}]
for space in spaces:
    exec(compile(CODE, __file__, "exec"), space)
spell_out, other = (space["spell_out"] for space in spaces)
graph = looped(told_by_schema, lambda: other)
""",
}


@each_row("source", OTHERS.values(), ids=OTHERS)
def test_another_function_is_not_pure_by_it(project: Any, source: str) -> None:
    episode = simulated(project, source, f'[functions."OTHER:spell_out"]\n{PURE}')
    assert ran(project) == []
    assert [entry.call.tool for entry in episode.transitions] in ([], ["spell_out"])


UNDECLARED = """
def get_away(order: str) -> str:
    "Get away with it."
    RAN.append("ran")
    return "x"
MODEL = ScriptedModelDouble(turns=[[("get_away", {"order": "o1"})], "done"])
graph = looped(lambda: MODEL.bind_tools([get_away]), lambda: get_away)
"""


def test_one_that_is_bound_while_the_graph_runs_is_dreamt_where_nobody_said_anything(project: Any) -> None:
    episode = simulated(project, UNDECLARED)
    assert ran(project) == []
    assert [entry.call.tool for entry in episode.transitions] == ["get_away"]
