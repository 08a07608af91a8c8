"""The driver's side of a run whose episodes run in workers: the spec that they are opened with, and where."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dreamgym_kit.adapters.engines.processes import Processes
from dreamgym_kit.adapters.engines.ray_cluster import checked_address
from dreamgym_kit.adapters.engines.ray_workers import RayHost
from dreamgym_kit.adapters.langgraph.run.request import RunRequest, name_of
from dreamgym_kit.adapters.models.local import LocalPolicy
from dreamgym_kit.adapters.models.named_models import NamedPolicy
from dreamgym_kit.adapters.models.remote import RemotePolicy
from dreamgym_kit.adapters.stores.factory import address_of
from dreamgym_kit.adapters.stores.outbox import BufferedStore
from dreamgym_kit.deployment.model_files import model_digest
from dreamgym_kit.dream.calibration import ReasonedTrial
from dreamgym_kit.errors import UserError, require_extra
from dreamgym_kit.guard import egress
from dreamgym_kit.interfaces import ChatEndpoint, EventSink, TransitionStore, WorkerHost
from dreamgym_kit.rollout.budgets import RunBudget
from dreamgym_kit.rollout.distributed import DistributedRunner
from dreamgym_kit.rollout.engine import GRACE_S, LATE_WRITE_S
from dreamgym_kit.rollout.jobs import WorkerReports
from dreamgym_kit.rollout.stop import StopSwitch
from dreamgym_kit.rollout.tasks import TASKS
from dreamgym_kit.rollout.worker import kit_version
from dreamgym_kit.rollout.worker_protocol import WorkerSpec
from dreamgym_kit.routing.router import Mode
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.settings.render import render_settings
from dreamgym_kit.settings.schema import WorkersSettings
from dreamgym_kit.types import Episode, Task

OPENER = "dreamgym_kit.adapters.langgraph.run.worker:open_worker"


def check_engine(settings: WorkersSettings) -> None:
    """Refuse an engine that cannot be used as it was said, before anything is made; starts and joins nothing.

    Raises:
        MissingExtra: Ray is not installed.
        UserError: there is no such engine, or its address cannot be used.
    """
    if settings.backend == "ray":
        require_extra("ray", needed_by='workers.backend = "ray"')
        checked_address(settings.address)
        return
    if settings.backend != "local":
        raise UserError(f"workers.backend: there is no engine {settings.backend!a}; known: local, ray.")
    if settings.address is not None:
        raise UserError(
            f'workers.address = "{settings.address}": is for workers.backend = "ray", and this is local. '
            "Nothing was run."
        )


def host_of(settings: WorkersSettings, workers: int) -> WorkerHost:
    """Where so many workers are started. Raises as `check_engine`."""
    check_engine(settings)
    return RayHost(workers, address=settings.address) if settings.backend == "ray" else Processes()


def check_worker_compatible(request: RunRequest, *, learns: bool = False) -> None:
    """Refuse an engine that cannot be used, and what workers cannot be told of: objects of this process.

    `learns`: the weights of the policy change.

    Raises:
        UserError: names what it is, and what to do.
    """
    check_engine(request.settings.workers)
    if not request.settings.workers.elsewhere:
        return
    sendable = (NamedPolicy, LocalPolicy, RemotePolicy) if learns else (NamedPolicy,)
    parts = (("experience", request.experience), ("judge", request.judge))
    objects = [f"{name} ({type(part).__name__})" for name, part in parts if part is not None]
    problem = ""
    if not isinstance(request.graph, str):
        problem = (
            f"a graph that was given as an object ({name_of(request.graph)}) cannot be sent "
            'there; name it as "module:attribute", or leave workers out.'
        )
    elif objects:
        problem = (
            f"{objects[0]} is an object of this one; leave workers out, or have settings name what it does."
        )
    elif request.mode is Mode.S2R:
        problem = "overseen real calls stay in one; leave workers out."
    elif request.policy is not None and not isinstance(request.policy, sendable):
        problem = (
            f"the policy ({type(request.policy).__name__}) is an object of this one; name a "
            "model directory instead, or leave workers out."
        )
    if problem:
        raise UserError(f"workers run in processes of their own, and {problem} Nothing was run.")
    if request.store is not None:
        address_of(request.store)


def worker_facts(
    request: RunRequest,
    tasks: Sequence[Task],
    *,
    folder: Path,
    label: str,
    seed: int,
    trials: Sequence[ReasonedTrial],
) -> dict[str, Any]:
    """What `worker.open_worker` is given: names and numbers, no secret."""
    settings = request.settings
    store: JsonValue = None
    if request.store is not None:
        store = {"address": address_of(request.store), "write": request.mode is Mode.RECORD}
    return {
        "graph": request.graph,
        "tasks": [TASKS.write(task) for task in tasks],
        "settings": render_settings(settings),
        "settings_path": str(settings.path) if settings.path is not None else None,
        "mode": request.mode.value,
        "store": store,
        "policy": request.policy.name if isinstance(request.policy, NamedPolicy) else None,
        "learns": weights_of(request.policy),
        "folder": str(folder.absolute()),
        "label": label,
        "seed": seed,
        "trains": request.trains,
        "real_faults": request.real_faults,
        "trials": [[trial.form, trial.confidence, trial.exact] for trial in trials],
    }


def weights_of(policy: ChatEndpoint | None) -> dict[str, Any] | None:
    """What a policy serves now, for workers that serve or are served the same; None: its weights stay."""
    if isinstance(policy, RemotePolicy):
        return {"version": policy.version, "served": policy.spec()}
    if not isinstance(policy, LocalPolicy):
        return None
    weights = policy.weights.absolute()
    with egress.exempt():
        digest = model_digest(weights)
    return {
        "weights": str(weights),
        "version": policy.version,
        "digest": digest,
        "device": policy.device,
    }


def distributed(
    request: RunRequest,
    given: dict[str, Any],
    *,
    budget: RunBudget,
    events: EventSink,
    stop: StopSwitch,
    at_once: int | None = None,
    on_executed: Callable[[Episode], None] = lambda _: None,
) -> DistributedRunner:
    """What runs the episodes in workers, as settings want them; not begun yet.

    `at_once`: episodes, where that is not what settings say.
    """
    settings = request.settings
    at_once = at_once or settings.simulate.concurrency
    workers = min(settings.workers.elsewhere, at_once)  # others would have nothing to do
    spec = WorkerSpec(
        OPENER,
        given,
        lanes=-(-at_once // workers),
        limit_s=settings.limits.max_seconds
        + GRACE_S
        + (LATE_WRITE_S if request.mode is Mode.RECORD else 0.0),
        calls_limit=budget.limits[0],
        usd_limit=budget.limits[1],
        kit=kit_version(),
    )
    runner = DistributedRunner(
        host_of(settings.workers, workers),
        spec,
        workers=workers,
        budget=budget,
        events=events,
        stop=stop,
        repeatable=request.mode is Mode.DREAM,
        on_executed=on_executed,
    )
    if settings.workers.count > workers:
        runner.reports.warnings[
            f"of {settings.workers.count} workers {workers} ran: episodes at once are {at_once} at most "
            "(simulate.concurrency)."
        ] = None
    return runner


def take_added(store: TransitionStore | None, reports: WorkerReports) -> None:
    """Count what workers put into the buffer as put by this process."""
    if isinstance(store, BufferedStore):
        store.added += sum(last.get("added", 0) for last in reports.last)
