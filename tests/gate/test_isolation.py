"""A dream leaves nothing in the user's checkpointer, store or caches, and reads nothing from them."""

import asyncio
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from each_row import each_row
from langchain_core.caches import InMemoryCache as LLMCache
from langchain_core.globals import set_llm_cache
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.cache.memory import InMemoryCache
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.store.base import BaseStore, Op, PutOp
from langgraph.store.memory import InMemoryStore
from langgraph.types import CachePolicy, Command
from shapes.agents import ADD, with_create_agent
from shapes.canary import Canary, touch
from shapes.middleware import THREAD, asking_tool, once, one_node_graph
from shapes.models import ScriptedModelDouble, asks
from shapes.stage import DREAMT, HELLO, ScriptedExperienceDouble, dream, tool_messages
from shapes.tools import add_tool

from dreamgym_kit import recording
from dreamgym_kit.adapters.langgraph.intercept.install import install, uninstall
from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.errors import RealCallBlocked
from dreamgym_kit.routing.process import CONFIG_KEY, entered

pytestmark = pytest.mark.usefixtures("gate")


@each_row("kind", ["sync", "async"])
def test_the_real_checkpointer_gets_no_row(kind: str) -> None:
    saver = InMemorySaver()
    graph = with_create_agent([add_tool()], once(), checkpointer=saver)
    with entered(dream()):
        result = graph.invoke(HELLO, THREAD) if kind == "sync" else asyncio.run(graph.ainvoke(HELLO, THREAD))
        assert graph.get_state(THREAD).values["messages"] == result["messages"]
    assert list(saver.list(None)) == []


def test_two_dreams_on_one_thread_id_do_not_meet() -> None:
    graph = with_create_agent([add_tool()], once(), checkpointer=InMemorySaver())
    lengths = []
    for _ in range(2):
        with entered(dream()):
            lengths.append(len(graph.invoke(HELLO, THREAD)["messages"]))
    assert lengths == [4, 4]


def test_graphs_that_share_a_saver_share_one_in_the_dream() -> None:
    saver = InMemorySaver()
    graph = with_create_agent([add_tool()], once(), checkpointer=saver)
    reader = graph.with_config({"tags": ["other object"]})
    assert reader is not graph
    with entered(dream()):
        graph.invoke(HELLO, THREAD)
        assert len(reader.get_state(THREAD).values["messages"]) == 4
    assert list(saver.list(None)) == []


def test_the_real_store_gets_nothing_and_the_dream_reads_back_its_own() -> None:
    store = InMemoryStore()

    def node(state: Any, *, store: BaseStore) -> Any:
        store.put(("people",), "vera", {"city": "Riga"})
        return {"messages": [AIMessage(store.get(("people",), "vera").value["city"])]}

    compiled = StateGraph(MessagesState).add_node("only", node).add_edge(START, "only").compile(store=store)
    with entered(dream()):
        assert compiled.invoke(HELLO)["messages"][-1].content == "Riga"
    assert store.search(("people",)) == []


def test_a_node_cache_gives_no_dreamt_answer_to_a_real_run() -> None:
    tool = add_tool()
    graph = StateGraph(MessagesState)
    graph.add_node(
        "only",
        lambda state: {"messages": [AIMessage(str(tool.invoke(ADD)))]},
        cache_policy=CachePolicy(),
    )
    graph.add_edge(START, "only")
    compiled = graph.compile(cache=InMemoryCache())
    given = {"messages": [HumanMessage("hi", id="1")]}
    with entered(dream()):
        assert compiled.invoke(given)["messages"][-1].content == DREAMT
    tool.__dict__["func"] = lambda a, b: "real"
    assert compiled.invoke(given)["messages"][-1].content == "real"


@each_row("where", ["process", "model"])
def test_an_llm_cache_is_neither_read_nor_filled(where: str) -> None:
    cache = LLMCache()
    model = ScriptedModelDouble(script=["first"], cache=cache if where == "model" else None)
    if where == "process":
        set_llm_cache(cache)
    try:
        model.invoke("hi")
        assert len(cache._cache) == 1
        changed = model.model_copy(update={"script": ["second"]})
        with entered(dream()):
            assert changed.invoke("hi").content == "second"
            assert changed.invoke("other").content == "second"
        assert len(cache._cache) == 1
    finally:
        set_llm_cache(None)


