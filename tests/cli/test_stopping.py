"""Stopping a run: the first Ctrl-C finishes what runs, and the run goes on from there."""

import shlex
import signal
from pathlib import Path

import pytest

FLAGS = ("agent:graph", "--tasks", "tasks.jsonl", "-n", "10", "--set", "simulate.concurrency=2")


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_run_says_how_to_go_on_and_does(
    run, begin, recorded: Path, number: signal.Signals, code: int
) -> None:
    running = begin("simulate", *FLAGS, HELD="1")
    assert running.stderr is not None
    for line in running.stderr:
        if "/20  " in line:
            break
    running.send_signal(number)
    assert any(f"stopping ({number.name})" in line for line in running.stderr)
    (recorded / "GO").touch()  # only now: what runs can still be finished, and there is more to do
    said, _ = running.communicate(timeout=300)
    assert running.returncode == code
    assert f" Stopped ({number.name}): " in said
    go_on = next(line for line in said.splitlines() if line.startswith(" Go on"))
    resumed = run(*shlex.split(go_on.split(maxsplit=2)[2].split("   ")[0])[1:])
    assert resumed.returncode == 1, resumed.stderr  # its tasks fail
    assert "FAILED  0 passed, 20 failed, 0 inconclusive" in resumed.stdout


@pytest.mark.slow
def test_nothing_that_the_agent_left_runs_on_after_a_dream(run, recorded: Path) -> None:
    left = """

import atexit, threading

def sleep_long():
    time.sleep(3600)  # a command that waited for it would not end

def begin(state):
    atexit.register(sleep_long)
    threading.Thread(target=sleep_long).start()
    return {}

begins = StateGraph(MessagesState)
begins.add_node("begin", begin)
begins.add_edge(START, "begin")
graph = begins.compile()
"""
    with (recorded / "agent.py").open("a") as file:
        file.write(left)
    done = run("simulate", "agent:graph", "--tasks", "tasks.jsonl")
    assert (done.returncode, done.stderr.count("Traceback")) == (1, 0)
    assert not (recorded / "REAL").exists()
