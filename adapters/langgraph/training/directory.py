"""A training's run directory: what a resume must share with the first leg, and how it ended."""

import importlib.metadata
import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dreamgym_kit.adapters.langgraph.run.directory import leg_directory, run_label
from dreamgym_kit.adapters.langgraph.run.request import name_of, name_of_part
from dreamgym_kit.adapters.langgraph.training.types import TrainRequest
from dreamgym_kit.replay.masking import process_masker
from dreamgym_kit.report.training import MODE
from dreamgym_kit.rollout.rundir import RunDirectory
from dreamgym_kit.rollout.tasks import tasks_digest
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.settings.schema import CurriculumSettings, on_disk
from dreamgym_kit.training.plan import Trained
from dreamgym_kit.types import Task

_FREE = (
    "steps",
    "eval_every",
    "eval_n",
    "eval_tasks",
    "eval_real",
    "keep",
    "report_to",
)  # of [train]; the rest matters


@contextmanager
def training_directory(
    request: TrainRequest, learn: Sequence[Task], held_out: Sequence[Task], model: Path
) -> Iterator[RunDirectory]:
    """Make the directory, or take it up again; locked while it is held.

    Raises:
        UserError: there is something else at its place, or it was begun with other settings.
    """
    label = f"train-{run_label(name_of(request.graph))}"
    with leg_directory(
        request, label, _matters(request, learn, model), lambda: _about(request, learn, held_out)
    ) as directory:
        yield directory


def _matters(request: TrainRequest, learn: Sequence[Task], model: Path) -> dict[str, Any]:
    """What a resumed training must share with its first leg; the rollouts' own directory holds the rest."""
    settings = request.settings
    wanted = {name: value for name, value in on_disk(settings.train).items() if name not in _FREE}
    return {
        "mode": MODE,
        "graph": name_of(request.graph),
        "tools": request.mode.value,
        "policy": str(model),
        **({"served": settings.policy.model} if settings.policy.urls else {}),
        "temperature": settings.policy.temperature,
        "max_output": settings.policy.max_output,
        "only_nodes": list(settings.policy.only_nodes),
        "learned_from": tasks_digest(learn),
        "alarms": on_disk(settings.alarms),  # else a leg could silence what ended the one before
        **({"curriculum": _plain(settings.curriculum)} if settings.curriculum.enabled else {}),
        **({"judge": name_of_part(request.judge)} if request.judge is not None else {}),
        **({"experience": name_of_part(request.experience)} if request.experience is not None else {}),
        **wanted,
    }


def _plain(curriculum: CurriculumSettings) -> dict[str, Any]:
    return {**on_disk(curriculum), "judges": list(curriculum.judges)}


def _about(request: TrainRequest, learn: Sequence[Task], held_out: Sequence[Task]) -> dict[str, Any]:
    versions = {}
    for package in ("dreamgym-kit", "langgraph", "torch", "transformers", "trl", "peft"):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    free: Mapping[str, Any] = {
        name: value for name, value in on_disk(request.settings.train).items() if name in _FREE
    }
    return {
        "versions": versions,
        "python": platform.python_version(),
        "tasks": len(learn),
        "held_out": len(held_out),
        "recordings": request.store.count() if request.store is not None else 0,
        "alarms": on_disk(request.settings.alarms),
        **{name: list(value) if isinstance(value, tuple) else value for name, value in free.items()},
    }


def goes_on(directory: RunDirectory, *, planned: int) -> None:
    """A leg begins: the end of an earlier one is no end any more. One that is refused leaves it as it is."""
    directory.write_report({"kind": MODE, "planned": planned})


def write_report(
    directory: RunDirectory, trained: Trained, *, planned: int, servers: Sequence[JsonValue]
) -> None:
    """Write down how it ended, without secrets; `servers`: what each counted in this leg."""
    alarm, weights = trained.alarm, trained.weights
    directory.write_report(
        {
            "kind": MODE,
            "kept": trained.checkpoint,
            "weights": None if weights is None else str(weights.relative_to(directory.path)),
            "alarm": None
            if alarm is None
            else {
                "alarm": alarm.alarm,
                "text": process_masker().text(alarm.text),
                "step": alarm.step,
            },
            "stopped": trained.stopped,
            "planned": planned,
            **({"servers": process_masker().plain(list(servers))} if servers else {}),
        }
    )
