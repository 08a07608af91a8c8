"""Tools that ask a person: the question is recorded with the call, asked again, and the reply decides."""

from collections.abc import Sequence
from typing import Any

from each_row import each_row

import dreamgym_kit
from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.rollout.rundir import RunDirectory
from dreamgym_kit.settings.load import parse_settings
from dreamgym_kit.types import Episode, Reply, Source, Task, Verdict

HELLO = {"messages": [{"role": "user", "content": "refund o1"}]}

BASE = '''
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.types import interrupt as asks_a_person

    @tool
    def give_refund(order_id: str) -> str:
        """Refund an order."""
        reply = asks_a_person({"question": f"refund {order_id}?"})
        touch("give_refund")
        if reply == "no":
            return "declined"
        if reply == "less":
            return f"refunded {asks_a_person('how much?')}"
        return "refunded"

    TURNS = [[("give_refund", {"order_id": ORDER})], "Done."]
    graph = create_agent(ScriptedModelDouble(turns=TURNS), [give_refund], checkpointer=InMemorySaver())
'''


def agent(project: Any, more: str = "", *, order: str = "o1") -> str:
    """A project of its own module for each: tools of one name must not meet."""
    return str(project.write(f"    ORDER = {order!r}\n" + BASE + more))


def tasks(*replies: Sequence[Any], of: Any = HELLO) -> list[Task]:
    expect = {"max": {"give_refund": 9}}
    return [Task(f"t{number}", of, expect=expect, replies=tuple(each)) for number, each in enumerate(replies)]


def recorded(graph: str, buffer: Any, given: list[Task]) -> list[Episode]:
    result = dreamgym_kit.record(graph, given, buffer=buffer)
    return sorted(RunDirectory.open(result.directory).episodes(), key=lambda one: one.id)


def dreamt(graph: str, buffer: Any, given: list[Task]) -> list[Episode]:
    result = dreamgym_kit.simulate(graph, given, buffer=buffer)
    return sorted(RunDirectory.open(result.directory).episodes(), key=lambda one: one.id)


def told(episode: Episode) -> list[tuple[Any, ...]]:
    """What the agent was told, and what its tools had asked before."""
    return [(entry.answer.content, *entry.call.replies) for entry in episode.transitions]


ASKED = {"question": "refund o1?"}
YES, NO = ("refunded", Reply(ASKED, "yes")), ("declined", Reply(ASKED, "no"))
LESS = ("refunded 5", Reply(ASKED, "less"), Reply("how much?", 5))


def test_a_recorded_reply_gets_its_own_answer_and_the_question_is_asked_again(project: Any) -> None:
    graph, buffer, given = agent(project), MemoryStore(), tasks(["yes"], ["no"], ["less", 5])
    real = recorded(graph, buffer, given)
    assert [told(one) for one in real] == [[YES], [NO], [LESS]]
    ran = project.touched()
    again = dreamt(graph, buffer, given)
    assert [(one.verdict, told(one)) for one in again] == [
        (Verdict.PASSED, [YES]), (Verdict.PASSED, [NO]), (Verdict.PASSED, [LESS]),
    ]  # fmt: skip
    assert [[(turn.asked, turn.answer) for turn in one.user_turns] for one in again] == [
        [(reply.asked, reply.reply) for reply in each[1:]] for each in (YES, NO, LESS)
    ]
    assert {entry.answer.source for one in again for entry in one.transitions} == {Source.RECORDED}
    assert project.touched() == ran


@each_row("replies", [["no"], ["less", 6], [{"approve": True}], [None], [{}], [False], [0], [""]])
def test_a_reply_that_was_not_recorded_is_inconclusive(project: Any, replies: list[Any]) -> None:
    graph, buffer = agent(project), MemoryStore()
    recorded(graph, buffer, tasks(["yes"], ["less", 5]))
    (episode,) = dreamt(graph, buffer, tasks(replies))
    assert (episode.verdict, episode.stop) == (Verdict.INCONCLUSIVE, "abstained")
    assert f"never recorded with the reply {replies[-1]!r}" in episode.reason


