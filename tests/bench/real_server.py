"""A real vLLM with the shipped nano experience model, and the desk's dream asked of it: for other benches.

The model is asked for whole decisions (`[experience]`), by prompts as any open world model gets them. Of
those a model of 350,000 parameters that learned the desk's words understands nothing: what it says is held to
the schema and is of no use, and the agent is told an error. What is measured is the traffic.
"""

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from served.starter import EXPERIENCE, KEY, POLICY, PROGRAM, launched, started

from dreamgym_kit.adapters.langgraph.run.api import simulate
from dreamgym_kit.adapters.models.vllm.launch import Role, VllmServer
from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.recipes.desk.graph import simple_graph
from dreamgym_kit.recipes.desk.record import RECORDINGS_FILE, SETTINGS_FILE
from dreamgym_kit.recipes.desk.tasks import drawn_tasks
from dreamgym_kit.replay.transfer import import_jsonl
from dreamgym_kit.settings.load import load_settings
from dreamgym_kit.types import Split

_CONTEXT = 16_384  # its own is 2,048 tokens, nearly letters: less than the rules and a few calls
_LONG = (
    "--hf-overrides",
    json.dumps({"max_position_embeddings": _CONTEXT}),
    "--max-model-len",
    str(_CONTEXT),
)


class NoServer(Exception):
    """There is no vLLM here, and there need not be one."""

    skips = True


@contextmanager
def experience_server() -> Iterator[VllmServer]:
    """The server, ready."""
    if not os.environ.get(PROGRAM):
        raise NoServer(f"set ${PROGRAM} to the path of vLLM's program")
    launch = launched(Role.EXPERIENCE, EXPERIENCE, name="experience", more=_LONG)
    with tempfile.TemporaryDirectory() as scratch, started(launch, Path(scratch) / "server.log") as server:
        yield server


def simulated(
    server: VllmServer, *, tasks: int, n: int, seed: int, policy: Path | None = POLICY, **changed: Any
) -> Any:
    """A dry run of the desk in worlds without recordings; without a policy its agent is scripted."""
    os.environ["VLLM_API_KEY"] = KEY
    asked = {
        "experience.urls": [f"{server.launch.url}/v1"],
        "experience.model": server.launch.name,
        "experience.key_env": "VLLM_API_KEY",
        "experience.calibration_calls": 0,
        "experience.judge": False,
        "experience.max_output": 96,
        "simulate.on_unanswered": "error",
        "simulate.seed": seed,
        "simulate.concurrency": 8,
        "policy.temperature": 1.0,
        "policy.max_output": 120,
    }
    settings = load_settings(file=SETTINGS_FILE, environ={}).with_overrides(asked | changed)
    store = MemoryStore()
    import_jsonl(RECORDINGS_FILE, store)
    with tempfile.TemporaryDirectory() as scratch:
        return simulate(
            simple_graph(),
            drawn_tasks(tasks, split=Split.HELD_OUT, seed=seed),
            settings=settings,
            buffer=store,
            policy=policy,
            repeats=n,
            run_dir=Path(scratch) / "run",
        )
