"""Runs whose episodes run in worker processes: the spec and the host of the workers, and the worker itself.

The driver makes the spec and starts the host. A worker (`open_worker`) builds the same graph, interceptor,
egress guard and dream as a run in one process, from the spec. Its process installs interceptor and guard
before it imports the agent's module.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dreamgym_kit.adapters.engines.processes import Processes
from dreamgym_kit.adapters.engines.ray_cluster import RayHost, checked_address
from dreamgym_kit.adapters.langgraph.episode.runner import Run
from dreamgym_kit.adapters.langgraph.run.experiences import answer_sources
from dreamgym_kit.adapters.langgraph.run.request import RunRequest, name_of
from dreamgym_kit.adapters.langgraph.run.setup import gated_process, prepared
from dreamgym_kit.adapters.models.local import LocalPolicy, open_local
from dreamgym_kit.adapters.models.named_models import NamedPolicy, opened_policy
from dreamgym_kit.adapters.models.remote import RemotePolicy, open_remote
from dreamgym_kit.adapters.stores.factory import address_of, opened_again
from dreamgym_kit.adapters.stores.outbox import BufferedStore
from dreamgym_kit.deployment.model_files import model_digest
from dreamgym_kit.dream.calibration import ReasonedTrial
from dreamgym_kit.dream.chain import ChainedExperience
from dreamgym_kit.errors import EndpointError, UserError, require_extra
from dreamgym_kit.guard import egress
from dreamgym_kit.interfaces import ChatEndpoint, EventSink, PolicyServer, TransitionStore, WorkerHost
from dreamgym_kit.rollout.budgets import RunBudget
from dreamgym_kit.rollout.distributed import DistributedRunner
from dreamgym_kit.rollout.engine import GRACE_S, LATE_WRITE_S
from dreamgym_kit.rollout.events import FanOut
from dreamgym_kit.rollout.jobs import WorkerReports
from dreamgym_kit.rollout.stop import StopSwitch
from dreamgym_kit.rollout.tasks import TASKS
from dreamgym_kit.rollout.worker import WorkerContext, WorkerEvents
from dreamgym_kit.rollout.worker_protocol import WorkerSpec
from dreamgym_kit.routing.process import PROCESS
from dreamgym_kit.routing.router import Mode
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.settings.load import parse_settings
from dreamgym_kit.settings.render import render_settings
from dreamgym_kit.settings.schema import Settings, WorkersSettings
from dreamgym_kit.turns import Turn
from dreamgym_kit.types import Episode, Task

OPENER = "dreamgym_kit.adapters.langgraph.run.workers:open_worker"


def check_engine(settings: WorkersSettings) -> None:
    """Refuse an unusable engine before the run creates anything. Starts no worker and joins no cluster.

    Raises:
        MissingExtra: Ray is not installed.
        UserError: there is no such engine, or its address cannot be used.
    """
    if settings.backend == "ray":
        require_extra("ray", needed_by='workers.backend = "ray"')
        checked_address(settings.address)
        return
    if settings.backend != "local":
        raise UserError(f"workers.backend: unknown engine {settings.backend!a}. Use local or ray.")
    if settings.address is not None:
        raise UserError(
            f'workers.address = "{settings.address}" needs workers.backend = "ray", which is "local". '
            "Nothing was run."
        )


def host_of(settings: WorkersSettings, workers: int) -> WorkerHost:
    """Give the host that starts the workers. Raises as `check_engine`."""
    check_engine(settings)
    return RayHost(workers, address=settings.address) if settings.backend == "ray" else Processes()


def check_worker_compatible(request: RunRequest, *, learns: bool = False) -> None:
    """Refuse an unusable engine, and objects of this process that cannot be sent to a worker.

    `learns`: the weights of the policy change.

    Raises:
        UserError: names the object and the remedy.
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
            f"a graph object ({name_of(request.graph)}) cannot be sent "
            'to them. Name it as "module:attribute", or run without workers.'
        )
    elif objects:
        problem = f"{objects[0]} is an object of this process. Use settings for it, or run without workers."
    elif request.mode is Mode.S2R:
        problem = "supervised real calls stay in this one. Run without workers."
    elif request.policy is not None and not isinstance(request.policy, sendable):
        problem = (
            f"the policy ({type(request.policy).__name__}) is an object of this process. Name a "
            "model directory instead, or run without workers."
        )
    if problem:
        raise UserError(f"workers run in separate processes, and {problem} Nothing was run.")
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
    """Give the arguments of `open_worker`: names and numbers, no secrets."""
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
        "evaluates": request.evaluates,
        "real_faults": request.real_faults,
        "trials": [[trial.form, trial.confidence, trial.exact] for trial in trials],
    }


