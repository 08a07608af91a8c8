"""The kit in five lines of Python, sync and async, also inside a running loop (notebooks).

    from dreamgym_kit import record, simulate
    record("my_agent:graph", "tasks.jsonl")          # on the real tools
    print(simulate("my_agent:graph", "tasks.jsonl"))  # no real tool runs

`simulate` and `record` are the commands of that name. `dreaming` and `recording` put a block of one's own
code under the gate instead.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from dreamgym_kit.adapters.langgraph.intercept.bound_names import HOLDINGS
from dreamgym_kit.adapters.langgraph.intercept.functions import hooked_names
from dreamgym_kit.adapters.langgraph.intercept.install import hook_tool_functions, install
from dreamgym_kit.adapters.langgraph.intercept.object_effects import (
    ObjectEffects,
    bearers_of,
    function_spec,
    power,
)
from dreamgym_kit.adapters.langgraph.intercept.registration import register_functions
from dreamgym_kit.adapters.langgraph.run.experiences import chained_experience, with_decisions, with_model
from dreamgym_kit.adapters.langgraph.run.request import R, RunRequest, Tasks
from dreamgym_kit.adapters.langgraph.run.run import RunResult, run
from dreamgym_kit.adapters.langgraph.run.setup import call_hooks, router_of
from dreamgym_kit.adapters.models.named_models import (
    Named,
    allowance,
    check_endpoint,
    gate_of_settings,
    open_experience,
    opened_policy,
    with_policy,
)
from dreamgym_kit.adapters.stores.factory import open_store, opened_to_add, salt_of
from dreamgym_kit.errors import UserError
from dreamgym_kit.interfaces import EventSink, ExperienceModel, TransitionStore
from dreamgym_kit.replay.masking import process_masker
from dreamgym_kit.rollout.event_loop import run_to_end
from dreamgym_kit.rollout.stop import StopSwitch
from dreamgym_kit.routing.process import entered
from dreamgym_kit.routing.router import CallRouter, Mode, Stage
from dreamgym_kit.routing.session import Session
from dreamgym_kit.settings.buffer_url import buffer_of, is_missing, place_of
from dreamgym_kit.settings.load import load_settings
from dreamgym_kit.settings.schema import Settings
from dreamgym_kit.threads import run_in_thread
from dreamgym_kit.types import Environment, ToolSpec

T = TypeVar("T")
P = ParamSpec("P")


def renamed_arguments(**now_of: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Have a public function name the new arguments for those of earlier versions, all at once."""

    def wrap(function: Callable[P, T]) -> Callable[P, T]:
        @wraps(function)
        def called(*args: P.args, **options: P.kwargs) -> T:
            __tracebackhide__ = True  # of pytest
            old = [f"{name}= is now {now_of[name]}=" for name in options if name in now_of]
            if old:
                raise TypeError(f"{getattr(function, '__name__', 'this')}(): {', '.join(old)}")
            return function(*args, **options)

        return called

    return wrap


@renamed_arguments(store="buffer", n="repeats", directory="run_dir")
async def asimulate(
    graph: object,
    tasks: Tasks,
    *,
    settings: Settings | None = None,
    buffer: TransitionStore | str | Path | None = None,
    experience: ExperienceModel | None = None,
    policy: Named = None,
    repeats: int | None = None,
    run_dir: str | Path | None = None,
    events: EventSink | None = None,
    stop: StopSwitch | None = None,
) -> RunResult:
    """Dry-run a graph on tasks; no real tool runs.

    Args:
        graph: "module:attr", "file.py:attr", "langgraph.json" or "langgraph.json:name"; or a graph,
            StateGraph or factory.
        tasks: a JSON-lines file, or a list of `Task`.
        settings: default: the nearest dreamgym.toml, if there is one.
        buffer: recordings to answer from; default: the buffer that settings name, if the file is there.
        experience: an experience model of one's own instead of recordings.
        policy: a model directory, or a chat endpoint, that answers in place of the agent's chat models; see
            `settings.policy`. Default: the agent's chat models answer.
        repeats: episodes per task.
        run_dir: the run directory to make; default: a new one under `settings.runs`.
        events: receives the events of the run.
        stop: ends the run early, from any thread.

    Raises:
        UserError: an argument cannot be used; nothing was run.

    While it runs, a real tool that this process calls outside of it is refused. Afterwards the caller's own
    run again; what an episode left running (a thread, a task, a timer) never does.
    """
    run_settings = with_policy(policy, settings_of(settings, repeats))
    with (
        requested(
            RunRequest, graph, tasks, run_settings, buffer=buffer, run_dir=run_dir, experience=experience
        ) as request,
        opened_policy(policy, run_settings) as answers,
    ):
        return await run(replace(request, policy=answers), events=events, stop=stop)


