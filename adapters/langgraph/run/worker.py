"""A worker's side of a run: the same graph, gate, guard and dream as in one process, over what a spec says.

Named as the opener in the spec of a run's workers; imported in a process of its own, which dreams from its
first moment on: gate and guard stand before the agent's module is imported.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dreamgym_kit.adapters.langgraph.episode.runner import LangGraphRunner
from dreamgym_kit.adapters.langgraph.run.request import RunRequest
from dreamgym_kit.adapters.langgraph.run.setup import Run, gated_process, prepared
from dreamgym_kit.adapters.models.named_models import opened_policy
from dreamgym_kit.adapters.models.remote import RemotePolicy, open_remote
from dreamgym_kit.adapters.stores.factory import opened_again
from dreamgym_kit.adapters.stores.outbox import BufferedStore
from dreamgym_kit.deployment.model_files import model_digest
from dreamgym_kit.dream.calibration import ReasonedTrial
from dreamgym_kit.dream.chain import ChainedExperience
from dreamgym_kit.errors import EndpointError, UserError
from dreamgym_kit.guard import egress
from dreamgym_kit.interfaces import ChatEndpoint, EventSink, PolicyServer
from dreamgym_kit.rollout.budgets import RunBudget
from dreamgym_kit.rollout.events import FanOut
from dreamgym_kit.rollout.tasks import TASKS
from dreamgym_kit.rollout.worker import WorkerContext, WorkerEvents
from dreamgym_kit.routing.process import PROCESS
from dreamgym_kit.routing.router import Mode
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.settings.load import parse_settings
from dreamgym_kit.settings.schema import Settings
from dreamgym_kit.turns import Turn
from dreamgym_kit.types import Episode, Task


@asynccontextmanager
async def open_worker(
    given: Mapping[str, Any], events: EventSink, budget: RunBudget
) -> AsyncIterator[WorkerContext]:
    """Open what `given` says (see `worker_spec.worker_facts`); implements `rollout.worker.Opener`.

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
            real_faults=given["real_faults"],
        )
        warnings = stack.enter_context(gated_process(request, folder))
        made = await prepared(stack, request, tasks, budget)
        await made.find_answers(stack, None, known=[ReasonedTrial(*trial) for trial in given["trials"]])
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


@dataclass(kw_only=True)
class _Here(WorkerContext):
    """What a worker holds while it is open."""

    runner: LangGraphRunner = field(init=False)
    made: Run
    events: EventSink
    on_executed: Callable[[Episode], None] | None

    def __post_init__(self) -> None:
        self._turns: dict[str, tuple[Turn, ...]] = {}
        self._gone: list[EndpointError] = []
        self._admitted: dict[str, Task] = {}

    def begin(self, label: str, seed: int, scope: str) -> None:
        """Run episodes of this label and seed from now on."""
        policy = self.made.policy
        if policy is not None and scope:
            policy = replace(policy, seed=seed, scope=scope, announced={}, gone=self._gone.append)
        self._gone.clear()
        self.runner = self.made.runner(
            events=self.events,
            label=label,
            seed=seed,
            policy=policy,
            on_turns=self._turns.__setitem__,
            on_executed=self.on_executed,
        )

    def turns(self, episode: str) -> tuple[Turn, ...]:
        """See `WorkerContext.turns`."""
        return self._turns.pop(episode, ())

    def notes(self) -> list[str]:
        """See `WorkerContext.notes`."""
        return self._masked(self.made.policy.notes if self.made.policy is not None else ())

    def strays(self) -> list[str]:
        """See `WorkerContext.strays`."""
        return self._masked(PROCESS.told(once=True))

    def gone(self) -> tuple[str, ...]:
        """See `WorkerContext.gone`."""
        return (self._gone[0].kind, *self._masked([str(self._gone[0])])) if self._gone else ()

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
            raise UserError("this worker has no policy whose weights could be changed")
        tasks = [TASKS.read(task) for task in message["tasks"]]
        new = [task for task in tasks if self._admitted.get(task.id) != task]
        self.made.admit(new)  # once: a checker is made anew each time, and may keep something
        self._admitted |= {task.id: task for task in new}
        self.begin(message["label"], message["seed"], message["scope"])

    def last(self) -> dict[str, JsonValue]:
        """See `WorkerContext.last`."""
        first, store = self.made.sources.recorded, self.made.request.store
        last: dict[str, JsonValue] = {}
        if isinstance(store, BufferedStore):
            last["added"] = store.added
        if isinstance(first, ChainedExperience):
            points = first.following.curve(self.made.request.settings.tenant)
            last["curve"] = [[point.threshold, point.answered, point.exact] for point in points]
        return last

    def _masked(self, texts: Iterable[str]) -> list[str]:
        return [self.made.masker.text(text) for text in texts]