def test_a_question_that_nobody_answers_stops_the_dream_as_it_stops_the_real_graph(project: Any) -> None:
    graph, buffer = agent(project), MemoryStore()
    recorded(graph, buffer, tasks(["yes"]))
    (episode,) = dreamt(graph, buffer, tasks([]))
    assert (episode.verdict, episode.stop) == (Verdict.INCONCLUSIVE, "interrupted")
    assert "refund o1?" in episode.reason


def test_no_rule_and_no_model_answers_past_a_question(project: Any) -> None:
    graph, buffer = agent(project), MemoryStore()
    for order in ("o1", "o2", "o3"):
        recorded(graph_of(project, order), buffer, tasks(["yes"]))
    (episode,) = dreamt(graph_of(project, "o9"), buffer, tasks(["yes"]))
    assert graph
    assert (episode.verdict, episode.stop) == (Verdict.INCONCLUSIVE, "abstained")


def test_a_question_without_a_reply_while_recording_is_asked_in_the_dream_and_no_rule_answers_past_it(
    project: Any,
) -> None:
    """Else rules mined from calls that needed no approval would approve this one."""
    buffer = MemoryStore()
    for order in ("o1", "o2", "o3", "big"):
        project.enter()
        (real,) = recorded(graph := agent(project, SOME_ASK, order=order), buffer, tasks([]))
    assert (real.verdict, real.stop, real.transitions) == (Verdict.INCONCLUSIVE, "interrupted", ())
    (again,) = dreamt(graph, buffer, tasks([]))
    assert (again.verdict, again.stop, again.reason) == (real.verdict, real.stop, real.reason)
    (replied,) = dreamt(graph, buffer, tasks(["yes"]))
    assert "never recorded with the reply 'yes'" in replied.reason
    project.enter()
    (other,) = dreamt(agent(project, SOME_ASK, order="bigger"), buffer, tasks(["yes"]))
    assert (other.verdict, other.stop) == (Verdict.INCONCLUSIVE, "abstained")


SOME_ASK = '''
    @tool
    def give_refund(order_id: str) -> str:
        """Refund an order."""
        return asks_a_person("approve?") if ORDER.startswith("big") else f"refunded {order_id}"

    graph = create_agent(ScriptedModelDouble(turns=TURNS), [give_refund], checkpointer=InMemorySaver())
'''


def graph_of(project: Any, order: str) -> str:
    """The same agent with another order, in a module of its own."""
    project.enter()
    return agent(project, order=order)


TWICE = '''
    @tool
    def send_note(text: str) -> str:
        """Send a note."""
        touch("send_note")
        return f"{asks_a_person('send ' + text + '?')}, {text}"

    from langgraph.graph import END, START, MessagesState, StateGraph

    bound = ScriptedModelDouble(
        turns=[[("give_refund", {"order_id": "o1"}), ("send_note", {"text": "hi"})], "Done."]
    ).bind_tools([give_refund, send_note])

    def act(state):
        by_name = {"give_refund": give_refund, "send_note": send_note}
        return {"messages": [by_name[call["name"]].invoke(call) for call in state["messages"][-1].tool_calls]}

    made = StateGraph(MessagesState)
    made.add_node("agent", lambda state: {"messages": [bound.invoke(state["messages"])]})
    made.add_node("act", act)
    made.add_edge(START, "agent")
    made.add_conditional_edges("agent", lambda s: "act" if s["messages"][-1].tool_calls else END)
    made.add_edge("act", "agent")
    graph = made.compile(checkpointer=InMemorySaver())
'''


def test_a_node_that_is_run_again_gives_each_question_its_own_reply(project: Any) -> None:
    graph, buffer, given = agent(project, TWICE), MemoryStore(), tasks(["yes", "sent"])
    (real,) = recorded(graph, buffer, given)
    note = ("sent, hi", Reply("send hi?", "sent"))
    assert told(real)[-1] == note
    (again,) = dreamt(graph, buffer, given)
    assert (again.verdict, told(again)) == (Verdict.PASSED, told(real)) == (Verdict.PASSED, [YES, YES, note])


PARALLEL = """
    TURNS = [[("give_refund", {"order_id": "o1"}), ("give_refund", {"order_id": "o2"})], "Done."]
    graph = create_agent(ScriptedModelDouble(turns=TURNS), [give_refund], checkpointer=InMemorySaver())
"""