def weights_of(policy: ChatEndpoint | None) -> dict[str, Any] | None:
    """Describe the weights that a policy serves now, for its workers; None if they never change."""
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
    """Make the runner that runs the episodes in workers, as the settings say; it is not started.

    `at_once`: concurrent episodes, if other than `simulate.concurrency`.
    """
    settings = request.settings
    at_once = at_once or settings.simulate.concurrency
    workers = min(settings.workers.elsewhere, at_once)  # more would be idle
    spec = WorkerSpec(
        OPENER,
        given,
        lanes=-(-at_once // workers),
        limit_s=settings.limits.max_seconds
        + GRACE_S
        + (LATE_WRITE_S if request.mode is Mode.RECORD else 0.0),
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
            f"only {workers} of {settings.workers.count} workers ran: at most {at_once} episodes run at once "
            "(simulate.concurrency)."
        ] = None
    return runner


def take_added(store: TransitionStore | None, reports: WorkerReports) -> None:
    """Count the recordings that workers added to the buffer as added by this process."""
    if isinstance(store, BufferedStore):
        store.added += sum(last.get("added", 0) for last in reports.last)


@asynccontextmanager
async def open_worker(
    given: Mapping[str, Any], events: EventSink, budget: RunBudget
) -> AsyncIterator[WorkerContext]:
    """Open what `given` says (see `worker_facts`); implements `rollout.worker.Opener`.

    Raises:
        UserError: graph, tasks, settings, buffer or policy cannot be used here.
    """
    settings, folder = settings_of(given), Path(given["folder"])
    tasks = [TASKS.read(task) for task in given["tasks"]]
    async with AsyncExitStack() as stack:
        store = stack.enter_context(opened_again(given["store"], settings))
        policy = stack.enter_context(_policy(given, settings))
        if isinstance(policy, RemotePolicy) and given["learns"] is not None:
            await policy.follow(given["learns"]["served"])
        request = RunRequest(
            graph=given["graph"],
            tasks=tasks,
            settings=settings,
            mode=Mode(given["mode"]),
            store=store,
            policy=policy,
            trains=given["trains"],
            evaluates=given["evaluates"],
            real_faults=given["real_faults"],
        )
        warnings = stack.enter_context(gated_process(request, folder))
        made = await prepared(stack, request, tasks, budget)
        trials = [ReasonedTrial(*trial) for trial in given["trials"]]
        made.sources = await answer_sources(stack, request, made.facts.specs(), budget, None, trials=trials)
        here = _Here(
            made=made,
            events=FanOut([events], made.masker),
            on_executed=events.executed if isinstance(events, WorkerEvents) else None,
            warnings=[made.masker.text(warning) for warning in warnings],
        )
        here.begin(given["label"], given["seed"], "")
        yield here


@contextmanager
def _policy(given: Mapping[str, Any], settings: Settings) -> Iterator[ChatEndpoint | None]:
    """Open the policy: by name, or, while it is trained, with the weights that the driver uses now."""
    learns = given["learns"]
    if learns is None:
        with opened_policy(given["policy"], settings) as named:
            yield named
        return
    if "served" in learns:
        source, most = settings.where("policy", "urls"), settings.alarms.stale_weights
        with closing(open_remote(settings.policy, source=source, most=most)) as remote:
            yield remote
        return
    opened = open_local(attested(learns), version=learns["version"], lockstep=True, device=learns["device"])
    with closing(opened) as local:
        yield local


def attested(message: Mapping[str, Any]) -> Path:
    """Give the driver's directory of weights, after checking its digest.

    Raises:
        UserError: the directory is missing or holds other weights.
    """
    weights = Path(message["weights"])
    try:
        digest = model_digest(weights)
    except (OSError, UserError) as error:
        raise UserError(
            f"{weights}: a worker cannot read these weights ({error}). Put the run directory on a file "
            "system that all workers can read."
        ) from None
    if digest != message["digest"]:
        raise UserError(
            f"{weights}: a worker reads other weights here than the driver serves. Put the run "
            "directory on a file system that all workers can read."
        )
    return weights


def settings_of(given: Mapping[str, Any]) -> Settings:
    """Give the driver's settings without workers: a worker starts none of its own."""
    path = Path(given["settings_path"]) if given["settings_path"] else None
    settings = parse_settings(given["settings"], path=path)
    return settings.with_overrides({"workers.backend": "local", "workers.count": 0})


@dataclass(kw_only=True)
class _Here(WorkerContext):
    """An open worker."""

    runner: Run = field(init=False)
    made: Run
    events: EventSink
    on_executed: Callable[[Episode], None] | None

    def __post_init__(self) -> None:
        self._turns: dict[str, tuple[Turn, ...]] = {}
        self._gone: list[EndpointError] = []
        self._admitted: dict[str, Task] = {}

    def begin(self, label: str, seed: int, scope: str) -> None:
        """Use this label and seed for the next episodes."""
        policy = self.made.policy
        if policy is not None and scope:
            policy = replace(policy, seed=seed, scope=scope, announced={}, gone=self._gone.append)
        self._gone.clear()
        self.runner = replace(
            self.made,
            events=self.events,
            label=label,
            seed=seed,
            policy=policy,
            on_turns=self._turns.__setitem__,
            on_executed=self.on_executed,
        )

    def report(self, episode: str) -> dict[str, Any]:
        """See `WorkerContext.report`."""
        gone = self._gone[0] if self._gone else None
        return {
            "turns": self._turns.pop(episode, ()),
            "gone": () if gone is None else (gone.kind, self.made.masker.text(str(gone))),
            **self._strays_and_notes(),
        }

    def _strays_and_notes(self) -> dict[str, tuple[str, ...]]:
        strays, policy = PROCESS.stray_calls(once=True), self.made.policy
        notes, mask = policy.notes if policy is not None else (), self.made.masker.text
        return {"strays": tuple(map(mask, strays)), "notes": tuple(map(mask, notes))}

    async def prepare(self, message: Mapping[str, Any]) -> None:
        """See `WorkerContext.prepare`.

        Raises:
            UserError: the weights cannot be read here, or a task cannot be run.
        """
        server, weights = self.made.request.policy, message["weights"]
        if weights is not None and isinstance(server, RemotePolicy):
            await server.follow(weights["served"])  # it may have been restarted
        elif (
            weights is not None and isinstance(server, PolicyServer) and server.version != weights["version"]
        ):
            with egress.exempt():  # the kit's own files
                await server.load(attested(weights), weights["version"])
        elif weights is not None and not isinstance(server, PolicyServer):
            raise UserError(
                "this worker has no policy with changeable weights. Name a model directory as the policy."
            )
        tasks = [TASKS.read(task) for task in message["tasks"]]
        new = [task for task in tasks if self._admitted.get(task.id) != task]
        self.made.admit(new)  # only once: a checker is created each time, and may keep state
        self._admitted |= {task.id: task for task in new}
        self.begin(message["label"], message["seed"], message["scope"])

    def last(self) -> dict[str, JsonValue]:
        """See `WorkerContext.last`."""
        first, store = self.made.sources.recorded, self.made.request.store
        last: dict[str, JsonValue] = {**self._strays_and_notes()}
        if isinstance(store, BufferedStore):
            last["added"] = store.added
        if isinstance(first, ChainedExperience):
            points = first.programs.curve(self.made.request.settings.tenant)
            last["curve"] = [[point.threshold, point.answered, point.exact] for point in points]
        return last
