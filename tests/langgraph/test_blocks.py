"""`dreaming` and `recording`: a block of one's own code under the gate; runs from async code."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from ports import own_port

import dreamgym_kit
from dreamgym_kit import Task
from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.errors import UserError
from dreamgym_kit.settings.load import parse_settings

TASK = Task("t1", {"messages": [{"role": "user", "content": "cancel o1 please"}]})


def task(project: Any, **changes: Any) -> Task:
    return Task("t1", TASK.input, **{"checker": f"{project.module}:check", **changes})


async def test_the_same_in_five_lines_async_and_inside_a_running_loop(project: Any) -> None:
    graph, store = project.write(), MemoryStore()
    await dreamgym_kit.arecord(graph, [task(project)], buffer=store)
    dreamt = await dreamgym_kit.asimulate(graph, [task(project)], buffer=store)
    assert dreamt.totals.passed == 1
    inside = dreamgym_kit.simulate(graph, [task(project)], buffer=store)
    assert inside.totals.passed == 1
    assert asyncio.get_running_loop().is_running()


def test_a_block_of_own_code_can_be_recorded_and_dreamt(project: Any) -> None:
    import importlib

    project.write()
    module: Any = importlib.import_module(project.module)
    store = MemoryStore()
    asked = {"messages": [("user", "cancel o1")]}
    with dreamgym_kit.recording(store):
        asyncio.run(module.graph.ainvoke(asked))
    with dreamgym_kit.dreaming(buffer=store) as session:
        said = asyncio.run(module.graph.ainvoke(asked))
    assert said["messages"][-1].content == "Cancelled."
    assert [entry.call.tool for entry in session.ledger.transitions()] == [
        "get_order",
        "cancel_order",
        "get_order",
    ]
    assert module.get_order.invoke({"order_id": "o1"})["status"] == "cancelled"
    assert len(project.touched()) == 4


def test_a_block_dreams_by_the_same_chain_as_a_run(project: Any, tmp_path: Path) -> None:
    import importlib

    project.write()
    module: Any = importlib.import_module(project.module)
    folder = tmp_path / "rules"
    folder.mkdir()
    (folder / "cancel_order.toml").write_text("""
writes = true
arguments = ["order_id"]
decides = '"ok"'
[outcomes.ok]
answer = 'Const("ok")'
""")
    settings = parse_settings('[tools]\ncancel_order = "write"\n', path=tmp_path / "dreamgym.toml")
    store = MemoryStore()
    with dreamgym_kit.recording(store):
        module.get_order.invoke({"order_id": "o1"})
    with dreamgym_kit.dreaming(buffer=store, settings=settings) as session:
        assert module.get_order.invoke({"order_id": "o1"})["status"] == "open"
        assert asyncio.run(module.cancel_order.ainvoke({"order_id": "o1"})) == "ok"
    told = [entry.answer.source.value for entry in session.ledger.transitions()]
    assert told == ["recorded", "derived"]
    assert project.touched() == ["get_order"]


def test_a_block_asks_the_endpoint_of_the_settings_like_a_run(project: Any) -> None:
    project.write()
    said = f'[experience]\nurls = ["http://127.0.0.1:{own_port()}/v1"]\nmodel = "m"\nmax_attempts = 1\n'
    with (
        pytest.raises(UserError, match="the dream's model cannot be asked"),
        dreamgym_kit.dreaming(buffer=MemoryStore(), settings=parse_settings(said)),
    ):
        pass
