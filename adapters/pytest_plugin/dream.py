"""The object of the `dream` fixture: it runs the user's agent on one request, in a dream or to record it.

`run` and `arun` share one coroutine; `run` drives it without an event loop. Recording a test runs its agent
on the REAL tools, so only the command line or the ini can allow it.
"""

import asyncio
import threading
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from dreamgym_kit.adapters.langgraph.intercept.model_replay import replay_models
from dreamgym_kit.adapters.langgraph.run.api import arecord, asimulate, record, renamed_arguments, simulate
from dreamgym_kit.adapters.langgraph.run.experiences import chained_experience
from dreamgym_kit.adapters.langgraph.run.run import RunResult
from dreamgym_kit.adapters.pytest_plugin.answering import CassetteExperience, CassetteTape
from dreamgym_kit.adapters.pytest_plugin.cassette import Cassette, Recording, belonging_to, recordable
from dreamgym_kit.adapters.pytest_plugin.episode import DreamedEpisode, arguments_of
from dreamgym_kit.adapters.pytest_plugin.fixture_scope import (
    DreamOptions,
    TasksBegun,
    intercepting,
    options_of,
)
from dreamgym_kit.adapters.pytest_plugin.plugin import RECORDED, RecordMode
from dreamgym_kit.adapters.stores.factory import open_store
from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.errors import UserError
from dreamgym_kit.interfaces import ExperienceModel
from dreamgym_kit.replay.masking import process_masker
from dreamgym_kit.report.episode import shown
from dreamgym_kit.report.gate_rules import executed_line, what_to_do
from dreamgym_kit.report.sanitize import clean
from dreamgym_kit.rollout.rundir import RunDirectory
from dreamgym_kit.routing.process import awake
from dreamgym_kit.serialization import to_json
from dreamgym_kit.settings.buffer_url import buffer_of, is_missing
from dreamgym_kit.settings.load import load_settings
from dreamgym_kit.settings.schema import Settings
from dreamgym_kit.types import Environment, Episode, Task, Verdict

_ENDED = ("finished", "interrupted")


@dataclass(frozen=True, slots=True)
class _Run:
    """The arguments of one call of `run`."""

    graph: object
    task: Task
    mocks: Mapping[str, Any]
    allow_incomplete: bool
    on_loop: bool  # runs on the test's own loop