def test_several_questions_at_once_are_answered_by_id(project: Any) -> None:
    graph, buffer, given = agent(project, PARALLEL), MemoryStore(), tasks(["yes", "no"])
    (real,) = recorded(graph, buffer, given)
    other = ("declined", Reply({"question": "refund o2?"}, "no"))
    assert (real.verdict, told(real)) == (Verdict.PASSED, [YES, other])
    (again,) = dreamt(graph, buffer, given)
    assert (again.verdict, told(again)) == (Verdict.PASSED, [YES, other])
    (crossed,) = dreamt(graph, buffer, tasks(["no", "yes"]))
    assert crossed.verdict is Verdict.INCONCLUSIVE


ONCE = """
    ALLOWED = set()

    @tool
    async def delete_file(name: str) -> str:
        "Delete a file."
        if name not in ALLOWED:
            reply = asks_a_person(f"delete {name} always?")
            ALLOWED.add(name)
            return f"deleted, {reply}"
        return "deleted again"

    TURNS = [[("delete_file", {"name": "a"})], [("delete_file", {"name": "a"})], "Done."]
    graph = create_agent(ScriptedModelDouble(turns=TURNS), [delete_file], checkpointer=InMemorySaver())
"""


def test_a_tool_that_asks_only_once_asks_only_once_in_the_dream(project: Any) -> None:
    graph, buffer, given = agent(project, ONCE), MemoryStore(), tasks(["always"])
    (real,) = recorded(graph, buffer, given)
    (again,) = dreamt(graph, buffer, given)
    assert (again.verdict, told(again)) == (Verdict.PASSED, told(real))
    assert told(real) == [("deleted, always", Reply("delete a always?", "always")), ("deleted again",)]


BELOW = """
    from langgraph.graph import END, START, MessagesState, StateGraph

    def inner(state):
        return {"messages": [AIMessage(f"told {asks_a_person('really?')}")]}

    below = StateGraph(MessagesState).add_node("inner", inner).add_edge(START, "inner").compile()

    @tool
    def send_by_agent(text: str) -> str:
        "Send a mail through another agent."
        return below.invoke({"messages": [("user", text)]})["messages"][-1].content

    TURNS = [[("send_by_agent", {"text": "hi"})], "Done."]
    graph = create_agent(ScriptedModelDouble(turns=TURNS), [send_by_agent], checkpointer=InMemorySaver())
"""


def test_a_question_asked_by_a_graph_below_a_tool_belongs_to_the_tool(project: Any) -> None:
    graph, buffer = agent(project, BELOW), MemoryStore()
    (real,) = recorded(graph, buffer, tasks(["yes"]))
    assert told(real) == [("told yes", Reply("really?", "yes"))]
    yes, no = dreamt(graph, buffer, tasks(["yes"], ["no"]))
    assert (yes.verdict, told(yes)) == (Verdict.PASSED, told(real))
    assert no.verdict is Verdict.INCONCLUSIVE


FUNCTION = """
    from langgraph.graph import END, START, MessagesState, StateGraph

    def send_mail(to):
        touch("send_mail")
        return f"{asks_a_person('mail ' + to + '?')} to {to}"

    def node(state):
        return {"messages": [AIMessage(send_mail("ann"))]}

    made = StateGraph(MessagesState)
    made.add_node("node", node)
    made.add_edge(START, "node")
    graph = made.compile(checkpointer=InMemorySaver())
"""


RACE = """
    import itertools
    import threading

    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.graph import START, MessagesState, StateGraph
    from langgraph.prebuilt import ToolNode
    from langgraph.types import interrupt

    ORDERS = itertools.cycle(["ab", "ba", "ab"])
    TURN, HERE = threading.Condition(), []
    BOTH = threading.Barrier(2, action=lambda: HERE.extend(next(ORDERS)), timeout=60)

    @tool
    def confirm(name: str) -> str:
        '''Ask a person.'''
        BOTH.wait()
        with TURN:  # which of the two asks first differs from run to run
            assert TURN.wait_for(lambda: HERE[:1] == [name], timeout=60)
            try:
                return f"{name}: {interrupt(f'confirm {name}?')}"
            finally:
                HERE.pop(0)
                TURN.notify_all()

    CALLS = [{"name": "confirm", "args": {"name": name}, "id": name, "type": "tool_call"} for name in "ab"]
    inner = StateGraph(MessagesState)
    inner.add_node("ask", lambda state: {"messages": [AIMessage("", tool_calls=CALLS)]})
    inner.add_node("tools", ToolNode([confirm]))
    inner.add_edge(START, "ask")
    inner.add_edge("ask", "tools")
    team = inner.compile()

    @tool
    def delegate() -> str:
        '''Have others do it.'''
        return " ".join(message.content for message in team.invoke({"messages": []})["messages"][1:])

    model = ScriptedModelDouble(turns=[[("delegate", {})], "Done."])
    graph = create_agent(model, [delegate], checkpointer=InMemorySaver())
"""


