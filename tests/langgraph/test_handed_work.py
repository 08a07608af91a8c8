"""What a dream would give to a process that was there before it is refused; a pool of threads works."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import wait_until

SCRIPT = """
import json, multiprocessing, pathlib, sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.pool import ThreadPool
from typing import TypedDict
from langchain_core.tools import tool
from langgraph.graph import END, START, StateGraph
from langgraph.prebuilt import ToolNode
import dreamgym_kit
from dreamgym_kit.rollout.rundir import RunDirectory

context = multiprocessing.get_context("fork")
def touch(name):
    pathlib.Path(name).touch()
def serve(take):
    while True:
        touch(take())
(here, there), queue, simple = context.Pipe(), context.Queue(), context.SimpleQueue()
for take in (there.recv, queue.get, simple.get):
    context.Process(target=serve, args=(take,), daemon=True).start()
executor, pool, threads = ProcessPoolExecutor(1, mp_context=context), context.Pool(1), ThreadPool(1)
executor.submit(int).result()
WAYS = {
    "executor": lambda name: executor.submit(touch, name).result(),
    "pool": lambda name: pool.apply(touch, (name,)),
    "pipe": lambda name: here.send(name),
    "queue": lambda name: queue.put(name),
    "simple": lambda name: simple.put(name),
    "threads": lambda name: threads.apply(len, (name,)),
}
class State(TypedDict):
    way: str
def work(state):
    globals()["WA" + "YS"][state["way"]](state["way"])  # by a name that nobody reads
    return {}
@tool
def get_order(order_id: str) -> str:
    "Read an order."
    raise SystemExit
build = StateGraph(State)
build.add_node("work", work)
build.add_node("tools", ToolNode([get_order]))
build.add_edge(START, "work")
build.add_edge("work", END)
tasks = [dreamgym_kit.Task(id=way, input={"way": way}) for way in WAYS]
result = dreamgym_kit.simulate(build.compile(name="handing"), tasks)
for way, hand in WAYS.items():
    hand(f"after-{way}")  # once the dream is over each of them works
reasons = {one.task: one.reason for one in RunDirectory.open(result.directory).episodes()}
print(json.dumps(reasons), flush=True)
sys.stdin.read()  # until all have come
pool.terminate()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="its processes are forks")
def test_no_earlier_process_gets_work_from_an_episode(tmp_path: Path) -> None:
    asked = [sys.executable, "-W", "ignore", "-c", SCRIPT]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(asked, cwd=tmp_path, **pipes) as process:
        reasons = json.loads(process.stdout.readline())
        ways = {"executor", "pipe", "pool", "queue", "simple"}
        wait_until(lambda: len([*tmp_path.glob("after-*")]) == len(ways), "work handed on after the dream")
        process.stdin.close()
    assert {way for way, reason in reasons.items() if "run work in another process" in reason} == ways
    assert not [way for way in ways if (tmp_path / way).exists()]