class Dream:
    """Runs agents in dreams for one test.

    Attributes:
        options: options of the command line, the ini and the test's marks.
        episodes: the episodes so far.
        recording: whether this test runs its agent on the real tools.
    """

    def __init__(self, item: pytest.Item, options: DreamOptions, directory: Path) -> None:
        self.options = options
        self.episodes: list[DreamedEpisode] = []
        self._item, self._directory = item, directory
        self._cassette = Cassette(options.cassette)
        self._settings = _settings(options)
        self.recording = options.mode is RecordMode.ALL or (
            options.mode is RecordMode.ONCE and not self._cassette.holds(options.test)
        )
        self._count = self._tries = 0
        self._one_at_a_time = asyncio.Lock()
        self._free = threading.Lock()
        self.tasks = TasksBegun()

    @renamed_arguments(answers="mocks", unfinished="allow_incomplete", world="environment")
    def run(
        self,
        graph: object,
        request: str | Mapping[str, Any] | Iterable[Any] | Task,
        /,
        *,
        mocks: Mapping[str, Any] | None = None,
        expect: Mapping[str, Any] | None = None,
        checker: str | None = None,
        replies: Sequence[Any] = (),
        environment: Environment | str | None = None,
        allow_incomplete: bool = False,
    ) -> DreamedEpisode:
        """Run an agent on one request; no real tool runs unless the test is recorded.

        Args:
            graph: a compiled graph, a StateGraph, a factory, or "module:attr" as in `langgraph.json`.
            request: the user's text; or messages, the graph's whole input, or a `Task`.
            mocks: tool answers by name: a value, an exception, or a function of the arguments. They take
                precedence over the cassette; without other calls no cassette is needed.
            expect: {"calls": [...], "forbid": [...], "max": {...}}, for `verdict`.
            checker: "module:function", for `verdict`.
            replies: answers to the graph's interrupts, in order.
            environment: the tools' environment; recordings of another one do not answer.
            allow_incomplete: return an episode that ended at a limit or by an error of the agent, instead of
                failing the test.
        """
        __tracebackhide__ = True
        with _errors_as_failures(), self._alone():
            task = self._task(request, expect, checker, replies, environment)
            run = _Run(graph, task, mocks or {}, allow_incomplete, on_loop=False)
            return _to_its_end(self._dream_or_record(run))

    @renamed_arguments(answers="mocks", unfinished="allow_incomplete", world="environment")
    async def arun(
        self,
        graph: object,
        request: str | Mapping[str, Any] | Iterable[Any] | Task,
        /,
        *,
        mocks: Mapping[str, Any] | None = None,
        expect: Mapping[str, Any] | None = None,
        checker: str | None = None,
        replies: Sequence[Any] = (),
        environment: Environment | str | None = None,
        allow_incomplete: bool = False,
    ) -> DreamedEpisode:
        """`run` for async tests, on the test's own loop; runs of one test wait for each other."""
        __tracebackhide__ = True
        with _errors_as_failures():
            async with self._one_at_a_time:
                task = self._task(request, expect, checker, replies, environment)
                with self._alone():
                    return await self._dream_or_record(
                        _Run(graph, task, mocks or {}, allow_incomplete, on_loop=True)
                    )

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Allow one run at a time: the interceptors of a run would block the start of another.

        Raises:
            UserError: another run is active; waiting for it could block forever.
        """
        if not self._free.acquire(blocking=False):
            raise UserError(
                "dream: another run of this test is active, and a test has one run at a time; "
                "`await dream.arun(...)` waits for its turn"
            )
        try:
            self.tasks.note()
            yield
        finally:
            self._free.release()

    def _task(
        self,
        request: str | Mapping[str, Any] | Iterable[Any] | Task,
        expect: Mapping[str, Any] | None,
        checker: str | None,
        replies: Sequence[Any],
        environment: Environment | str | None,
    ) -> Task:
        """Return the request as a task named after the test; later runs have a number after the name."""
        self._count += 1
        name = self.options.test if self._count == 1 else f"{self.options.test}#{self._count}"
        if isinstance(request, Task):
            return replace(request, id=name)
        if isinstance(request, bytes) or not isinstance(request, str | Mapping | Iterable):
            raise UserError(
                f"dream: {shown(request)} is not a request; pass a text, a list of messages, the "
                "graph's whole input, or a Task"
            )
        if isinstance(request, str):
            request = {"messages": [{"role": "user", "content": request}]}
        given = dict(request) if isinstance(request, Mapping) else {"messages": list(request)}
        where = self.options.environment if environment is None else environment
        return Task(
            name,
            given,
            where if isinstance(where, Environment) else Environment(where),
            checker,
            expect or {},
            tuple(to_json(list(replies))),
        )

    async def _dream_or_record(self, run: _Run) -> DreamedEpisode:
        """Dream or record, or dream and then record if an answer was missing.

        A run with mocks is not recorded, because recordings must come from the real tools.
        """
        if run.mocks or not self.recording:
            result, misses = await self._dreamt(run)
            if not misses:
                return self._episode(run, result, recorded=False)
            if run.mocks or self.options.mode is not RecordMode.NEW:
                self._fail(misses, result)
        return await self._recorded(run)

    async def _dreamt(self, run: _Run) -> tuple[RunResult, list[str]]:
        calls = self._cassette.calls()
        masker = process_masker()
        tape = CassetteTape(run.task.id, self.options.models, masker, self._cassette.turns())
        with self._further() as further, replay_models(run.task.id, tape):
            experience = CassetteExperience(run.mocks, calls, further)
            result = await self._result(run, real=False, experience=experience)
        if result.summary.executed:  # before anything is recorded or reported of a cassette
            lines = (executed_line(result.summary), *what_to_do(result.summary))
            _stop("\n".join(clean(line) for line in lines))
        if experience.mistakes:
            _stop(experience.mistakes[0])
        return result, [*tape.misses, *experience.misses]

    async def _recorded(self, run: _Run) -> DreamedEpisode:
        tape = CassetteTape(run.task.id, self.options.models, process_masker())
        with awake(), replay_models(run.task.id, tape):
            result = await self._result(run, real=True, label=self.options.test)
        episode = self._episode(run, result, recorded=True)
        recording = Recording(run.task.id, recordable(episode.record.transitions), tape.turns())
        anew = self.recording and not any(earlier.recorded for earlier in self.episodes[:-1])
        mine = belonging_to(self.options.test)
        self._cassette.write(recording, instead_of=mine if anew else lambda task: task == run.task.id)
        self._item.user_properties.append((RECORDED, self._shown_path()))
        return episode

    async def _result(self, run: _Run, *, real: bool, **options: Any) -> RunResult:
        """Run the agent on the real tools, or in a dream, with an empty store."""
        __tracebackhide__ = True
        self._tries += 1
        # a named graph has its `dreamgym.lock` next to the cassette
        path = self._cassette.path if isinstance(run.graph, str) else None
        store = MemoryStore(path=path, salted=False)  # a cassette is shared, and a salt is not
        directory = self._directory / f"run-{self._tries}"
        options |= {"settings": self._settings, "buffer": store, "run_dir": directory}
        if run.on_loop:
            return await (arecord if real else asimulate)(run.graph, [run.task], **options)
        return (record if real else simulate)(run.graph, [run.task], **options)

    def _episode(self, run: _Run, result: RunResult, *, recorded: bool) -> DreamedEpisode:
        """Return the episode of a run, or fail the test if it is unusable."""
        record = _episode_of(result)
        tools = [tool.name for tool in result.facts.tools]
        takes = arguments_of(result.facts.tools)
        episode = DreamedEpisode(
            record, directory=result.directory, tools=tools, arguments=takes, recorded=recorded
        )
        self.episodes.append(episode)
        self._item.add_report_section(
            "call", "dream", f"{run.task.id}\n{episode}\nmore: dreamgym-kit view {result.directory}"
        )
        refused = [*record.violations, *result.strays]
        if refused:
            _stop(f"a real call was blocked: {clean(refused[0])}")
        unknown = sorted(set(run.mocks) - set(tools) - {step.tool for step in episode.calls})
        if unknown:
            _stop(f"mocks: the graph has no tool '{clean(unknown[0])}'; it has {', '.join(sorted(tools))}")
        error = record.verdict is Verdict.ERROR  # even if the test allows incomplete runs
        if error or (record.stop not in _ENDED and (not run.allow_incomplete or recorded)):
            note = "; nothing was recorded" if recorded else ""
            frames = "".join(f"  {clean(line)}\n" for line in record.traceback)
            outcome = "error" if error else f"the agent did not finish ({record.stop})"
            why = f"{outcome}: {clean(record.reason)}{note}"
            _stop(f"{why}\n{frames}{episode}")
        return episode

    def _fail(self, misses: Sequence[str], result: RunResult) -> NoReturn:
        """Fail with the missing recordings and how to record them."""
        lines = list(dict.fromkeys(misses))
        path = self._shown_path()
        if not self.options.cassette.exists() and not self._cassette.models.exists():
            lines.append(f"{path} does not exist; to record it, which runs this test's REAL tools:")
        else:
            lines.append(f"if this is intended, record {path} again, which runs this test's REAL tools:")
        again = "once" if not self._cassette.holds(self.options.test) else "all"
        lines.append(f'  pytest "{self._item.nodeid}" --dream-record={again}')
        story = str(DreamedEpisode(_episode_of(result), directory=result.directory))
        self._item.add_report_section("call", "dream", story)
        _stop("\n".join(lines))

    def _shown_path(self) -> str:
        try:
            return str(self.options.cassette.relative_to(self._item.config.rootpath))
        except ValueError:
            return str(self.options.cassette)

    @contextmanager
    def _further(self) -> Iterator[ExperienceModel | None]:
        """Yield an experience model of the marked buffer and its tool rules; None without a mark."""
        named = self.options.buffer
        if not named:
            yield None
            return
        place = buffer_of(self._settings) if isinstance(named, bool) else named
        if is_missing(place):
            raise UserError(f"buffer: {place} does not exist; record it (dreamgym-kit record), or omit it")
        with closing(open_store(place, self._settings)) as store:
            yield chained_experience(store, self._settings)


@contextmanager
def dream_of(item: pytest.Item, directory: Path) -> Iterator[Dream]:
    """Provide the fixture, with interception from before the test until after it."""
    with _errors_as_failures():
        dream = Dream(item, options_of(item), directory)
    with intercepting(armed=not dream.recording, tasks=dream.tasks):
        yield dream


def _settings(options: DreamOptions) -> Settings:
    """Return the nearest settings, without those that would make a test vary."""
    nearest = load_settings(options.folder, file=options.settings)
    return nearest.with_overrides(
        {
            "simulate.repeats": 1,
            "simulate.concurrency": 1,
            "simulate.on_unanswered": "stop",
            "experience.urls": (),
            "faults": {},
        }
    )


def _to_its_end(course: Coroutine[Any, Any, DreamedEpisode]) -> DreamedEpisode:
    """Drive a coroutine that never waits for an event loop."""
    __tracebackhide__ = True
    try:
        course.send(None)
    except StopIteration as done:
        episode: DreamedEpisode = done.value
        return episode
    raise AssertionError("the run of a plain test waited for a loop")


@contextmanager
def _errors_as_failures() -> Iterator[None]:
    """Report user errors in one line, without our stack frames."""
    __tracebackhide__ = True
    try:
        yield
    except UserError as error:
        _stop(str(error))


def _episode_of(result: RunResult) -> Episode:
    return next(iter(RunDirectory.open(result.directory).episodes()))


def _stop(why: str) -> NoReturn:
    __tracebackhide__ = True
    raise pytest.fail.Exception(why, pytrace=False) from None