@renamed_arguments(store="buffer", n="repeats", directory="run_dir")
async def arecord(
    graph: object,
    tasks: Tasks,
    *,
    settings: Settings | None = None,
    buffer: TransitionStore | str | Path | None = None,
    repeats: int | None = None,
    run_dir: str | Path | None = None,
    events: EventSink | None = None,
    label: str | None = None,
    stop: StopSwitch | None = None,
) -> RunResult:
    """Run a graph on its REAL tools and record every call in the buffer; see `asimulate` for arguments."""
    run_settings = settings_of(settings, repeats)
    with requested(
        RunRequest,
        graph,
        tasks,
        run_settings,
        buffer=buffer,
        run_dir=run_dir,
        create=True,
        mode=Mode.RECORD,
        label=label,
    ) as request:
        return await run(request, events=events, stop=stop)


def simulate(graph: object, tasks: Tasks, **options: Any) -> RunResult:
    """`asimulate` for sync code; also inside a running event loop."""
    return waited_run(lambda stop: asimulate(graph, tasks, stop=stop, **options))


def record(graph: object, tasks: Tasks, **options: Any) -> RunResult:
    """`arecord` for sync code; also inside a running event loop."""
    return waited_run(lambda stop: arecord(graph, tasks, stop=stop, **options))


@renamed_arguments(store="buffer", abstain="on_unanswered", world="environment")
@contextmanager
def dreaming(
    *,
    buffer: TransitionStore | str | Path | None = None,
    experience: ExperienceModel | None = None,
    environment: Environment | None = None,
    settings: Settings | None = None,
    on_unanswered: str = "stop",
) -> Iterator[Session]:
    """Dream in the block: tool calls of this context are answered, none runs. Yields the session.

    Answers come as in `simulate`: recordings, declared, mined and drafted tool models, then the endpoint of
    the settings, if they name one.

    Only the leaf gate stands here, not the egress guard: the block shares its process with other code.
    Tools that other code of the process calls meanwhile are refused, unless under `recording`; after the
    block they run again.
    """
    block_settings = settings_of(settings, None)
    with (
        opened_store(buffer, block_settings, create=False) as opened,
        _answering(experience, opened, block_settings) as answers,
        gated_session(
            Mode.DREAM, block_settings, experience=answers, environment=environment, abstain=on_unanswered
        ) as session,
    ):
        yield session


@contextmanager
def _answering(
    experience: ExperienceModel | None, store: TransitionStore | None, settings: Settings
) -> Iterator[ExperienceModel | None]:
    """What answers in a block of one's own code: the same as in a run."""
    if experience is not None:
        yield experience
        return
    first = chained_experience(store, settings)
    with with_decisions(first, settings) as decides:
        endpoint = open_experience(settings)
        if endpoint is None:
            yield with_model(first, None, settings, store, before=decides)
            return
        try:
            chat = endpoint
            waited(lambda: check_endpoint(chat))
            yield with_model(
                first,
                endpoint,
                settings,
                store,
                before=decides,
                allows=allowance(settings, gate_of_settings(settings), training=False),
            )
        finally:
            endpoint.close()


@renamed_arguments(store="buffer", world="environment")
@contextmanager
def recording(
    buffer: TransitionStore | str | Path | None = None,
    *,
    environment: Environment | None = None,
    episode: str = "",
    settings: Settings | None = None,
) -> Iterator[Session]:
    """Record every tool call of the block; the tools run for real. Yields the session."""
    block_settings = settings_of(settings, None)
    with (
        opened_store(buffer, block_settings, create=True) as opened,
        gated_session(
            Mode.RECORD, block_settings, store=opened, environment=environment, episode=episode
        ) as session,
    ):
        yield session


