"""Agents as public examples build them come to a verdict: what passed the gate is no violation."""

from dataclasses import replace
from typing import Any

from each_row import each_row
from shapes.stage import ScriptedExperienceDouble

import dreamgym_kit
from dreamgym_kit import Episode, Task, Verdict
from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.rollout.rundir import RunDirectory
from dreamgym_kit.settings.load import parse_settings

HELLO = {"messages": [{"role": "user", "content": "hi"}]}
HAND_MADE = """
    from langchain_core.messages import ToolMessage
    from langgraph.graph import START, MessagesState, StateGraph
    from langgraph.prebuilt import ToolNode, tools_condition

    BY_NAME = {"get_order": get_order}

    def build(run_tools, turns, **changes):
        model = ScriptedModelDouble(turns=turns, **changes).bind_tools([get_order])
        made = StateGraph(MessagesState)
        made.add_node("agent", lambda state: {"messages": [model.invoke(state["messages"])]})
        made.add_node("tools", run_tools)
        made.add_edge(START, "agent")
        made.add_conditional_edges("agent", tools_condition)
        made.add_edge("tools", "agent")
        return made.compile()

    ONCE = [[("get_order", {"order_id": "o1"})], "done"]
"""
NODES = {
    "a node that passes on the arguments alone": """
    def run_tools(state):
        asked = state["messages"][-1].tool_calls
        return {"messages": [
            ToolMessage(str(BY_NAME[call["name"]].invoke(call["args"])), tool_call_id=call["id"])
            for call in asked
        ]}
    graph = build(run_tools, ONCE)
    """,
    "a node that says itself that arguments do not fit": """
    def run_tools(state):
        (call,) = state["messages"][-1].tool_calls
        try:
            said = str(BY_NAME[call["name"]].invoke(call["args"]))
        except ValueError as error:
            said = f"Error: {error}"
        return {"messages": [ToolMessage(said, tool_call_id=call["id"])]}
    graph = build(run_tools, [[("get_order", {"wrong": 1})], *ONCE])
    """,
    "a node that says itself that there is no such tool": """
    def run_tools(state):
        (call,) = state["messages"][-1].tool_calls
        known = BY_NAME.get(call["name"])
        said = str(known.invoke(call["args"])) if known else "no such tool"
        return {"messages": [ToolMessage(said, tool_call_id=call["id"])]}
    graph = build(run_tools, [[("get_ordr", {"order_id": "o1"})], *ONCE])
    """,
}
ANSWERED_BY_ITSELF = """
    def run_tools(state):
        asked = state["messages"][-1].tool_calls
        BY_NAME["get_order"].invoke(asked[0]["args"])
        return {"messages": [ToolMessage("mine", tool_call_id=call["id"]) for call in asked]}
    graph = build(run_tools, [[("get_order", {"order_id": "o1"}), ("get_order", {"order_id": "o2"})], "done"])
"""


def simulated(project: Any, more: str, **expect: Any) -> Episode:
    task = Task(
        "t", {"messages": [{"role": "user", "content": "hi"}]}, expect=expect or {"calls": ["get_order"]}
    )
    result = dreamgym_kit.simulate(
        project.write(HAND_MADE + more), [task], experience=ScriptedExperienceDouble()
    )
    (episode,) = RunDirectory.open(result.directory).episodes()
    assert project.touched() == []
    return episode


@each_row("node", NODES.values(), ids=NODES)
def test_a_tool_node_made_by_hand_is_no_violation(project: Any, node: str) -> None:
    episode = simulated(project, node)
    assert (episode.verdict, episode.violations) == (Verdict.PASSED, ())


def test_more_answers_than_calls_that_passed_the_gate_are_executed_calls(project: Any) -> None:
    episode = simulated(project, ANSWERED_BY_ITSELF)
    assert episode.stop == "executed"
    assert episode.reason == "1 real call executed: get_order(order_id='o2')"


