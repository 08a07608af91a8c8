"""Tools that an agent makes while it runs: `dreamgym.lock` has them, or the run is stopped."""

import importlib
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from shapes.stage import ScriptedExperienceDouble

import dreamgym_kit
from dreamgym_kit import Task
from dreamgym_kit.adapters.langgraph.run.request import RunRequest
from dreamgym_kit.adapters.langgraph.training.rollouts import open_rollouts
from dreamgym_kit.rollout.event_loop import run_to_end
from dreamgym_kit.rollout.rundir import RunDirectory
from dreamgym_kit.rollout.stop import StopSwitch
from dreamgym_kit.rollout.tool_lock import DecidedBy, LockDiffers, read_lock, tool_digest, write_lock
from dreamgym_kit.settings.load import load_settings

# The tool's name is no other test's: tools and hooks of earlier tests may be alive.
SOURCE = """
    from langchain_core.messages import HumanMessage
    from langchain_core.tools import StructuredTool
    from langgraph.graph import START, MessagesState, StateGraph

    def node(state):
        def settle_in_full(order: str) -> str:
            "Refund an order."
            return order
        made = StructuredTool.from_function(settle_in_full)
        return {"messages": [HumanMessage(str(made.invoke({"order": "o1"})))]}
    graph = StateGraph(MessagesState).add_node("node", node).add_edge(START, "node").compile()
"""
TASKS = [Task(name, {"messages": [("user", "hi")]}) for name in ("t1", "t2")]


@pytest.fixture
def simulated(project: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.delenv("CI", raising=False)  # there nothing is written
    graph, file = project.write(dedent(SOURCE)), project.folder / "dreamgym.toml"
    file.write_text("[simulate]\nconcurrency = 1\n")

    def run(graph: Any = graph, **options: Any) -> Any:
        settings = load_settings(file=file, environ={})
        return dreamgym_kit.simulate(
            graph, TASKS, experience=ScriptedExperienceDouble(), settings=settings, **options
        )

    return run


def test_a_first_run_writes_what_appears_and_the_next_one_knows_it(project: Any, simulated: Any) -> None:
    simulated()
    assert [line for line in lines(project) if "settle_in_full" in line and "at_run_time = true" in line]
    assert [one for one in simulated().warnings if "no longer" in one] == []


def test_a_graph_without_a_name_has_no_lock_and_the_run_says_so(project: Any, simulated: Any) -> None:
    named, unnamed = simulated(), simulated(importlib.import_module(project.module).graph)
    note = "no dreamgym.lock: the graph has no name. Give it one: compile(name=...)"
    assert (note in named.warnings, note in unnamed.warnings) == (False, True)


def test_a_tool_made_at_run_time_has_a_digest_of_its_schema_and_one_that_changed_stops_the_run(
    project: Any, simulated: Any
) -> None:
    simulated()
    lock, name = project.folder / "dreamgym.lock", f"{project.module}:graph"
    line = (read_lock(lock) or {})[name]["settle_in_full"]
    schema = {"type": "object", "properties": {"order": {"type": "string"}}, "required": ["order"]}
    assert (line.digest, line.at_run_time) == (tool_digest("settle_in_full", schema), True)
    old = line.line().replace(line.digest, tool_digest("settle_in_full", {}))
    lock.write_text(lock.read_text().replace(line.line(), old))
    assert simulated().totals.finished == 2  # as versions wrote it that knew the name alone
    lock.write_text(lock.read_text().replace(old, line.line().replace(line.digest, "0" * 16)))
    with pytest.raises(LockDiffers, match=r"\+ settle_in_full: new, .*\n.*init --update"):
        simulated()
    changed = (read_lock(lock) or {})[name]["settle_in_full"]
    assert (changed.digest, changed.decided_by) == (line.digest, DecidedBy.NOBODY)


def test_what_the_lock_lacks_stops_the_run_and_loses_nothing(
    project: Any, simulated: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulated()
    lock = project.folder / "dreamgym.lock"
    lock.write_text("".join(line for line in lines(project) if "settle_in_full" not in line))
    monkeypatch.setenv("CI", "true")
    with pytest.raises(LockDiffers, match=r"settle_in_full: new, .*\n.*where CI is not set.* init --update"):
        simulated(run_dir=tmp_path / "in_ci")
    monkeypatch.delenv("CI")
    assert "settle_in_full" not in lock.read_text()
    with pytest.raises(LockDiffers, match=r"\+ settle_in_full: new, .*\n.*dreamgym-kit init --update"):
        simulated(run_dir=tmp_path / "stopped")
    assert [one.task for one in RunDirectory.open(tmp_path / "stopped").episodes()] == ["t1"]
    with pytest.raises(LockDiffers, match="nothing was run"):  # until somebody accepts it
        simulated()
    name = f"{project.module}:graph"
    there = [one for one in (read_lock(lock) or {})[name].values() if not one.at_run_time]
    write_lock(lock, name, there)  # as `init --update` does
    assert simulated().totals.finished == 2


def test_tool_missing_from_the_lock_stops_a_training_s_collection(
    project: Any, simulated: Any, tmp_path: Path
) -> None:
    simulated()
    lock = project.folder / "dreamgym.lock"
    lock.write_text("".join(line for line in lines(project) if "settle_in_full" not in line))
    settings = load_settings(file=project.folder / "dreamgym.toml", environ={})
    request = RunRequest(
        graph=f"{project.module}:graph",
        tasks=TASKS,
        settings=settings,
        experience=ScriptedExperienceDouble(),
        directory=tmp_path / "steps",
    )

    async def collected(switch: StopSwitch) -> None:
        async with open_rollouts(request, stop=switch) as rollouts:
            await rollouts.collect(TASKS, 1, step=1, seed=0)

    with pytest.raises(LockDiffers, match=r"\+ settle_in_full: new"):
        run_to_end(collected(switch := StopSwitch()))
    assert switch.reason


def lines(project: Any) -> list[str]:
    return (project.folder / "dreamgym.lock").read_text().splitlines(keepends=True)
