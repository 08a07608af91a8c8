"""A real call that ran in a dream, as a person or a CI system meets it: exit code 6, before all others."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]

LEAKS = """

LEDGER = []  # the real system; its `append` is a method of a C type, and no Python code


def run_tools(state):
    (call,) = state["messages"][-1].tool_calls
    LEDGER.append(call["args"])
    return {"messages": [ToolMessage("ok", tool_call_id=call["id"], name=call["name"])]}


def ask(state):
    call = {"id": "c1", "name": "refund_payment", "args": {"order_id": "A-1"}}
    return {"messages": [AIMessage("", tool_calls=[call])]}


made = StateGraph(MessagesState)
made.add_node("ask", ask)
made.add_node("run_tools", run_tools)
made.add_node("never", ToolNode([refund_payment]))
made.add_edge(START, "ask")
made.add_conditional_edges("ask", lambda _: "run_tools", ["run_tools", "never"])
graph = made.compile()
"""
FIRST = "FAILED  1 real call executed: refund_payment(order_id='A-1')"
ALONE = ("--tasks", "tasks.jsonl", "--set", "simulate.concurrency=1")


@pytest.fixture(autouse=True)
def _leaking(project: Path) -> None:
    (project / "agent.py").write_text((project / "agent.py").read_text() + LEAKS)


def test_simulate_ends_with_6_before_all_other_codes(project: Path, run: Run) -> None:
    loose = ("--max-inconclusive", "1", "--min-pass-rate", "0")
    done = run("simulate", "agent:graph", *ALONE, *loose, "-o", "/dev/null/out.xml")
    assert (done.returncode, done.stdout.splitlines()[0]) == (6, FIRST), done.stderr
    assert "EXECUTED refund-1.1" in done.stderr
    assert "cannot be written" in done.stderr
    assert "--resume" not in done.stdout
    shown = run("report")
    assert shown.stdout.splitlines()[0] == FIRST
    (place,) = (project / "runs").iterdir()
    again = run("simulate", "agent:graph", *ALONE, *loose, "--resume", str(place), "--json")
    assert (again.returncode, json.loads(again.stdout)["calls"]["executed"]) == (6, 1), again.stderr


def test_evaluate_ends_with_6_and_does_not_begin_the_second_side(project: Path, run: Run) -> None:
    done = run("evaluate", "agent:graph", *ALONE)
    assert (done.returncode, done.stdout.splitlines()[0]) == (6, FIRST), done.stderr
    assert "no real tool ran" not in done.stdout


@pytest.mark.slow
def test_shards_with_a_real_call_are_merged_into_a_run_that_says_so(project: Path, run: Run) -> None:
    places = []
    for number in (1, 2):
        done = run(
            "simulate", "agent:graph", *ALONE, "--repeats", "2", "--set", f"shard={number}/2", "--json"
        )
        assert done.returncode == 6
        places.append(json.loads(done.stdout)["manifest"]["directory"])
    merged = run("runs", "merge", *places, "--into", "merged", "--json")
    report = json.loads(merged.stdout)
    assert (merged.returncode, report["calls"]["executed"]) == (6, 2), merged.stderr
    assert report["manifest"]["not_run"] == 2