@contextmanager
def record_everything() -> Iterator[Session]:
    """A record session that keeps calls in memory only: for tests of the gate itself."""
    with gated_session(Mode.RECORD, Settings()) as session:
        yield session


@contextmanager
def gated_session(
    mode: Mode,
    settings: Settings,
    *,
    stage: Stage = Stage.SHADOW,
    store: TransitionStore | None = None,
    **parts: Any,
) -> Iterator[Session]:
    """A session for a block of code, whatever tools it makes; `store` keeps its real calls."""
    install()
    hook_tool_functions(register_functions(settings))
    router = live_policy(mode, settings, stage)
    masker = process_masker(settings.experience.key_env, salt=salt_of(store, settings))
    hooks = call_hooks(router, store)
    session = Session(router, tenant=settings.tenant, hooks=hooks, masker=masker, **parts)
    with entered(session):
        yield session


def live_policy(mode: Mode, settings: Settings, stage: Stage = Stage.SHADOW) -> CallRouter:
    """The rules for whatever tools a block of code makes."""
    specs = LiveSpecs(settings)
    return router_of(mode, settings, specs, specs.judge, stage)


class LiveSpecs(Mapping[str, ToolSpec]):
    """The specs of all tools met: a block of code may make tools while it runs."""

    def __init__(self, settings: Settings) -> None:
        self.judge = ObjectEffects(settings)
        self._settings = settings
        self._specs: dict[str, ToolSpec] = {}

    def __getitem__(self, name: str) -> ToolSpec:
        if name not in self._specs:
            self._specs[name] = self._look(name)
        return self._specs[name]

    def __iter__(self) -> Iterator[str]:
        return iter({tool.name for tool in HOLDINGS.tools()} | hooked_names())

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _look(self, name: str) -> ToolSpec:
        for _ in range(2):
            specs = [self.judge.spec(bearer, name) for bearer in bearers_of(name)]
            if specs:
                return max(specs, key=lambda spec: power(spec.effect))
            HOLDINGS.scan()
        return function_spec(name, self._settings)


@contextmanager
def requested(
    kind: type[R],
    graph: object,
    tasks: Tasks,
    settings: Settings,
    *,
    buffer: TransitionStore | str | Path | None,
    run_dir: str | Path | None,
    create: bool | None = False,
    **parts: Any,
) -> Iterator[R]:
    """What a public function was asked for, its buffer open for the block.

    `create`: as for `opened_store`; None: there is no buffer.
    """
    place = Path(run_dir).absolute() if run_dir is not None else None
    with nullcontext() if create is None else opened_store(buffer, settings, create=create) as store:
        yield kind(graph=graph, tasks=tasks, settings=settings, store=store, directory=place, **parts)


def settings_of(settings: Settings | None, n: object) -> Settings:
    """Return the given settings, else the nearest; `n` episodes per task override theirs."""
    if n is not None and (not isinstance(n, int) or n < 1):
        raise UserError(
            f"repeats: episodes per task are a whole number from 1 on, got {n!r:.40}. Nothing was run."
        )
    base = settings if settings is not None else load_settings()
    return base.with_overrides({"simulate.repeats": n})


@contextmanager
def opened_store(
    store: TransitionStore | str | Path | None, settings: Settings, *, create: bool
) -> Iterator[TransitionStore | None]:
    """A store of the caller's stays open; one that we open is closed again."""
    if store is not None and not isinstance(store, (str, Path)):
        yield store
        return
    place = place_of(str(store), Path(), source="buffer") if store is not None else buffer_of(settings)
    if not create and store is None and is_missing(place):
        yield None
        return
    if create:
        with opened_to_add(place, settings) as opened:
            yield opened
    else:
        with closing(open_store(place, settings)) as opened:
            yield opened


def waited(make: Callable[[], Coroutine[Any, Any, T]], stop: StopSwitch | None = None) -> T:
    """Run to the end from sync code; on a loop's own thread, in a thread with a loop of its own."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return run_to_end(make(), stop)
    return run_in_thread(lambda: run_to_end(make(), stop), name="dreamgym-run")


def waited_run(make: Callable[[StopSwitch], Coroutine[Any, Any, T]]) -> T:
    """The same for a run, which a KeyboardInterrupt stops as Ctrl-C stops a command's."""
    stop = StopSwitch()
    return waited(lambda: make(stop), stop)