def _graph_run_in_a_thread(inner: Any, errors: list[BaseException], *, key: bool) -> Any:
    def node(state: Any, config: RunnableConfig) -> Any:
        passed = {"configurable": {"thread_id": "9"}}
        if key:
            passed["configurable"][CONFIG_KEY] = config["configurable"][CONFIG_KEY]

        def work() -> None:
            try:
                inner.invoke(HELLO, passed)
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return {"messages": [AIMessage("done")]}

    return StateGraph(MessagesState).add_node("only", node).add_edge(START, "only").compile()


@each_row("key", [True, False])
def test_a_graph_in_a_raw_thread_reaches_no_real_checkpointer(key: bool, canary: Canary) -> None:
    saver = InMemorySaver()
    inner = with_create_agent([add_tool()], once(), checkpointer=saver)
    errors: list[BaseException] = []
    outer = _graph_run_in_a_thread(inner, errors, key=key)
    session = dream()
    with entered(session):
        outer.invoke(HELLO, {"configurable": {CONFIG_KEY: session.id}})
    assert list(saver.list(None)) == []
    assert canary.written() == []
    assert [type(error) for error in errors] == ([] if key else [RealCallBlocked])
    assert len(session.ledger) == (1 if key else 0)


def test_a_node_that_runs_again_after_an_interrupt_asks_the_dream_again(canary: Canary) -> None:
    script = [[asks("add", ADD, "A"), asks("ask_user", {"question": "?"}, "B")], "done"]
    counter = iter("abc")
    experience = ScriptedExperienceDouble(lambda call: next(counter))
    session = dream(experience, control=("ask_user",))

    with entered(session):
        graph = one_node_graph(script, [add_tool(), asking_tool()])
        graph.invoke(HELLO, THREAD)
        result = graph.invoke(Command(resume="yes"), THREAD)
    assert [message.content for message in tool_messages(result)] == ["b", "user: yes"]
    assert len(experience.asked) == 2  # the real tool would run twice
    assert [entry.call.tool for entry in session.ledger.transitions()] == ["add", "add", "ask_user"]


THREAD_ONE: Any = {"configurable": {"thread_id": "1", "checkpoint_ns": ""}}


PEOPLE = ("people",)


def graph_of(node: Any, **settings: Any) -> Any:
    return StateGraph(MessagesState).add_node("only", node).add_edge(START, "only").compile(**settings)


class ServerStore(BaseStore):
    """A store over a connection that no guard sees."""

    def batch(self, ops: Iterable[Op]) -> list[Any]:
        touch("server")
        return [None for _ in ops]

    async def abatch(self, ops: Iterable[Op]) -> list[Any]:
        return self.batch(ops)


def _store(store: BaseStore, kind: str) -> str:
    if kind == "async":

        async def told() -> str:
            await store.aput(PEOPLE, "vera", {"city": "Riga"})
            found = await store.aget(PEOPLE, "vera")
            return str(found.value["city"]) if found else ""

        return asyncio.run(told())
    if kind == "batch":
        store.batch([PutOp(PEOPLE, "vera", {"city": "Riga"})])
    else:
        store.put(PEOPLE, "vera", {"city": "Riga"})
    found = store.get(PEOPLE, "vera")
    return str(found.value["city"]) if found else ""


@each_row("kind", ["sync", "async", "batch"])
@each_row("make", [InMemoryStore, ServerStore])
def test_a_store_in_a_variable_is_not_written_and_reads_back_what_the_dream_wrote(
    make: Callable[[], BaseStore], kind: str, canary: Canary
) -> None:
    store = make()
    graph = graph_of(lambda state: {"messages": [AIMessage(_store(store, kind))]})
    for _ in range(2):
        with entered(dream()):
            assert graph.invoke(HELLO)["messages"][-1].content == "Riga"
    assert canary.written() == []
    if make is InMemoryStore:
        assert store.search(PEOPLE) == []