@each_row("how", ["twice at once", "twice in a loop"])
def test_a_model_that_gives_an_id_twice_does_not_hide_a_call(project: Any, how: str) -> None:
    calls = {
        "twice at once": "graph = build(ToolNode([get_order]), [ONCE[0] * 2, 'done'], call_id='x')",
        "twice in a loop": """
    def loop(state):
        for _ in range(2):
            asked = {"type": "tool_call", "id": "x", "name": "get_order"}
            get_order.invoke({**asked, "args": {"order_id": "o1"}})
    graph = StateGraph(MessagesState).add_node("loop", loop).add_edge(START, "loop").compile()
    """,
    }
    episode = simulated(project, "\n    " + calls[how], max={"get_order": 1})
    assert episode.reason == "get_order was called 2 times; the task allows 1"


def test_an_llm_cache_does_not_hide_what_a_model_was_told_of(project: Any) -> None:
    cached = """
    from langchain_core.caches import InMemoryCache
    from pydantic import BaseModel

    class Answer(BaseModel):
        text: str

    class Telling(ScriptedModelDouble):
        def bind_tools(self, tools, **kwargs): return self.bind(tools=tools)

    model = Telling(turns=[[("Answer", {"text": "o1"})]], cache=InMemoryCache())
    model = model.with_structured_output(Answer)
    made = StateGraph(MessagesState)
    made.add_node("agent", lambda state: {"messages": [("ai", model.invoke(state["messages"]).text)]})
    made.add_edge(START, "agent")
    graph = made.compile()
    """
    episode = simulated(project, cached, forbid=["get_order"])
    assert (episode.verdict, episode.violations) == (Verdict.PASSED, ())


POOLED = """
    from concurrent.futures import ThreadPoolExecutor

    def run_tools(state):
        asked = state["messages"][-1].tool_calls
        with ThreadPoolExecutor() as pool:
            said = list(pool.map(lambda call: get_order.invoke(call["args"]), asked))
        return {"messages": [
            ToolMessage(str(one), tool_call_id=call["id"]) for one, call in zip(said, asked)
        ]}
    graph = build(run_tools, ONCE)
"""


def test_a_recording_keeps_calls_that_a_node_hands_to_a_pool(project: Any) -> None:
    store = MemoryStore()
    dreamgym_kit.record(project.write(HAND_MADE + POOLED), [Task("t", HELLO)], buffer=store)
    assert project.touched() == ["get_order"]
    assert [entry.call.tool for entry in store.scan()] == ["get_order"]


PROVIDERS = """
    class Shop:
        def configurable(self, world, episode):
            TRY
            return {}
        async def reset(self, world, episode): ...
        async def close(self, episode): ...

    graph = build(ToolNode([get_order]), ONCE)
"""


@each_row(
    "tries",
    [
        'touch("the shop")',
        'try: touch("the shop")\n            except BaseException: pass',
        'get_order.invoke({"order_id": "o1"})',
    ],
)
def test_a_provider_that_is_refused_makes_its_episodes_errors(project: Any, tries: str) -> None:
    graph = project.write(HAND_MADE + PROVIDERS.replace("TRY", tries))
    settings = parse_settings(f'[environments.default]\nref = "{project.module}:Shop"\n')
    result = dreamgym_kit.simulate(
        graph, [Task("t", HELLO)], experience=ScriptedExperienceDouble(), settings=settings
    )
    (one,) = RunDirectory.open(result.directory).episodes()
    assert (one.verdict, one.violations, result.strays) == (Verdict.ERROR, (), ())
    assert one.reason.startswith('the environment "default" was refused: ')
    assert "[functions." not in one.reason
    assert (result.exit_code, project.touched()) == (4, [])


CHECKERS = """
    def checks_with_a_tool(outcome):
        return bool(get_order.invoke({"order_id": "o1"}))

    def checks_at_the_database(outcome):
        touch("the database")

    graph = build(ToolNode([get_order]), ONCE)
"""


