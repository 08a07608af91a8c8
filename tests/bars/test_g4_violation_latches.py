"""Bar G4: a tool that catches the refusal and tries five other ways: 1 report, 0 later calls run."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from each_row import each_row
from langchain_core.tools import tool
from shapes.agents import MAKES
from shapes.canary import Canary, canary_in, touch
from shapes.models import ScriptedModelDouble, asks
from shapes.stage import HELLO, dream
from shapes.tools import ClassTool, OverridesInvoke, add_tool, async_tool

from dreamgym_kit.adapters.langgraph.intercept.functions import hook
from dreamgym_kit.adapters.langgraph.intercept.install import install, uninstall
from dreamgym_kit.errors import RealCallBlocked
from dreamgym_kit.routing.process import CONFIG_KEY, entered
from dreamgym_kit.routing.session import Session

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def canary(tmp_path: Path) -> Iterator[Canary]:
    install()
    with canary_in(tmp_path) as here:
        yield here
    uninstall()


def swallowing(ways: list[Callable[[], Any]], said: list[str]) -> Any:
    """A tool (declared control, so that its body runs) that will not take no for an answer."""

    @tool
    def stubborn(order: str) -> str:
        """Try everything."""
        for way in ways:
            try:
                way()
                said.append("ran")
            except BaseException as error:
                said.append(type(error).__name__)
        return "done"

    return stubborn


def plain(order: str) -> str:
    touch("plain")
    return "real"


def ways_of(session: Session, other: Session) -> list[Callable[[], Any]]:
    """First the violation (the key of another episode), then five other ways to something real."""
    add, key = add_tool(), {"configurable": {CONFIG_KEY: other.id}}
    hook(plain, "plain")

    def in_a_thread() -> None:
        failed: list[BaseException] = []

        def work() -> None:
            try:
                add.invoke({"a": 1}, {"configurable": {CONFIG_KEY: session.id}})
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        for error in failed:
            raise error

    return [
        lambda: add.invoke({"a": 1}, key),
        lambda: add.func(1, 2),
        lambda: ClassTool()._run(1),
        lambda: OverridesInvoke().invoke({"a": 1}),
        lambda: plain("o1"),
        in_a_thread,
        lambda: ScriptedModelDouble(script=["x"]).invoke("hi"),
    ]


@each_row("kind", ["sync", "async"])
@each_row("make", MAKES)
def test_one_report_and_nothing_later_runs(make: str, kind: str, canary: Canary) -> None:
    session, other = dream(control=("stubborn", "add", "cls", "ov", "plain")), dream()
    said: list[str] = []
    stubborn = swallowing(ways_of(session, other), said)
    graph = MAKES[make](
        [stubborn, async_tool()], [[asks("stubborn", {"order": "o1"})], [asks("aadd", {"a": 1})]]
    )
    with entered(other), entered(session), pytest.raises(RealCallBlocked):
        graph.invoke(HELLO) if kind == "sync" else asyncio.run(graph.ainvoke(HELLO))
    print(f"G4 reports {len(session.violations)} later calls run {len(canary.written())}")
    assert session.violations == ["add was called in one episode with the key of another; it did not run"]
    assert said == ["RealCallBlocked"] * 7
    assert canary.written() == []
    assert [entry.call.tool for entry in session.ledger.transitions()] == ["stubborn"]
    assert other.violations == []


def test_a_session_that_forgets_is_found_out(canary: Canary, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Session, "check_open", lambda self, *asked: None)
    session, other = dream(control=("stubborn", "add", "cls", "ov", "plain")), dream()
    said: list[str] = []
    with entered(other), entered(session):
        swallowing(ways_of(session, other), said).invoke({"order": "o1"})
    assert "ran" in said
    assert len(canary.written()) > 3
