"""Carries out a run: progress, signals, the exit code at its end, and what to type next."""

import ast
import os
import shlex
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import typer

from dreamgym_kit.cli.output import near, pasted, say, stdout_paint, tell
from dreamgym_kit.cli.progress import RunProgress, TrainingProgress, shown_progress
from dreamgym_kit.errors import AmbiguousGraph, GraphNotLoaded, StoreError, UnknownName, UserError
from dreamgym_kit.report.percent import format_count
from dreamgym_kit.report.sanitize import one_line

if TYPE_CHECKING:
    from dreamgym_kit.adapters.langgraph.analysis.inspection import GraphInspection
    from dreamgym_kit.adapters.langgraph.run.request import RunRequest
    from dreamgym_kit.adapters.langgraph.run.run import RunResult
    from dreamgym_kit.adapters.models.endpoint import OpenAIEndpoint
    from dreamgym_kit.interfaces import EventSink, TransitionStore
    from dreamgym_kit.report.metrics import RunMetrics
    from dreamgym_kit.rollout.rundir import RunDirectory
    from dreamgym_kit.rollout.stop import StopSwitch
    from dreamgym_kit.settings.buffer_url import Place
    from dreamgym_kit.settings.schema import Settings
    from dreamgym_kit.types import Episode

    _Watch = tuple[EventSink, StopSwitch]

_STDOUT, _STDERR = 1, 2  # descriptors
_LEAVE_AFTER_S = 0.5  # after the second Ctrl-C
_PLACEHOLDER = "placeholder"
_MAX_FILES = 500
_MAX_BYTES = 1_000_000
_MAKERS = ("compile", "create_agent", "create_react_agent", "create_deep_agent", "create_supervisor")


def tell_waiting(place: "Place", settings: "Settings") -> int:
    """Warn that recordings wait for a buffer, which is without them; gives how many."""
    from dreamgym_kit.adapters.stores.factory import format_waiting, waiting_for
    from dreamgym_kit.settings.buffer_url import Address

    waiting = waiting_for(place, settings)
    if waiting and isinstance(place, Address):
        tell(f"warning: {format_waiting(waiting, place, settings)}")
    return waiting


def inspected(spec: str, settings: "Settings") -> "GraphInspection":
    """Give what a graph holds; nothing of it runs but its import and its factory."""
    import asyncio

    from dreamgym_kit.adapters.langgraph.analysis.inspection import inspect_graph

    return asyncio.run(inspect_graph(spec, settings))


def served_model(settings: "Settings", *, role: str = "") -> "OpenAIEndpoint":
    """Open the endpoint of [experience], or of a role in it, once it answers.

    Raises:
        UserError: settings name none.
    """
    import asyncio

    from dreamgym_kit.adapters.models.named_models import check_endpoint, open_endpoint

    endpoint = open_endpoint(settings, role=role)
    if endpoint is None:
        raise UserError(
            f"a model is to be asked, and {settings.where('experience')} names no server: "
            '[experience] urls = ["http://localhost:8000/v1"], model = "..."'
        )
    asyncio.run(check_endpoint(endpoint))
    return endpoint


def carry_out(request: "RunRequest") -> "RunResult":
    """Run to the end, or to where a signal stopped it."""
    from dreamgym_kit.rollout.event_loop import START_OBJECTS, frozen_heap, run_to_end

    with frozen_heap(START_OBJECTS):
        from dreamgym_kit.adapters.langgraph.run.run import run

    with watched(RunProgress()) as (events, stop):
        try:
            return run_to_end(run(request, events=events, stop=stop), stop)
        except Exception as error:
            if stop.code is None:
                raise
            tell(f"FAILED  {stop.reason}\nThe run's report could not be made: {error}")
            end(stop.code, dreamt=True)


@contextmanager
def watched(progress: RunProgress | TrainingProgress, *, plain: bool = False) -> "Iterator[_Watch]":
    """Show progress, and have signals stop it; what the agent prints goes to stderr."""
    from dreamgym_kit.rollout.stop import StopSwitch, stop_on_signals

    stop = StopSwitch()
    with (
        stop_on_signals(stop, leave_after_s=_LEAVE_AFTER_S),
        shown_progress(progress, plain=plain) as events,
        prints_on_stderr(),
    ):
        yield events, stop


