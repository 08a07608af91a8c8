"""A pure body reaches no host, also none that is allowed, and by no thread of its own."""

import asyncio
import inspect
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from shapes.stage import ScriptedExperienceDouble

from dreamgym_kit import effect
from dreamgym_kit.adapters.langgraph.intercept.install import dreaming_process
from dreamgym_kit.adapters.langgraph.run.api import live_policy
from dreamgym_kit.errors import RealCallBlocked
from dreamgym_kit.routing.process import entered
from dreamgym_kit.routing.router import Mode, Stage
from dreamgym_kit.routing.session import Session
from dreamgym_kit.settings.load import parse_settings
from dreamgym_kit.settings.schema import Settings
from dreamgym_kit.types import Effect

pytestmark = pytest.mark.usefixtures("gate")


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def connections(listening: socket.socket) -> int:
    """How many came in and are still unheard."""
    listening.setblocking(False)
    count = 0
    while True:
        try:
            connection, _ = listening.accept()
        except BlockingIOError:
            return count
        connection.close()
        count += 1


def allowing(listening: socket.socket) -> Settings:
    host, port = listening.getsockname()
    return parse_settings(f'[guard]\nallow_hosts = ["{host}:{port}"]\n')


def directly(work: Callable[[], None]) -> None:
    work()


def in_a_thread(work: Callable[[], None]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def in_a_thread_of_a_thread(work: Callable[[], None]) -> None:
    in_a_thread(lambda: in_a_thread(work))


def in_a_pool(work: Callable[[], None]) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(work).result()


def in_a_task(work: Callable[[], None]) -> None:
    async def later() -> None:
        work()

    async def begun() -> None:
        await asyncio.create_task(later())

    in_a_pool(lambda: asyncio.run(begun()))


class OwnEntries(BaseTool):
    """Its class does the work, and connects, in entry points of its own."""

    name: str = "look"
    description: str = "Look."
    reach: Any = None

    def _run(self, key: str) -> str:
        raise NotImplementedError

    def invoke(self, given: Any, config: Any = None, **kwargs: Any) -> Any:
        self.reach()
        return ToolMessage("seen", tool_call_id=given["id"]) if "id" in given else "seen"

    async def ainvoke(self, given: Any, config: Any = None, **kwargs: Any) -> Any:
        return OwnEntries.invoke.__wrapped__(self, given)  # type: ignore[attr-defined]


def in_a_graph(tool: BaseTool) -> Any:
    builder = StateGraph(MessagesState).add_node("tools", ToolNode([tool])).add_edge(START, "tools")
    asked = {"name": "look", "args": {"key": "x"}, "id": "c1", "type": "tool_call"}
    return builder.compile(), {"messages": [AIMessage("", tool_calls=[asked])]}


ENTRIES: dict[str, Callable[[BaseTool], Any]] = {
    "invoke": lambda tool: tool.invoke({"key": "x"}),
    "ainvoke": lambda tool: tool.ainvoke({"key": "x"}),
    "a node": lambda tool: (graph := in_a_graph(tool))[0].invoke(graph[1]),
    "an async node": lambda tool: (graph := in_a_graph(tool))[0].ainvoke(graph[1]),
}
WAYS = [directly, in_a_thread, in_a_thread_of_a_thread, in_a_pool, in_a_task]


def connect(listening: socket.socket) -> None:
    with socket.socket() as client, suppress(RealCallBlocked):
        client.connect(listening.getsockname())


def reaching(listening: socket.socket, way: Callable[[Callable[[], None]], None]) -> StructuredTool:
    """A tool that connects to a server that is allowed."""

    def look(key: str) -> str:
        """Look."""
        way(lambda: connect(listening))
        return "seen"

    return StructuredTool.from_function(look)


def called(
    tool: BaseTool, settings: Settings, tmp_path: Path, way: Callable[[BaseTool], Any] | None = None
) -> Session:
    session = Session(live_policy(Mode.DREAM, settings), experience=ScriptedExperienceDouble())

    async def run() -> None:
        with dreaming_process(settings, tmp_path / "scratch"), entered(session):
            result = way(tool) if way is not None else tool.invoke({"key": "x"})
            if inspect.isawaitable(result):
                await result

    asyncio.run(run())
    return session


@pytest.mark.parametrize("way", WAYS)
def test_a_pure_body_reaches_no_host_that_is_allowed(way: Any, server: socket.socket, tmp_path: Path) -> None:
    session = called(effect("pure")(reaching(server, way)), allowing(server), tmp_path)
    assert connections(server) == 0
    [why] = session.violations
    assert "look is pure, and what is pure reaches no host" in why
    assert '[tools.look] effect = "read"' in why


@pytest.mark.parametrize("way", ENTRIES)
def test_an_entry_point_of_its_own_is_a_body(way: str, server: socket.socket, tmp_path: Path) -> None:
    settings = allowing(server)
    with pytest.raises(RealCallBlocked):
        called(effect("pure")(OwnEntries(reach=lambda: connect(server))), settings, tmp_path, ENTRIES[way])
    assert connections(server) == 0
    session = called(effect("pure")(OwnEntries(reach=lambda: None)), settings, tmp_path, ENTRIES[way])
    [call] = session.ledger.transitions()
    assert (call.call.tool, dict(call.call.args), call.effect) == ("look", {"key": "x"}, Effect.PURE)


@pytest.mark.parametrize("way", WAYS)
def test_a_control_body_reaches_hosts_that_are_allowed(
    way: Any, server: socket.socket, tmp_path: Path
) -> None:
    session = called(effect("control")(reaching(server, way)), allowing(server), tmp_path)
    assert connections(server) == 1
    assert session.violations == []


def test_the_seal_ends_with_the_body(server: socket.socket, tmp_path: Path) -> None:
    kept = effect("pure")(reaching(server, lambda work: None))
    other = effect("control")(reaching(server, directly).model_copy(update={"name": "other"}))

    def both(tool: BaseTool) -> None:
        tool.invoke({"key": "x"})
        effect("control")(other).invoke({"key": "x"})

    called(kept, allowing(server), tmp_path, both)
    assert connections(server) == 1


def test_no_guard_has_to_stand(server: socket.socket) -> None:
    tool = effect("pure")(reaching(server, directly))
    session = Session(live_policy(Mode.S2R, Settings(), Stage.LIVE))
    with entered(session):
        tool.invoke({"key": "x"})
    assert connections(server) == 0
    assert session.violated()


def test_what_is_recorded_runs_as_it_is(server: socket.socket) -> None:
    tool = effect("pure")(reaching(server, directly))
    with entered(Session(live_policy(Mode.RECORD, Settings()))):
        assert tool.invoke({"key": "x"}) == "seen"
    assert connections(server) == 1


def test_the_seal_holds_until_what_the_body_gave_is_awaited(server: socket.socket, tmp_path: Path) -> None:
    async def later() -> str:
        connect(server)
        return "seen"

    def look(key: str) -> Any:
        """Look."""
        return later()

    tool = effect("pure")(StructuredTool.from_function(look))

    called(tool, allowing(server), tmp_path)
    assert connections(server) == 0
