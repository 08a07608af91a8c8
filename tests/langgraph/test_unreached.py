"""What acts in a graph's modules is met in a dream, however an episode comes to call it."""

import json
from pathlib import Path
from textwrap import dedent
from typing import Any

from each_row import each_row

import dreamgym_kit
from dreamgym_kit import Episode, Task, Verdict
from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.rollout.rundir import RunDirectory
from dreamgym_kit.settings.load import parse_settings

BASE = """
    import csv, functools, operator, types
    from langchain_core.callbacks import BaseCallbackHandler
    from langchain_core.messages import AIMessage
    from langchain_core.runnables import Runnable
    from langgraph.graph import START, MessagesState, StateGraph

    KEPT = open(LEDGER, "a", buffering=1)

    class Desk:
        def __init__(self, order): self.order = order
        def pay_back(self, order):
            print(order, file=KEPT)
            return order
        @property
        def paid_back(self):
            print(self.order, file=KEPT)
            return self.order
        def __class_getitem__(cls, order):
            print(order, file=KEPT)
            return order
        class Owed:
            def __get__(self, desk, kind=None):
                print(desk.order, file=KEPT)
                return desk.order
        owed = Owed()
        def spelled(self, order): return order.upper()

    LAZY = types.ModuleType("lazy")
    LAZY.__getattr__ = lambda name: Desk(name).pay_back("o1")
    def lent(): return LAZY.owed
    ROWS = csv.writer(KEPT)
    def row(order): ROWS.writerow([order])

    TRACED = open(TRACE, "a", buffering=1)

    @functools.singledispatch
    def handled(order): return "nothing"
    def registered():
        @handled.register
        def pay_back(order: str):
            print(order, file=KEPT)
    registered()

    class Ledger(Runnable):
        def invoke(self, order, config=None, **kwargs):
            print(order, file=KEPT)
            return order

    class Watching(BaseCallbackHandler):
        def pay_back(self, order):
            print(order, file=KEPT)
            return order

    def check(episode):
        return operator.methodcaller("pay_back", "o2")(Desk("o2")) == "o2"

    class Odd:
        @property
        def __class__(self): raise RuntimeError("a proxy of nothing")
    odd = Odd()

    class Model(ScriptedModelDouble):
        def pay_back(self, order):
            print(order, file=KEPT)
            return order
        def _generate(self, *args, **kwargs):
            keep_a_trace()
            if LATE:
                from late_transport import keep_a_trace as later
                later()
            return super()._generate(*args, **kwargs)

    def keep_a_trace():
        print("asked", file=TRACED)

    model = Model(turns=["fine"])
    def node(state):
        said = model.invoke(state["messages"])
        return {"messages": [said, AIMessage(str(WAY))]}
    graph = StateGraph(MessagesState).add_node("node", node).add_edge(START, "node").compile()
"""
WAYS = {
    "a method by its name": 'operator.methodcaller("pay_back", "o1")(Desk("o1"))',
    "a property": 'Desk("o1").paid_back',
    "code": """eval("Desk('o1').pay_back('o1')")""",
    "a runnable that the node makes": 'Ledger().invoke("o1")',
    "a method that a chat model has of its own": 'operator.methodcaller("pay_back", "o1")(model)',
    "a method of a handler that no event calls": 'operator.methodcaller("pay_back", "o1")(Watching())',
    "a function that no name leads to": 'handled("o1")',
    "a descriptor": 'Desk("o1").owed',
    "an attribute of a lazy module": "lent()",
    "a writer around an open file": """eval("row")("o1")""",
    "an item of a class": 'Desk["o1"]',
}


PAYING = """
KEPT = open({ledger!r}, "a", buffering=1)
class Desk:
    def pay_back(self, order):
        print(order, file=KEPT)
"""


def dreamt(
    project: Any, way: str, folder: Path, imports: str = "", checker: str | None = None, late: str = ""
) -> Episode:
    """One dreamt episode of a graph that comes to a function in this way; its files lie in `folder`."""
    words = (
        f"{imports}LATE = {late!r}\nLEDGER, TRACE = {str(folder / 'ledger')!r}, {str(folder / 'trace')!r}\n"
    )
    graph = str(project.write(words + dedent(BASE).replace("WAY", way)))
    result = dreamgym_kit.simulate(
        graph,
        [Task("t", {"messages": [("user", "hi")]}, checker=checker and f"{project.module}:{checker}")],
        buffer=MemoryStore(),
        settings=parse_settings(f"[guard]\nallow_paths = [{json.dumps(str(folder))}]\n"),
    )
    (episode,) = RunDirectory.open(result.directory).episodes()
    return episode


