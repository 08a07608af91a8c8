"""A model directory in a run: it answers where it is let, and nobody else is asked."""

from pathlib import Path

import pytest

pytest.importorskip("trl", reason="the extra train is not installed", exc_type=ImportError)
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from nano_double import write_double

import dreamgym_kit
from dreamgym_kit.deployment.model_files import digest_of_folder
from dreamgym_kit.rollout.rundir import RunDirectory
from dreamgym_kit.settings.schema import ExperienceSettings, Settings, ToolSettings
from dreamgym_kit.trust.acceptance import FILE, NEVER, WATCH, Gate, ToolGate, write_gate
from dreamgym_kit.types import Effect, Task, Verdict

pytestmark = pytest.mark.slow  # loads torch


@tool
def get_order(order_id: str) -> str:
    """Look up an order."""
    raise AssertionError("a real tool ran")


def agent(state: MessagesState) -> dict[str, object]:
    return {"messages": [AIMessage(get_order.invoke({"order_id": "o1"}))]}


@pytest.fixture
def graph():
    builder = StateGraph(MessagesState)
    builder.add_node("agent", agent)
    builder.add_edge(START, "agent")
    return builder.compile()


@pytest.mark.parametrize(
    ("verdict", "says"), [(NEVER, "may not answer get_order: it failed"), (WATCH, "cut off")]
)
def test_a_dream_asks_a_directory_where_its_gate_lets_it(
    verdict: str, says: str, graph, tmp_path: Path
) -> None:
    folder = write_double(tmp_path / "model", context=8192)
    gate = Gate(digest_of_folder(folder), 0.9, {"get_order": ToolGate(verdict, 0, 20, "it failed")})
    write_gate(folder / FILE, gate, {})
    settings = Settings(
        experience=ExperienceSettings(dir=str(folder), max_output=24),
        runs=str(tmp_path / "runs"),
        buffer=str(tmp_path / "none.db"),
        tools={"get_order": ToolSettings(Effect.READ)},
    )
    result = dreamgym_kit.simulate(
        graph, [Task("t", {"messages": [("user", "Where is o1?")]})], settings=settings
    )
    (episode,) = RunDirectory.open(result.directory).episodes()
    assert episode.verdict is Verdict.INCONCLUSIVE
    assert says in episode.reason
