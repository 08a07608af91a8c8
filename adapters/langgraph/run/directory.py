"""Which directory a run writes to, and what must be the same for it to be resumed."""

import importlib.metadata
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dreamgym_kit.adapters.langgraph.analysis.projects import PROJECT_FILE
from dreamgym_kit.adapters.langgraph.run.request import RunRequest, TrainRequest, name_of, name_of_part
from dreamgym_kit.adapters.models.named_models import learned_directory
from dreamgym_kit.dream.programs.rules_files import read_rules
from dreamgym_kit.errors import RunDirectoryError, StoreUnavailable, UserError
from dreamgym_kit.replay.masking import process_masker
from dreamgym_kit.report.gate_rules import gate_to_record
from dreamgym_kit.report.summary import Tally
from dreamgym_kit.rollout.budgets import RunBudget
from dreamgym_kit.rollout.engine import RunTotals
from dreamgym_kit.rollout.events import busy_seconds, read_events
from dreamgym_kit.rollout.rundir import EVENTS, TRAINING, Manifest, RunDirectory, new_run
from dreamgym_kit.rollout.tasks import tasks_digest
from dreamgym_kit.routing.router import Mode
from dreamgym_kit.serialization import JsonValue, to_json
from dreamgym_kit.settings.load import rules_folder
from dreamgym_kit.settings.schema import Settings, on_disk
from dreamgym_kit.types import Episode, Spend, Task, Verdict

SPENT = "spent"  # in the report's manifest
_FREE = ("steps", "eval_every", "eval_n", "eval_tasks", "eval_real", "keep", "report_to")
"""Of [train]; the rest matters."""


def run_directory(request: RunRequest, tasks: Sequence[Task]) -> AbstractContextManager[RunDirectory]:
    """Make the run's directory, or take it up again; one that nothing was written to is not left behind.

    Raises:
        UserError: it is in use, is there already, or is of a run that was asked for otherwise.
    """
    matters = _matters(request, tasks)
    if request.shard is not None:
        matters["shard"] = asdict(request.shard)
    return leg_directory(request, matters, lambda: _about(request, tasks))


@contextmanager
def leg_directory(
    request: RunRequest,
    matters: Mapping[str, Any],
    about: Callable[[], dict[str, Any]] = dict,
    *,
    kind: str = "",
    begun: str | None = None,
) -> Iterator[RunDirectory]:
    """Make the directory of a run's first leg, or take it up again for a later one; locked while held.

    One that nothing was written to is not left behind.

    Args:
        request: the leg.
        matters: what every leg must have in common.
        about: what else is written down of the first leg.
        kind: what a new directory is called after, before the graph: "train-", "s2r-".
        begun: a file in it that says that something was done, besides what the directory knows of itself.

    Raises:
        UserError: it is in use, is there already, or is of a run that was asked for otherwise.
    """
    started = datetime.now(UTC)
    masked: dict[str, Any] = process_masker().plain(dict(matters))
    if request.resume:
        if request.directory is None:
            raise UserError("to resume, name the run directory")
        manifest = Manifest(run="", created_at=started.timestamp(), matters=masked)
        directory = RunDirectory.resume(request.directory, manifest)
    else:
        root = request.settings.resolve(request.settings.runs)
        run, folder = new_run(root, kind + run_label(name_of(request.graph)), started.date())
        if request.directory is not None:
            root, folder = request.directory.parent, request.directory.name
        manifest = Manifest(run=run, created_at=started.timestamp(), matters=masked, about=about())
        directory = RunDirectory.create(root, folder, manifest)
    with directory:
        try:
            yield directory
        except BaseException:
            if not request.resume and not (begun and (directory.path / begun).exists()):
                directory.discard_unused()
            raise


def run_label(name: str) -> str:
    """What the run directory is called after: "sales" of langgraph.json:sales, "agent" of agent.py:graph."""
    path, colon, attribute = name.rpartition(":")
    if not colon or path.endswith(PROJECT_FILE):
        return attribute
    return Path(path).stem if path.endswith(".py") else path.rpartition(".")[2]


