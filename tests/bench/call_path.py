"""Which functions of the kit one recorded call goes through, in a dream as `simulate` makes it.

Counted with `sys.setprofile` between the entry of `tool.invoke` and its return, at the fifth of five equal
calls of a small agent whose call was recorded once: each entry into a function whose source lies in the kit,
comprehensions too; a generator or coroutine once, however often it is resumed.
"""

import importlib
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import dreamgym_kit
from dreamgym_kit.rollout.rundir import RunDirectory
from dreamgym_kit.settings.load import load_settings
from dreamgym_kit.types import Source

ROOT = dreamgym_kit.__path__[0] + "/"
CALLS = 5
AGENT = '''"""An agent whose node calls one tool several times with equal arguments."""

from contextlib import nullcontext

from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph

GIVEN = {"customer": "Ada Byron", "limit": 20}
calls, last_call = 1, nullcontext()  # how many, and what is put around the last of them


@tool
def list_orders(customer: str, limit: int) -> str:
    """List the orders of a customer."""
    return f"{customer} has 2 orders: 7 (open), 9 (paid)"


def work(state):
    for number in range(calls):
        call = {"type": "tool_call", "name": "list_orders", "args": GIVEN, "id": f"call-{number}"}
        with last_call if number == calls - 1 else nullcontext():
            list_orders.invoke(call)


builder = StateGraph(MessagesState)
builder.add_node("work", work)
builder.add_edge(START, "work")
graph = builder.compile()
'''
SETTINGS = """graph = "call_path_agent:graph"
tasks = "tasks.jsonl"

[tools]
list_orders = "read"
"""
TASKS = '{"id": "orders", "input": "List the orders of Ada Byron."}\n'
FILES = {"call_path_agent.py": AGENT, "dreamgym.toml": SETTINGS, "tasks.jsonl": TASKS}


@contextmanager
def counting(entered: list[CodeType]) -> Iterator[None]:
    """Add each entry into a function of the kit, in the thread that enters the block.

    What counts is made inside the block: the gate looks into the user's functions of before.
    """
    frames: dict[int, FrameType] = {}  # kept, so that no two of them have one id

    def event(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and id(frame) not in frames and frame.f_code.co_filename.startswith(ROOT):
            frames[id(frame)] = frame
            entered.append(frame.f_code)

    sys.setprofile(event)
    try:
        yield
    finally:
        sys.setprofile(None)


def measure(seed: int) -> list[tuple[str, float, str]]:
    """Figures for the bench runner. Nothing is drawn by chance: the seed changes nothing."""
    entered = call_path()
    by_file = Counter(code.co_filename.removeprefix(ROOT) for code in entered)
    for file, count in by_file.most_common():
        print(f"{count:>4}  {file}", file=sys.stderr)
    return [("calls", len(entered), "calls"), ("files", len(by_file), "files")]


def call_path() -> list[CodeType]:
    """The kit's functions that one warm recorded call enters, in order.

    Raises:
        RuntimeError: the call was not answered from its recording.
    """
    entered: list[CodeType] = []
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root)
        for name, text in FILES.items():
            (folder / name).write_text(text)
        settings = load_settings(file=folder / "dreamgym.toml", environ={})
        sys.path.insert(0, root)
        try:
            dreamgym_kit.record(settings.graph, folder / "tasks.jsonl", settings=settings)
            agent: Any = importlib.import_module("call_path_agent")
            agent.calls, agent.last_call = CALLS, counting(entered)
            done = dreamgym_kit.simulate(settings.graph, folder / "tasks.jsonl", settings=settings)
        finally:
            sys.path.remove(root)
            sys.modules.pop("call_path_agent", None)
        (episode,) = RunDirectory.open(done.directory).episodes()
    sources = [entry.answer.source for entry in episode.transitions]
    if sources != [Source.RECORDED] * CALLS:
        raise RuntimeError(f"the calls were answered from {sources}: {episode.reason}")
    return entered
