"""A worker's side of a run: the same graph, gate, guard and dream as in one process, over what a spec says.

Named as the opener in the spec of a run's workers; imported in a process of its own, which dreams from its
first moment on: gate and guard stand before the agent's module is imported.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dreamgym_kit.adapters.langgraph.analysis.references import (
    check_expectations,
    check_inputs,
    checkers_of,
    environment_providers,
)
from dreamgym_kit.adapters.langgraph.episode.runner import LangGraphRunner
from dreamgym_kit.adapters.langgraph.policy.loading import policy_of
from dreamgym_kit.adapters.langgraph.run.request import RunRequest
from dreamgym_kit.adapters.langgraph.run.setup import (
    AnswerSources,
    PreparedGraph,
    answering,
    gated_process,
    prepared,
    runner_of,
)
from dreamgym_kit.adapters.langgraph.training.capture import ModelPolicy
from dreamgym_kit.adapters.models.named_models import opened_policy
from dreamgym_kit.adapters.models.remote import RemotePolicy, open_remote
from dreamgym_kit.adapters.stores.buffered_store import BufferedStore
from dreamgym_kit.adapters.stores.factory import opened_again
from dreamgym_kit.deployment.digests import model_digest
from dreamgym_kit.dream.chain import ChainedExperience
from dreamgym_kit.dream.llm_calibration import ReasonedTrial
from dreamgym_kit.errors import EndpointError, UserError
from dreamgym_kit.guard import egress
from dreamgym_kit.interfaces import ChatEndpoint, EventSink, PolicyServer
from dreamgym_kit.rollout.budgets import Budget
from dreamgym_kit.rollout.events import FanOut
from dreamgym_kit.rollout.tasks import task_from_record
from dreamgym_kit.rollout.worker import Heard, WorkerContext
from dreamgym_kit.routing.process import PROCESS
from dreamgym_kit.routing.router import Mode
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.settings.load import parse_settings
from dreamgym_kit.settings.schema import Settings
from dreamgym_kit.turns import Turn
from dreamgym_kit.types import Episode, Task


@asynccontextmanager
async def open_worker(
    given: Mapping[str, Any], events: EventSink, budget: Budget
) -> AsyncIterator[WorkerContext]:
    """Open what `given` says (see `worker_spec.worker_facts`); implements `rollout.worker.Opener`.

    Raises:
        UserError: graph, tasks, settings, buffer or policy cannot be used here.
    """
    settings, folder = settings_of(given), Path(given["folder"])
    tasks = [task_from_record(task, source="tasks") for task in given["tasks"]]
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
            real_faults=given["real_faults"],
        )
        warnings = stack.enter_context(gated_process(request, folder))
        ready = await prepared(stack, request, tasks)
        trials = [ReasonedTrial(*trial) for trial in given["trials"]]
        sources = await answering(stack, request, ready.facts, None, budget, known=trials)
        at_once = events.executed if isinstance(events, Heard) else None
        here = _Here(request, ready, sources, FanOut([events], ready.masker), budget, given, at_once)
        yield here.workplace(warnings)


@contextmanager
def _policy(given: Mapping[str, Any], settings: Settings) -> Iterator[ChatEndpoint | None]:
    """The policy by its name; or, where it learns, the weights that the driver serves now, or is served."""
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
    from dreamgym_kit.adapters.models.local import open_local

    weights = attested(learns)
    with closing(
        open_local(weights, version=learns["version"], lockstep=True, device=learns["device"])
    ) as local:
        yield local


def attested(message: Mapping[str, Any]) -> Path:
    """The folder of weights that the driver means.

    Raises:
        UserError: it is not there, or holds others.
    """
    weights = Path(message["weights"])
    try:
        digest = model_digest(weights)
    except (OSError, UserError) as error:
        raise UserError(
            f"{weights}: a worker cannot read these weights ({error}); keep the run directory on a file "
            "system that all workers see."
        ) from None
    if digest != message["digest"]:
        raise UserError(f"{weights}: a worker finds other weights there than the driver serves.")
    return weights


def settings_of(given: Mapping[str, Any]) -> Settings:
    """The driver's settings; episodes are run here, and given to nobody else."""
    path = Path(given["settings_path"]) if given["settings_path"] else None
    settings = parse_settings(given["settings"], path=path)
    return settings.with_overrides({"workers.backend": "local", "workers.count": 0})


