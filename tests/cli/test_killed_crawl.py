"""`crawl`, killed again and again: what was acknowledged is there and not asked again."""

from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from waiting import wait_until

from dreamgym_kit.adapters.stores.sqlite import SqliteStore

ORDERS = 30
AGENT = f'''\
"""Two reads that write down each call of theirs in `CALLS`; call number HOLD_AT gets no answer."""

import os
import time
from pathlib import Path

from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

CALLS = Path(__file__).parent / "CALLS"


def called(what):
    with CALLS.open("a") as file:
        file.write(what + "\\n")
    if len(CALLS.read_text().splitlines()) == int(os.environ.get("HOLD_AT", "0")):
        time.sleep(3600)


@tool
def list_orders() -> list:
    """List all orders."""
    called("all")
    return [{{"order_id": f"o{{number}}"}} for number in range({ORDERS})]


@tool
def get_order(order_id: str) -> dict:
    """Look up an order."""
    called(order_id)
    return {{"order_id": order_id, "status": "open"}}


graph = StateGraph(MessagesState).add_node("tools", ToolNode([list_orders, get_order]))
graph = graph.add_edge(START, "tools").compile()
'''
SETTINGS = (
    'graph = "reading:graph"\n[tools.list_orders]\neffect = "read"\n[tools.get_order]\neffect = "read"\n'
)
CRAWL = ("crawl", "--yes", "--rate", "0")


def calls(project: Path) -> list[str]:
    file = project / "CALLS"
    return file.read_text().splitlines() if file.exists() else []


def kept(project: Path) -> list[str]:
    if not (project / "dreamgym.db").exists():
        return []
    with closing(SqliteStore(project / "dreamgym.db", read_only=True)) as store:
        return [str(row.call.args.get("order_id", "all")) for row in store.scan()]


@pytest.mark.slow
@pytest.mark.nightly
def test_a_killed_crawl_loses_nothing_and_asks_at_most_the_call_in_flight_again(
    project: Path, run, begin
) -> None:
    (project / "reading.py").write_text(AGENT)
    (project / "dreamgym.toml").write_text(SETTINGS)
    in_flight = []
    for many in (1, 9, 20):
        crawl = begin(*CRAWL, HOLD_AT=str(many))
        wait_until(
            lambda at=many, crawl=crawl: len(calls(project)) == at or crawl.poll() is not None, "the call"
        )
        crawl.kill()
        crawl.wait()
        made, there = calls(project), kept(project)
        assert len(made) == many
        assert set(made[:-1]) <= set(there)
        in_flight.append(made[-1])
    assert run(*CRAWL).returncode == 0
    every = {"all", *(f"o{number}" for number in range(ORDERS))}
    assert Counter(kept(project)) == Counter(every)
    again = Counter(calls(project)) - Counter(every)
    assert again <= Counter(in_flight)
    before = len(calls(project))
    assert run(*CRAWL).returncode == 0
    assert len(calls(project)) == before
