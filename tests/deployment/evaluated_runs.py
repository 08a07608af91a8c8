"""Runs of an evaluation as `evaluate` leaves them, made without a model: outcomes are said, not tried."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from dreamgym_kit.rollout.rundir import Manifest, RunDirectory
from dreamgym_kit.rollout.tasks import tasks_digest
from dreamgym_kit.settings.schema import PolicySettings
from dreamgym_kit.types import (
    Answer,
    Call,
    Effect,
    Environment,
    Episode,
    Source,
    Split,
    Task,
    Transition,
    Verdict,
)

FAMILIES = ("refund", "address", "parcel")


def held_out_tasks(count: int = 30, *, split: Split = Split.HELD_OUT) -> list[Task]:
    return [
        Task(
            f"t{number:02d}",
            {"messages": []},
            environment=Environment("desk", number),
            split=split,
            meta={"family": FAMILIES[number % len(FAMILIES)]},
        )
        for number in range(count)
    ]


def model_double(folder: Path, content: str) -> Path:
    """A directory that looks like a model and is none; `content` tells it from others."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"model_type": "double"}')
    header = json.dumps({"__metadata__": {"double": content}}).encode("ascii")
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    (folder / "tokenizer.json").write_text("{}")
    return folder


def content_of(folder: Path) -> str:
    """What tells a double from others."""
    data = (folder / "model.safetensors").read_bytes()
    return str(json.loads(data[8:])["__metadata__"]["double"])


def evaluated_run(
    folder: Path,
    tasks: Sequence[Task],
    solved: Mapping[str, int],
    *,
    n: int = 4,
    weights: str = "",
    mode: str = "record",
    more: Mapping[str, object] | None = None,
    calls: Source | None = None,
) -> Path:
    """A run in which task `t` succeeded `solved[t]` times of `n`; `calls`: who answered one call of each."""
    said = asdict(PolicySettings(model="double"))
    matters = {
        "mode": mode,
        "graph": "agent:graph",
        "tasks": tasks_digest(tasks),
        "n": n,
        "seed": 0,
        "effects": {"look_up": "read", "refund_payment": "destructive"},
        "policy": {**said, "urls": [], "only_nodes": []},
        **({"weights": weights} if weights else {}),
        **(more or {}),
    }
    manifest = Manifest(run=folder.name, created_at=1.0, matters=matters, about={"tasks": len(tasks)})
    with RunDirectory.create(folder.parent, folder.name, manifest) as directory:
        journal = directory.journal()
        for task in tasks:
            for repeat in range(n):
                verdict = Verdict.PASSED if repeat < solved[task.id] else Verdict.FAILED
                journal.append(episode(task, repeat, verdict, calls))
        journal.close()
    return folder


def episode(task: Task, repeat: int, verdict: Verdict, calls: Source | None = None) -> Episode:
    name = f"{task.id}.{repeat + 1}"
    answer = Answer("paid", source=calls or Source.REAL)
    row = Transition(Call("look_up", {}), answer, Effect.READ, name, 1, task.environment)
    return Episode(
        id=f"{task.id}.{repeat + 1}",
        task=task.id,
        repeat=repeat + 1,
        environment=task.environment,
        verdict=verdict,
        reason="said",
        started_at=1.0,
        elapsed_s=1.0,
        transitions=(row,) if calls is not None else (),
    )