def _matters(request: RunRequest, tasks: Sequence[Task]) -> dict[str, Any]:
    """What a resumed run must have in common with its first leg; `tasks`: all of them, also of a shard."""
    settings = request.settings
    matters: dict[str, Any] = {
        "mode": request.kind,
        "graph": name_of(request.graph),
        "tasks": tasks_digest(tasks),
        "n": settings.simulate.repeats,
        "seed": settings.simulate.seed,
        "abstain": settings.simulate.on_unanswered,
        "threshold": settings.simulate.min_confidence,
        "steps": settings.limits.max_tool_calls,
        "recursion": settings.limits.recursion_limit,
        "tenant": settings.tenant,
        "effects": {tool: entry.effect.value for tool, entry in settings.tools.items()},
    }
    given = {"context": settings.context, "configurable": settings.configurable}
    matters |= {name: to_json(values) for name, values in given.items() if values}
    if request.mode is Mode.DREAM:
        matters |= _of_the_dream(settings)
    experience = settings.experience
    if request.mode is Mode.DREAM and learned_directory(settings) is not None:
        other = experience.no_reasoning_model if "reasoning" in settings.simulate.disable else None
        matters["learned"] = other or experience.dir
    if request.mode is Mode.DREAM and experience.urls and experience.model is not None:
        matters["endpoint_model"] = experience.model
        matters["endpoint_judge"] = experience.judge
        matters["endpoint_calibrate"] = experience.calibration_calls
    if settings.faults and (request.mode is Mode.DREAM or request.real_faults):
        matters["faults"] = {
            pattern: {**asdict(rule), "kinds": list(rule.kinds)} for pattern, rule in settings.faults.items()
        }
    if request.policy is not None:
        policy = settings.policy
        matters["policy"] = {
            **asdict(policy),
            "urls": list(policy.urls),
            "only_nodes": list(policy.only_nodes),
        }
    if request.weights:
        matters["weights"] = request.weights
    if request.judge is not None:
        matters["judge"] = name_of_part(request.judge)
    if request.experience is not None and not request.mode.bare:
        matters["experience"] = name_of_part(request.experience)
    return matters


def _of_the_dream(settings: Settings) -> dict[str, Any]:
    """Return the settings that decide how a dream answers, where they are set."""
    matters = {
        "without": list(settings.simulate.disable),
        "match": {tool: list(rule.ignore) for tool, rule in settings.match.items()},
        "imagine": settings.simulate.imagine,
        "imagine_tools": {
            tool: entry.imagine for tool, entry in settings.tools.items() if entry.imagine is not None
        },
        "rules": {tool: rule_file.text for tool, rule_file in read_rules(rules_folder(settings)).items()},
    }
    return {name: value for name, value in matters.items() if value}


def _about(request: RunRequest, tasks: Sequence[Task]) -> dict[str, Any]:
    return {
        **_made_with("langgraph", "langchain-core", "langchain"),
        "tasks": len(request.shard.part(tasks) if request.shard is not None else tasks),
        "concurrency": request.settings.simulate.concurrency,
        "recordings": _recordings(request),
        "record": request.record,
        "gate": gate_to_record(request.rules),
        "budget": {"calls": request.settings.budget.max_calls, "usd": request.settings.budget.max_usd},
    }


def _made_with(*packages: str) -> dict[str, Any]:
    versions = {}
    for package in ("dreamgym-kit", *packages):
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return {"versions": versions, "python": platform.python_version()}


def training_directory(
    request: TrainRequest, learn: Sequence[Task], held_out: Sequence[Task], model: Path
) -> AbstractContextManager[RunDirectory]:
    """`run_directory` of a training.

    Raises:
        UserError: there is something else at its place, or it was begun with other settings.
    """
    matters = _of_training(request, learn, model)
    return leg_directory(request, matters, lambda: _about_training(request, learn, held_out), kind="train-")