@dataclass(slots=True)
class _Here:
    """What a worker holds while it is open."""

    request: RunRequest
    ready: PreparedGraph
    sources: AnswerSources
    events: EventSink
    budget: Budget
    given: Mapping[str, Any]
    on_executed: Callable[[Episode], None] | None = None
    turns: dict[str, tuple[Turn, ...]] = field(default_factory=dict)
    gone: list[EndpointError] = field(default_factory=list)
    policy: ModelPolicy | None = None
    runner: LangGraphRunner | None = None

    def workplace(self, warnings: Sequence[str]) -> WorkerContext:
        self.policy = policy_of(self.request)
        self.begin(self.given["label"], self.given["seed"], "")
        mask = self.ready.masker.text
        return WorkerContext(
            runner=self,
            warnings=[mask(warning) for warning in warnings],
            turns=lambda episode: self.turns.pop(episode, ()),
            notes=lambda: [mask(note) for note in (self.policy.notes if self.policy is not None else ())],
            strays=lambda: [mask(stray) for stray in strays_until_now()],
            gone=lambda: (self.gone[0].kind, mask(str(self.gone[0]))) if self.gone else (),
            last=self._last,
            load=self.load,
            admit=self.admit,
            prepare=self.prepare,
        )

    def begin(self, label: str, seed: int, scope: str) -> None:
        """Run episodes of this label and seed from now on."""
        policy = self.policy
        if policy is not None and scope:
            policy = replace(policy, seed=seed, scope=scope, announced={}, gone=self.gone.append)
        self.gone.clear()
        self.runner = runner_of(
            self.request,
            self.ready,
            self.sources,
            events=self.events,
            budget=self.budget,
            label=label,
            seed=seed,
            policy=policy,
            on_turns=self.turns.__setitem__,
            on_executed=self.on_executed,
        )

    async def run(self, task: Task, *, repeat: int, attempt: int) -> Episode:
        """See `EpisodeRunner.run`."""
        assert self.runner is not None
        return await self.runner.run(task, repeat=repeat, attempt=attempt)

    async def prepare(self, message: Mapping[str, Any]) -> Mapping[str, JsonValue]:
        """See `Workplace.prepare`."""
        self.begin(message["label"], message["seed"], message["scope"])
        return {}

    async def load(self, message: Mapping[str, Any]) -> Mapping[str, JsonValue]:
        """See `Workplace.load`."""
        server = self.request.policy
        if isinstance(server, RemotePolicy):
            await server.follow(message["served"])
            return {"version": server.version}
        if not isinstance(server, PolicyServer):
            raise UserError("this worker has no policy whose weights could be changed")
        with egress.exempt():  # the kit's own files
            await server.load(attested(message), message["version"])
        return {"version": server.version}

    def admit(self, tasks: Sequence[Task]) -> None:
        """See `Workplace.admit`."""
        settings, ready = self.request.settings, self.ready
        check_inputs(tasks, ready.facts)
        check_expectations(tasks, ready.facts)
        with egress.exempt():
            ready.checkers.update(checkers_of(settings, tasks))
            names = {task.environment.name for task in tasks} - set(ready.environments)
            ready.environments.update(environment_providers(settings, names))

    def _last(self) -> dict[str, JsonValue]:
        first, store = self.sources.recorded, self.request.store
        last: dict[str, JsonValue] = {}
        if isinstance(store, BufferedStore):
            last["added"] = store.added
        if isinstance(first, ChainedExperience):
            points = first.curve(self.request.settings.tenant)
            last["curve"] = [[point.threshold, point.answered, point.exact] for point in points]
        return last


def strays_until_now() -> list[str]:
    """Refused calls of this process that belonged to no episode; each is given once."""
    return PROCESS.told(once=True)