@each_row("checker", ["checks_with_a_tool", "checks_at_the_database"])
def test_a_refused_checker_costs_its_own_episode_only_its_verdict(project: Any, checker: str) -> None:
    graph = project.write(HAND_MADE + CHECKERS)
    checked = Task("checked", HELLO, checker=f"{project.module}:{checker}")
    other = Task("other", HELLO, expect={"calls": ["get_order"]})
    result = dreamgym_kit.simulate(graph, [checked, other], experience=ScriptedExperienceDouble())
    found = {one.task: one for one in RunDirectory.open(result.directory).episodes()}
    assert (found["checked"].stop, found["checked"].verdict) == ("error", Verdict.ERROR)
    assert found["checked"].reason.startswith("the checker was refused: ")
    assert "[functions." not in found["checked"].reason  # nothing would answer it there
    assert (found["checked"].violations, result.strays, result.exit_code) == ((), (), 4)
    assert len(found["checked"].transitions) == 1
    assert (found["other"].verdict, found["other"].violations) == (Verdict.PASSED, ())
    assert project.touched() == []


LEFT = """
    import threading, time
    STARTED = threading.Event()

    def later():
        STARTED.wait()
        touch("later")

    def run_tools(state):
        from concurrent.futures import ThreadPoolExecutor
        ThreadPoolExecutor(1).submit(later)
        call = state["messages"][-1].tool_calls[0]
        return {"messages": [ToolMessage(get_order.invoke(call["args"]), tool_call_id=call["id"])]}

    def waits(outcome):
        STARTED.set()
        time.sleep(0.3)
        return True

    graph = build(run_tools, ONCE)
"""


def test_what_the_agent_left_running_is_no_fault_of_the_checker(project: Any) -> None:
    graph = project.write(HAND_MADE + LEFT)
    task = Task("t", HELLO, checker=f"{project.module}:waits")
    result = dreamgym_kit.simulate(graph, [task], experience=ScriptedExperienceDouble())
    (one,) = RunDirectory.open(result.directory).episodes()
    assert one.verdict is not Verdict.ERROR
    assert (result.exit_code, project.touched()) == (1, [])


STATES = """
    from langchain_core.messages import AIMessage
    from langgraph.graph import MessagesState, StateGraph, START

    def asks_the_shop(state: MessagesState):
        touch("shop")
        return {"messages": [AIMessage(f"told of {state['messages'][-1].content}")]}

    graph = StateGraph(MessagesState).add_node("asks", asks_the_shop).add_edge(START, "asks").compile()

    def told(outcome):
        return outcome.messages[-1]["content"] == "told of hi"
"""


def test_a_node_that_settings_name_is_answered_with_its_messages(project: Any) -> None:
    graph = project.write(HAND_MADE + STATES)
    settings = parse_settings(f'[functions."{project.module}:asks_the_shop"]\neffect = "write"\n')
    task = Task("t", {"messages": [{"role": "user", "content": "hi"}]}, checker=f"{project.module}:told")
    store = MemoryStore()
    real = dreamgym_kit.record(graph, [task], buffer=store, settings=settings)
    done = dreamgym_kit.simulate(graph, [task], buffer=store, settings=settings)
    assert (real.verdict, done.verdict) == (Verdict.PASSED, Verdict.PASSED)
    assert project.touched() == ["shop"]


def test_what_follows_an_unanswered_call_is_judged_by_nobody(project: Any) -> None:
    turns = '[[("get_order", {"order_id": "o1"})], [("cancel_order", {"order_id": "o1"})], "Done."]'
    tools = "ToolNode([get_order, cancel_order], handle_tool_errors=True)"
    graph = project.write(f"{HAND_MADE}\n    graph = build({tools}, {turns})\n")
    settings = parse_settings('[simulate]\non_unanswered = "error"\n')
    task = Task("t", HELLO, expect={"forbid": ["cancel_order"]})
    result = dreamgym_kit.simulate(graph, [task], buffer=MemoryStore(), settings=settings)
    (one,) = RunDirectory.open(result.directory).episodes()
    assert [step.call.tool for step in one.transitions] == ["get_order", "cancel_order"]
    assert one.verdict is Verdict.INCONCLUSIVE
    assert one.reason.startswith("unanswered call 1 (and 1 more call): get_order ")
    early = replace(task, expect={"forbid": ["get_order"]})
    result = dreamgym_kit.simulate(graph, [early], buffer=MemoryStore(), settings=settings)
    assert result.verdict is Verdict.FAILED  # what it did before stays done
