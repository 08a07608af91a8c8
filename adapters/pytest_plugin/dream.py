"""The `dream` fixture's object: runs the user's agent on one request, in a dream or to record it.

`run` and `arun` are one course, written once as a coroutine; that of `run` waits for no loop. A test that has
to be recorded runs its agent on the REAL tools: that happens only where the command line or the ini says so.
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
from dreamgym_kit.adapters.pytest_plugin.answering import CassetteExperience, PlayingTape, RecordingTape
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
    """One call of `run`: what is asked of which graph."""

    graph: object
    task: Task
    mocks: Mapping[str, Any]
    allow_incomplete: bool
    on_loop: bool  # runs on the test's own loop


class Dream:
    """Runs agents in dreams for one test.

    Attributes:
        options: what the command line, the ini and the test's marks say.
        episodes: what was run so far.
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
        """Run an agent on one request; no real tool runs unless this test is to be recorded.

        Args:
            graph: a compiled graph, a StateGraph, a factory, or "module:attr" as in `langgraph.json`.
            request: what the user says; or messages, or the graph's whole input, or a `Task`.
            mocks: what tools answer, by name: a value, an exception, or a function of the arguments.
                They come before the cassette, and make one unnecessary where they are all there is.
            expect: {"calls": [...], "forbid": [...], "max": {...}}, for `verdict`.
            checker: "module:function", for `verdict`.
            replies: answers to the graph's interrupts, in order.
            environment: what the tools act on; recordings of another one do not answer.
            allow_incomplete: give an episode back that a limit or an error of the agent ended; else such a
                one fails the test.
        """
        __tracebackhide__ = True
        with _errors_as_failures(), self._alone():
            task = self._task(request, expect, checker, replies, environment)
            run = _Run(graph, task, mocks or {}, allow_incomplete, on_loop=False)
            return _to_its_end(self._course(run))

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
                    return await self._course(_Run(graph, task, mocks or {}, allow_incomplete, on_loop=True))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One run after the other: what one run is refused while it is on, another has to do to begin.

        Raises:
            UserError: another run is on; waiting for it might wait for ever.
        """
        if not self._free.acquire(blocking=False):
            raise UserError(
                "dream: another run of this test is on, and they come one after the other; "
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
        """What is asked, as a task named by the test; a second run of a test has a number behind its name."""
        self._count += 1
        name = self.options.test if self._count == 1 else f"{self.options.test}#{self._count}"
        if isinstance(request, Task):
            return replace(request, id=name)
        if isinstance(request, bytes) or not isinstance(request, str | Mapping | Iterable):
            raise UserError(
                f"dream: {shown(request)} cannot be said to an agent; say a text, a list of messages, the "
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

    async def _course(self, run: _Run) -> DreamedEpisode:
        """Dream, or record, or dream and then record what the dream could not tell.

        A run in which the test itself answers for tools is not recorded: those must not be the real ones.
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
        tape = PlayingTape(run.task.id, self.options.models, self._cassette.turns(), masker)
        with self._further() as further, replay_models(run.task.id, tape):
            experience = CassetteExperience(run.mocks, calls, further)
            result = await self._result(run, real=False, experience=experience)
        if result.summary.executed:  # before anything is recorded, or told of a cassette
            lines = (executed_line(result.summary), *what_to_do(result.summary))
            _stop("\n".join(clean(line) for line in lines))
        if experience.mistakes:
            _stop(experience.mistakes[0])
        return result, [*tape.misses, *experience.misses]

    async def _recorded(self, run: _Run) -> DreamedEpisode:
        tape = RecordingTape(run.task.id, self.options.models, process_masker())
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
        # of a graph that has a name, `dreamgym.lock` stands beside the cassette
        path = self._cassette.path if isinstance(run.graph, str) else None
        store = MemoryStore(path=path, salted=False)  # a cassette is shared, and a salt is not
        directory = self._directory / f"run-{self._tries}"
        options |= {"settings": self._settings, "buffer": store, "run_dir": directory}
        if run.on_loop:
            return await (arecord if real else asimulate)(run.graph, [run.task], **options)
        return (record if real else simulate)(run.graph, [run.task], **options)

    def _episode(self, run: _Run, result: RunResult, *, recorded: bool) -> DreamedEpisode:
        """The episode of a run, if a test can go by it."""
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
            _stop(f"something real was about to run, and was refused: {clean(refused[0])}")
        unknown = sorted(set(run.mocks) - set(tools) - {step.tool for step in episode.calls})
        if unknown:
            _stop(f"mocks: the graph has no tool '{clean(unknown[0])}'; it has {', '.join(sorted(tools))}")
        error = record.verdict is Verdict.ERROR  # nothing was measured, whatever the test allows
        if error or (record.stop not in _ENDED and (not run.allow_incomplete or recorded)):
            note = "; nothing was recorded" if recorded else ""
            frames = "".join(f"  {clean(line)}\n" for line in record.traceback)
            outcome = "error" if error else f"the agent did not come to its end ({record.stop})"
            why = f"{outcome}: {clean(record.reason)}{note}"
            _stop(f"{why}\n{frames}{episode}")
        return episode

    def _fail(self, misses: Sequence[str], result: RunResult) -> NoReturn:
        """Say what was not recorded and how that is mended."""
        lines = list(dict.fromkeys(misses))
        path = self._shown_path()
        if not self.options.cassette.exists() and not self._cassette.models.exists():
            lines.append(f"there is no cassette {path}; to record it, which runs this test's REAL tools:")
        else:
            lines.append(f"if the change is meant, record {path} again, which runs this test's REAL tools:")
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
        """The buffer that a mark names, with its tool models; nothing otherwise."""
        named = self.options.buffer
        if not named:
            yield None
            return
        place = buffer_of(self._settings) if isinstance(named, bool) else named
        if is_missing(place):
            raise UserError(f"buffer: there is no {place}; record one (dreamgym-kit record), or leave it out")
        with closing(open_store(place, self._settings)) as store:
            yield chained_experience(store, self._settings)


@contextmanager
def dream_of(item: pytest.Item, directory: Path) -> Iterator[Dream]:
    """The fixture's life: the gate is in from before the test until after it."""
    with _errors_as_failures():
        dream = Dream(item, options_of(item), directory)
    with intercepting(armed=not dream.recording, tasks=dream.tasks):
        yield dream


def _settings(options: DreamOptions) -> Settings:
    """The nearest settings, without what would make a test another one each time."""
    known = load_settings(options.folder, file=options.settings)
    return known.with_overrides(
        {
            "simulate.repeats": 1,
            "simulate.concurrency": 1,
            "simulate.on_unanswered": "stop",
            "experience.urls": (),
            "faults": {},
        }
    )


def _to_its_end(course: Coroutine[Any, Any, DreamedEpisode]) -> DreamedEpisode:
    """Run a course that waits for no loop."""
    __tracebackhide__ = True
    try:
        course.send(None)
    except StopIteration as done:
        episode: DreamedEpisode = done.value
        return episode
    raise AssertionError("the run of a plain test waited for a loop")


@contextmanager
def _errors_as_failures() -> Iterator[None]:
    """What a person can mend is told in one line, without our frames."""
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