def _of_training(request: TrainRequest, learn: Sequence[Task], model: Path) -> dict[str, Any]:
    """What a resumed training must share with its first leg; the rollouts' own directory holds the rest."""
    settings = request.settings
    curriculum = {**on_disk(settings.curriculum), "judges": list(settings.curriculum.judges)}
    return {
        "mode": TRAINING,
        "graph": name_of(request.graph),
        "tools": request.mode.value,
        "policy": str(model),
        **({"served": settings.policy.model} if settings.policy.urls else {}),
        "temperature": settings.policy.temperature,
        "max_output": settings.policy.max_output,
        "only_nodes": list(settings.policy.only_nodes),
        "learned_from": tasks_digest(learn),
        "alarms": on_disk(settings.alarms),  # else a leg could silence what ended the one before
        **({"curriculum": curriculum} if settings.curriculum.enabled else {}),
        **({"judge": name_of_part(request.judge)} if request.judge is not None else {}),
        **({"experience": name_of_part(request.experience)} if request.experience is not None else {}),
        **{
            name: value
            for name, value in on_disk(settings.train).items()
            if name not in _FREE and (value or name != "imagined")  # which older trainings do not have
        },
    }


def _about_training(request: TrainRequest, learn: Sequence[Task], held_out: Sequence[Task]) -> dict[str, Any]:
    free = {name: value for name, value in on_disk(request.settings.train).items() if name in _FREE}
    return {
        **_made_with("langgraph", "torch", "transformers", "trl", "peft"),
        "tasks": len(learn),
        "held_out": len(held_out),
        "recordings": request.store.count() if request.store is not None else 0,
        "alarms": on_disk(request.settings.alarms),
        **{name: list(value) if isinstance(value, tuple) else value for name, value in free.items()},
    }


def _recordings(request: RunRequest) -> int | None:
    """How many the buffer held before; None while recording into one that cannot be asked.

    Its server is away, or another process brings it just now what waited.
    """
    try:
        return request.store.count() if request.store is not None else 0
    except (StoreUnavailable, RunDirectoryError):
        if request.mode is Mode.RECORD:
            return None
        raise


def count_earlier(directory: RunDirectory, budget: RunBudget, tally: Tally) -> list[Episode]:
    """A resumed run goes on with the counts and the budget that its earlier legs left.

    Gives the episodes that ended with an error: they are run again, and counted as what comes of that.
    """
    calls: float = 0
    usd = 0.0
    errors = []
    for episode in directory.episodes():
        if episode.verdict is Verdict.ERROR and not episode.executed:
            errors.append(episode)
        else:
            tally.add(episode)
        calls += len(episode.transitions)
        usd += episode.cost_usd
    manifest = (directory.read_report() or {}).get("manifest")
    usage = manifest.get(SPENT) if isinstance(manifest, dict) else None
    if isinstance(usage, dict):  # more than the journal has where episodes were cut: they run again
        calls, usd = max(calls, _number(usage.get("calls"))), max(usd, _number(usage.get("usd")))
    budget.count_earlier(calls=int(calls), usd=usd)
    return errors


def blocked_outside(directory: RunDirectory) -> list[JsonValue]:
    """Real calls that were blocked outside of any episode in this leg and earlier ones.

    The event log has those of a leg that was killed before its report.
    """
    manifest = (directory.read_report() or {}).get("manifest")
    strays = manifest.get("strays") if isinstance(manifest, dict) else None
    logged = [
        event.get("text")
        for event in read_events(directory.path / EVENTS)
        if event.get("event") == "violation" and event.get("episode") == ""
    ]
    return list(dict.fromkeys([*(strays if isinstance(strays, list) else ()), *logged]))


def spent(
    directory: RunDirectory, budget: RunBudget, totals: RunTotals, *, calibration: Spend
) -> dict[str, JsonValue]:
    """What all legs have spent, also on episodes that were cut; `count_earlier` finds it in the report.

    Args:
        directory: its event log has the time that each leg took.
        budget: hears of all calls where there is a limit; workers ask it for nothing else.
        totals: of the journal, without what was cut.
        calibration: part of the budget's dollars, which a resumed run counts from elsewhere.
    """
    return {
        "calls": max(budget.calls, totals.calls),
        "usd": round(max(budget.usd - calibration.cost_usd, totals.cost_usd), 9),
        "seconds": busy_seconds([directory.path / EVENTS]),
    }


def _number(value: object) -> float:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else 0