@contextmanager
def prints_on_stderr() -> Iterator[None]:
    """What the agent prints is no result of the command: it goes to stderr, from C code and programs too."""
    sys.stdout.flush()
    try:
        saved = os.dup(_STDOUT)
    except OSError:  # closed by whoever called us
        yield
        return
    os.dup2(_STDERR, _STDOUT)
    try:
        yield
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
        os.dup2(saved, _STDOUT)
        os.close(saved)


def end(code: int, *, dreamt: bool) -> NoReturn:
    """End the command; a tool that still holds a thread does not hold the process.

    After a dream nothing of the agent's runs any more: no thread it left, no exit handler.
    """
    from dreamgym_kit.rollout.event_loop import busy_threads
    from dreamgym_kit.rollout.stop import leave

    if dreamt or busy_threads():
        leave(code)
    raise typer.Exit(code)


def let_go(code: int) -> None:
    """End the process where a thread that the agent's module started would keep it for ever."""
    threads = (thread for thread in threading.enumerate() if thread is not threading.main_thread())
    if any(not thread.daemon for thread in threads):
        from dreamgym_kit.rollout.stop import leave

        leave(code)


def tell_warnings(result: "RunResult") -> None:
    """Say on stderr what a person should know about how the run was done."""
    for warning in result.warnings:
        tell(f"warning: {one_line(warning)}")
    for stray in result.strays:
        tell(f"blocked outside of any episode: {one_line(stray)}")


def opened(run: Path | None) -> "RunDirectory":
    """A run directory, or the newest one."""
    from dreamgym_kit.cli import options
    from dreamgym_kit.rollout.rundir import RunDirectory, latest_run

    if run is not None:
        return RunDirectory.open(run)
    settings = options.settings_for()
    return RunDirectory.open(latest_run(settings.resolve(settings.runs)))


def summary_of(directory: "RunDirectory") -> "RunMetrics":
    """Count a run's episodes; what was torn is said on stderr."""
    from dreamgym_kit.report.summary import curve_of, facts_of, summarize

    episodes = directory.episodes()
    summary = summarize(episodes, facts_of(directory), curve_of(directory))
    if episodes.torn is not None:
        tell(f"warning: {directory.path}: {episodes.torn}")
    return summary


def say_episode(directory: "RunDirectory", episode: "Episode", *, full: bool) -> None:
    """Print one episode, step by step."""
    from dreamgym_kit.report.episode import render_episode
    from dreamgym_kit.report.metrics import RECORDING

    recorded = directory.mode in RECORDING
    say(render_episode(episode, paint=stdout_paint(), recorded=recorded, full=full).rstrip("\n"))


def say_episodes(directory: Path, verbose: int) -> None:
    """Every episode of a run, step by step, where `-v` asks for it; `-vv` cuts no text."""
    if not verbose:
        return
    from dreamgym_kit.rollout.rundir import RunDirectory

    opened = RunDirectory.open(directory)
    for episode in opened.episodes():
        say_episode(opened, episode, full=verbose > 1)
        say()


def unfinished(result: "RunResult") -> list[tuple[str, str, str]]:
    """The step that goes on with a run that was stopped early; nothing for a whole one."""
    if not result.totals.stopped or result.summary.executed:
        return []
    left = result.totals.total - result.totals.finished
    say(f" Stopped ({result.totals.stopped}): {format_count(left, 'episode')} left.")
    return [("Go on", going_on(str(result.directory)), "the rest of this run")]


def going_on(directory: str, *, options: Sequence[str] = (), flags: Sequence[str] = ()) -> str:
    """The command that was given, with `--resume`: a run goes on only as it was begun.

    Not repeated are `options`, with their values, and `flags`.
    """
    dropped, words, left = ("--resume", *options), [], iter(sys.argv[1:])
    for word in left:
        if word in dropped:
            next(left, None)
        elif word not in flags and not word.startswith(tuple(f"{name}=" for name in dropped)):
            words.append(word)
    return shlex.join(["dreamgym-kit", *words, "--resume", directory])


def look_at(summary: "RunMetrics", directory: Path) -> tuple[str, str, str]:
    """The step that shows the episode to look at first."""
    run = shlex.quote(near(directory))
    worst = summary.worst
    if worst is None:
        return "Look", f"dreamgym-kit report {run}", "this run again"
    return "Look", f"dreamgym-kit report {run} --episode {pasted(worst.id)}", "what happened there"