def test_parallel_questions_below_a_tool_keep_their_replies_whichever_is_asked_first(project: Any) -> None:
    graph, buffer = project.write(RACE), MemoryStore()
    given = [Task("both", HELLO, expect={"max": {"delegate": 1}}, replies=("yes", "no", "left over"))]
    (real,) = recorded(graph, buffer, given)
    (asked,) = (entry for entry in told(real) if len(entry) == 3)  # only `delegate` got two
    assert [each.reply for each in asked[1:]] == ["yes", "no"]
    (dream,) = dreamt(graph, buffer, given)
    assert dream.verdict is real.verdict is Verdict.PASSED
    assert dream.messages == tuple(each for each in real.messages if "within" not in each)
    assert told(dream) == [asked]


def test_a_registered_function_asks_again_too(project: Any) -> None:
    graph, buffer = agent(project, FUNCTION), MemoryStore()
    settings = parse_settings(f'[functions."{project.module}:send_mail"]\neffect = "destructive"\n')
    given = [Task("t", HELLO, expect={"max": {"send_mail": 9}}, replies=("sent",))]
    for run in (dreamgym_kit.record, dreamgym_kit.simulate):
        result = run(graph, given, buffer=buffer, settings=settings)
        (episode,) = RunDirectory.open(result.directory).episodes()
        assert told(episode) == [("sent to ann", Reply("mail ann?", "sent"))]
    assert episode.verdict is Verdict.PASSED
    assert project.touched() == ["send_mail", "send_mail"]  # LangGraph runs a node again after its question


TWO_AT_ONCE = """
    import operator, time
    from typing import Annotated, TypedDict
    from langgraph.graph import END, START, StateGraph
    from langgraph.types import interrupt

    class Asked(TypedDict):
        said: Annotated[list, operator.add]

    def asks(name, wait_s):
        def node(state):
            time.sleep(wait_s)
            return {"said": [f"{name}={interrupt(name)}"]}
        return node

    made = StateGraph(Asked)
    made.add_node("first", asks("first", WAITS[0]))
    made.add_node("second", asks("second", WAITS[1]))
    for name in ("first", "second"):
        made.add_edge(START, name)
        made.add_edge(name, END)
    graph = made.compile()

    def check(outcome):
        return outcome.final == {"said": ["first=a", "second=b"]}
"""


@each_row("waits", [(0.0, 0.05), (0.05, 0.0)])
def test_replies_go_by_the_order_of_the_graphs_state_and_not_of_the_clock(
    project: Any, waits: tuple[float, float]
) -> None:
    graph = project.write(f"    WAITS = {waits}\n" + TWO_AT_ONCE)
    task = Task("t", {"said": []}, checker=f"{project.module}:check", replies=("a", "b"))
    (episode,) = dreamt(graph, MemoryStore(), [task])
    assert (episode.verdict, episode.final) == (Verdict.PASSED, {"said": ["first=a", "second=b"]})


@each_row("where", ["interrupt_before", "interrupt_after"])
@each_row("replies", [(), ("go on",)])
def test_a_graph_that_waits_at_a_breakpoint_is_inconclusive(
    project: Any, where: str, replies: tuple[str, ...]
) -> None:
    node = "tools" if where == "interrupt_before" else "model"
    graph = project.write(
        f"    graph = create_agent(ScriptedModelDouble(turns=TURNS), [get_order], {where}=[{node!r}])"
    )
    task = Task("t", HELLO, expect={"max": {"get_order": 9}}, replies=replies)
    (episode,) = dreamt(graph, MemoryStore(), [task])
    assert (episode.verdict, episode.stop) == (Verdict.INCONCLUSIVE, "interrupted")
    assert "breakpoint" in episode.reason
