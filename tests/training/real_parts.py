"""A small agent with a tiny policy, trained by the real parts: engine, capture, TRL, the loop."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from nano_double import write_double
from warm import TRAINERS, shared

AGENT = '''
import zlib
from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_core.language_models import GenericFakeChatModel

@tool
def get_order(order_id: str) -> str:
    """Read an order."""
    raise SystemExit("a real tool ran")

class Model(GenericFakeChatModel):
    def bind_tools(self, tools, **kwargs):
        return self

graph = create_agent(Model(messages=iter(())), [get_order])

def check(outcome):
    return zlib.crc32(str(outcome.messages[-1]["content"]).encode()) % 3 == 0
'''
SETTINGS = """
graph = "agent.py:graph"
tasks = "tasks.jsonl"
[tools.get_order]
effect = "read"
[policy]
model = "policy"
max_output = 12
[train]
tasks_per_step = 3
group_size = 4
steps = 5
eval_every = 2
eval_n = 2
lr = 0.001
[checkers]
odd = "agent:check"
"""

OPEN_GATE = """\
[s2r]
max_calls = 50
preflight_pass_rate_low = 0.0
preflight_coverage = 0.0
canaries = 2
canary_low = 0.0
rate = 0.0
"""


def project(folder: Path) -> Path:
    """An agent, its tasks and a policy that says random words."""
    (folder / "agent.py").write_text(AGENT)
    (folder / "dreamgym.toml").write_text(SETTINGS)
    tasks = [
        {
            "id": f"{split}-{number}",
            "input": f"What of order O{number}?",
            "checker": "odd",
            "split": split,
        }
        for split, count in (("train", 6), ("held_out", 3))
        for number in range(count)
    ]
    (folder / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
    write_double(folder / "policy")
    return folder


def command(folder: Path, *arguments: str) -> list[str]:
    return [str(Path(sys.executable).with_name("dreamgym-kit")), *arguments]


def environment(**more: str) -> dict[str, str]:
    """This process's own, without what names a vLLM to the tests: commands would take it for a setting."""
    known = {name: value for name, value in os.environ.items() if not name.startswith("DREAMGYM_VLLM")}
    return {**known, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "COLUMNS": "200", **more}


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a copy of a process that has the trainers imported, which takes eight seconds."""
    return shared(*TRAINERS).run(arguments, folder, environment(), within_s=600)


def finished(folder: Path, started: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        started,
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def hears_ctrl_c() -> None:
    """To be called in a new process: a job that a shell put into the background ignores SIGINT."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def begun(
    asked: Sequence[str], folder: Path, variables: Mapping[str, str]
) -> Iterator[subprocess.Popen[str]]:
    """A command in a session of its own; what is left of it and of its children ends with the block."""
    with subprocess.Popen(
        asked,
        cwd=folder,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=hears_ctrl_c,
    ) as process:
        try:
            yield process
        finally:
            with suppress(psutil.NoSuchProcess):  # some lead a session of their own
                for one in psutil.Process(process.pid).children(recursive=True):
                    with suppress(psutil.NoSuchProcess):
                        one.kill()
            with suppress(ProcessLookupError):  # also where the command itself has ended
                os.killpg(process.pid, signal.SIGKILL)