@each_row("way", WAYS)
def test_what_acts_is_met_and_does_not_run(way: str, project: Any, tmp_path: Path) -> None:
    episode = dreamt(project, WAYS[way], tmp_path)
    assert (tmp_path / "ledger").read_text("utf-8") == ""
    names = {"a property": "paid_back", "a runnable that the node makes": "invoke"}
    names |= {"an item of a class": "__class_getitem__", "a descriptor": "__get__"}
    called = {**names, "a writer around an open file": "row"}.get(way, "pay_back")
    assert [one.call.tool for one in episode.transitions] == [called]


def test_a_users_package_may_be_named_after_a_framework(project: Any, tmp_path: Path) -> None:
    for name in ("langgraph_shop", "langchain_shop", "logging_shop"):
        (tmp_path / f"{name}.py").write_text(PAYING.format(ledger=str(tmp_path / "ledger")), "utf-8")
        way = f"operator.methodcaller('pay_back', 'o1')(__import__({name!r}).Desk())"
        episode = dreamt(project, f"{way}", tmp_path, f"import {name}\n")
        assert (tmp_path / "ledger").read_text("utf-8") == ""
        assert [one.call.tool for one in episode.transitions] == ["pay_back"]


def test_so_is_what_an_episode_imports(project: Any, tmp_path: Path) -> None:
    (tmp_path / "late_shop.py").write_text(PAYING.format(ledger=str(tmp_path / "ledger")), "utf-8")
    way = "operator.methodcaller('pay_back', 'o1')(__import__('late_' + 'shop').Desk())"
    (call,) = dreamt(project, way, tmp_path).transitions
    assert (call.call.tool, (tmp_path / "ledger").read_text("utf-8")) == ("pay_back", "")


def test_a_checker_may_touch_what_the_agent_may_not(project: Any, tmp_path: Path) -> None:
    episode = dreamt(project, "1", tmp_path, checker="check")
    assert (tmp_path / "ledger").read_text("utf-8") == "o2\n"
    assert (episode.verdict, episode.transitions) == (Verdict.PASSED, ())


TRACING = """
TRACED = open({trace!r}, "a", buffering=1)
def keep_a_trace():
    print("asked late", file=TRACED)
"""


@each_row("late", ["", "late_transport"])
def test_what_a_chat_model_uses_is_its_own_affair(project: Any, tmp_path: Path, late: str) -> None:
    (tmp_path / "late_transport.py").write_text(TRACING.format(trace=str(tmp_path / "trace")), "utf-8")
    episode = dreamt(project, 'Desk("o1").spelled("o1")', tmp_path, late=late)
    assert (tmp_path / "trace").read_text("utf-8") == "asked\n" + "asked late\n" * bool(late)
    assert "O1" in str(episode.messages[-1])


STATED = """
    from langgraph.graph import START, MessagesState, StateGraph
    KEPT = open(LEDGER, "a", buffering=1)
    def first(state):
        import late_helper
        return {"messages": []}
    def stated(state):
        print("ran", file=KEPT)
        return {"messages": []}
    builder = StateGraph(MessagesState).add_node("first", first).add_node("stated", stated)
    graph = builder.add_edge(START, "first").add_edge("first", "stated").compile()
"""


def test_a_late_import_does_not_intercept_what_settings_decide(project: Any, tmp_path: Path) -> None:
    graph = project.write(f"LEDGER = {str(tmp_path / 'ledger')!r}\n" + dedent(STATED))
    (tmp_path / "late_helper.py").write_text(f"from {project.module} import stated\n", "utf-8")
    settings = f'[nodes.stated]\neffect = "pure"\n[guard]\nallow_paths = [{json.dumps(str(tmp_path))}]\n'
    task = Task("t", {"messages": [("user", "hi")]})
    dreamgym_kit.simulate(str(graph), [task], buffer=MemoryStore(), settings=parse_settings(settings))
    assert (tmp_path / "ledger").read_text("utf-8") == "ran\n"