def test_a_store_class_made_while_the_gate_stands_is_met_too(canary: Canary) -> None:
    class Late(ServerStore):
        def get(self, *args: Any, **kwargs: Any) -> Any:
            touch("late")

    with entered(dream()):
        assert _store(Late(), "sync") == "Riga"
    assert canary.written() == []


def test_a_variable_and_the_graph_share_what_they_share_outside() -> None:
    shared = InMemoryStore()
    shared.put(PEOPLE, "ana", {"city": "Graz"})

    def node(state: Any, *, store: BaseStore) -> Any:
        shared.put(PEOPLE, "vera", {"city": "Riga"})
        return {"messages": [AIMessage(",".join(sorted(item.key for item in store.search(PEOPLE))))]}

    with entered(dream()):
        assert graph_of(node, store=shared).invoke(HELLO)["messages"][-1].content == "ana,vera"
    assert [item.key for item in shared.search(PEOPLE)] == ["ana"]


@each_row("how", ["here", "thread", "pool"])
def test_a_saver_in_a_variable_keeps_its_threads(how: str) -> None:
    saver = InMemorySaver()
    saver.put(THREAD_ONE, empty_checkpoint(), {}, {})

    def act() -> None:
        saver.delete_thread("1")
        saver.put({"configurable": {"thread_id": "2", "checkpoint_ns": ""}}, empty_checkpoint(), {}, {})
        saver.put_writes(
            {"configurable": {"thread_id": "1", "checkpoint_ns": "", "checkpoint_id": "1"}}, [("a", 1)], "t"
        )

    def node(state: Any) -> Any:
        if how == "thread":
            thread = threading.Thread(target=act)
            thread.start()
            thread.join()
        elif how == "pool":
            with ThreadPoolExecutor(1) as pool:
                pool.submit(act).result()
        else:
            act()
        return {}

    with entered(dream()):
        graph_of(node).invoke(HELLO)
        assert [one.config["configurable"]["thread_id"] for one in saver.list(None)] == ["2"]
    assert [one.config["configurable"]["thread_id"] for one in saver.list(None)] == ["1"]
    assert dict(saver.writes) == {}


async def test_a_savers_async_methods_work_on_the_dreams_own_too() -> None:
    saver = InMemorySaver()
    with entered(dream()):
        await saver.aput(THREAD_ONE, empty_checkpoint(), {}, {})
        assert len([one async for one in saver.alist(None)]) == 1
        assert await saver.aget_tuple(THREAD_ONE) is not None
        await saver.adelete_thread("1")
        assert await saver.aget(THREAD_ONE) is None
        await saver.aput(THREAD_ONE, empty_checkpoint(), {}, {})
    assert list(saver.list(None)) == []


def test_a_node_cache_in_a_variable_is_neither_filled_nor_emptied() -> None:
    cache: InMemoryCache[int] = InMemoryCache()
    cache.set({(("a",), "k"): (1, None)})
    with entered(dream()):
        assert cache.get([(("a",), "k")]) == {}
        cache.set({(("a",), "other"): (2, None)})
        cache.clear()
    assert cache.get([(("a",), "k"), (("a",), "other")]) == {(("a",), "k"): 1}


def test_recording_and_waking_leave_memory_real() -> None:
    store = InMemoryStore()
    with recording(MemoryStore()):
        _store(store, "sync")
    assert len(store.search(PEOPLE)) == 1
    with entered(dream()):
        store.delete(PEOPLE, "vera")
    assert len(store.search(PEOPLE)) == 1
    store.delete(PEOPLE, "vera")
    assert store.search(PEOPLE) == []


def test_uninstalling_restores_the_classes_of_memory() -> None:
    uninstall()
    kinds = (BaseStore, InMemoryStore, ServerStore, InMemorySaver, InMemoryCache)
    before = [dict(kind.__dict__) for kind in kinds]
    install()
    assert [dict(kind.__dict__) for kind in kinds] != before
    uninstall()
    assert [dict(kind.__dict__) for kind in kinds] == before
