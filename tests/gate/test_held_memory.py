"""A store, saver or cache in a node's own variable: a dream works on its own in place of it."""

import asyncio
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from each_row import each_row
from langchain_core.messages import AIMessage
from langgraph.cache.memory import InMemoryCache
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.store.base import BaseStore, Op, PutOp
from langgraph.store.memory import InMemoryStore
from shapes.canary import Canary, touch
from shapes.stage import HELLO, dream

from dreamgym_kit import recording
from dreamgym_kit.adapters.langgraph.intercept.install import install, uninstall
from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.routing.process import entered

pytestmark = pytest.mark.usefixtures("gate")
THREAD: Any = {"configurable": {"thread_id": "1", "checkpoint_ns": ""}}
PEOPLE = ("people",)


def graph_of(node: Any, **settings: Any) -> Any:
    graph = StateGraph(MessagesState)
    graph.add_node("only", node)
    graph.add_edge(START, "only")
    return graph.compile(**settings)


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
    saver.put(THREAD, empty_checkpoint(), {}, {})

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
        await saver.aput(THREAD, empty_checkpoint(), {}, {})
        assert len([one async for one in saver.alist(None)]) == 1
        assert await saver.aget_tuple(THREAD) is not None
        await saver.adelete_thread("1")
        assert await saver.aget(THREAD) is None
        await saver.aput(THREAD, empty_checkpoint(), {}, {})
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