@contextmanager
def opened_recordings(settings: "Settings") -> "Iterator[TransitionStore | None]":
    """Open the buffer that dreams use; yield None, with a warning on stderr, if there is none yet."""
    from dreamgym_kit.adapters.stores.factory import holds_secrets, open_store
    from dreamgym_kit.dream.programs.rules_files import read_rules
    from dreamgym_kit.settings.buffer_url import buffer_of, is_missing
    from dreamgym_kit.settings.load import rules_folder

    place = buffer_of(settings)
    if is_missing(place):
        rules = read_rules(rules_folder(settings))
        behavior = "goes by the files in rules/" if rules else "can answer nothing"
        if settings.experience.urls:
            behavior = "asks its model alone" if not rules else f"{behavior}, then asks its model"
        instead = "dreamgym-kit simulate --imagine"
        if not (settings.experience.urls or settings.experience.dir):
            instead = f"name a model in [experience], then {instead}"
        if settings.simulate.imagine:  # the run says what that takes
            behavior, instead = "imagines what nothing else answers", ""
        else:
            instead = f"; or have a model invent the answers: {instead}"
        tell(
            f"warning: {place} holds no recordings yet, so the dream {behavior}; "
            f"make some with: dreamgym-kit record{instead}"
        )
        yield None
        return
    tell_waiting(place, settings)
    store = open_store(place, settings)
    try:
        if count := holds_secrets(store, place, settings):
            tell(
                f"warning: {format_count(count, 'recording')} in {place} hold what today's rules mask; "
                "to look at it and mask it: dreamgym-kit buffer scrub"
            )
        yield store
    finally:
        with suppress(StoreError):  # what was dreamt is told all the same
            store.close()


def next_command(error: UserError, command: str, graph: str | None, folder: Path) -> str:
    """Give what to type once what `error` says is mended, with what can be typed to mend it.

    Args:
        error: what stopped the command.
        command: its name.
        graph: what was asked for.
        folder: where the project is.
    """
    from dreamgym_kit.adapters.langgraph.analysis.import_errors import in_env_file

    if isinstance(error, AmbiguousGraph):
        first = error.choices[0]
        return typed_command(command, f"{graph}:{first.partition(':')[2]}" if graph else first)
    if isinstance(error, UnknownName) and error.near and graph is not None:
        file, colon, name = graph.rpartition(":")
        return typed_command(command, f"{file}{colon}{error.near}" if name == error.name else graph)
    again = typed_command(command, graph)
    if isinstance(error, GraphNotLoaded) and error.variables:
        if in_env_file(error.variables, folder):
            return f"set -a; . {pasted(str(folder / '.env'))}; set +a; {again}"
        exports = " ".join(f"{name}={_PLACEHOLDER}" for name in error.variables)
        return f"export {exports} && {again}"
    return again


def typed_command(command: str, graph: str | None) -> str:
    """A command of ours with a graph, to paste into a shell."""
    return " ".join(["dreamgym-kit", command, *([pasted(graph)] if graph else [])])


def graphs_here(folder: Path) -> list[str]:
    """Give what could be named, the surest first: graphs of langgraph.json, then of modules at hand."""
    from dreamgym_kit.adapters.langgraph.analysis.projects import PROJECT_FILE, graphs_of

    if (folder / PROJECT_FILE).is_file():
        try:
            return [f"{PROJECT_FILE}:{name}" for name in graphs_of(folder / PROJECT_FILE)]
        except UserError:
            return []
    files = sorted([*folder.glob("*.py"), *folder.glob("src/*.py"), *folder.glob("src/*/*.py")])[:_MAX_FILES]
    return [f"{file.relative_to(folder)}:{name}" for file in files for name in _graphs_in(file)]


def _graphs_in(file: Path) -> list[str]:
    """Names that a module gives to what makes a graph."""
    try:
        parsed = ast.parse(file.read_bytes() if file.stat().st_size <= _MAX_BYTES else b"")
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    return [
        target.id
        for statement in parsed.body
        if isinstance(statement, ast.Assign)
        and isinstance(statement.value, ast.Call)
        and _makes_graph(statement.value.func)
        for target in statement.targets
        if isinstance(target, ast.Name)
    ]


def _makes_graph(function: "ast.expr") -> bool:
    owner = getattr(getattr(function, "value", None), "id", "")  # `re.compile` makes no graph
    name = getattr(function, "attr", None) or getattr(function, "id", None)
    return name in _MAKERS and owner not in ("re", "regex")
