"""`dreamgym-kit doctor`: what works, what to mend, and what stops a dry run."""

import os
import platform
import re
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, closing
from functools import partial
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from dreamgym_kit.cli import options
from dreamgym_kit.cli.output import coloured, say, say_json

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dreamgym_kit.adapters.langgraph.analysis.inspection import GraphInspection
    from dreamgym_kit.interfaces import TransitionStore
    from dreamgym_kit.settings.schema import Settings
    from dreamgym_kit.types import Environment

EXAMPLES = (
    "dreamgym-kit doctor",
    "dreamgym-kit doctor my_agent:graph --tools",
    "dreamgym-kit doctor --server http://127.0.0.1:8000/v1",
    "dreamgym-kit doctor --json",
)
CODES = "Exit codes: 0 nothing stops a dry run; 2 something does."
_FRAME = re.compile(r"\S+:\d+( in |: )")  # "/srv/agent.py:2 in <module>: ..."
_MAX_NAMED = 6
_FIRST_TASK = '{"id": "first-1", "input": "What can you do?"}'
_EXTRAS = {
    "demo": "demo",
    "ray": 'workers.backend = "ray"',
}

Step = tuple[str, str, str]  # word, command to paste, what it does

Servers = Annotated[
    list[str] | None,
    typer.Option("--server", metavar="URL", help="Which of its routes need no key?", show_default=False),
]
Verbose = Annotated[
    int,
    typer.Option(
        "--verbose", "-v", count=True, help="Every setting that is not the default.", show_default=False
    ),
]
Tools = Annotated[bool, typer.Option("--tools", help="List every tool and its effect.", show_default=False)]


class Check(NamedTuple):
    """One line: how it stands, with what, and what to do."""

    level: str  # ok, fix, stop, -
    name: str
    text: str
    remedy: str = ""
    step: Step | None = None  # what to type about it


class _Asked(NamedTuple):
    """What was said on the command line, to be said again in the commands that come next."""

    graph: str | None
    flags: "Mapping[str, Path | str]"
    tools: bool = False
    verbose: bool = False

    def command(self, name: str, **more: str) -> str:
        """Another command with the same graph and flags."""
        flags = {flag: str(value) for flag, value in self.flags.items()}
        flags |= {f"--{flag}": value for flag, value in more.items()}
        typed = [part for flag, value in flags.items() for part in (flag, value)]
        return options.command_line(name, *([self.graph] if self.graph else []), *typed)

    def again(self) -> Step:
        """This command once more."""
        return "Then", self.command("doctor"), "once that is mended"


def command(
    graph: options.Graph = None,
    tasks: options.Tasks = None,
    buffer: options.Buffer = None,
    tools: Tools = False,
    verbose: Verbose = 0,
    servers: Servers = None,
    as_json: options.AsJson = False,
) -> None:
    """Check settings, graph, tasks, recordings, endpoints.

    Imports the graph; runs no tool.
    """
    from dreamgym_kit.cli.running import let_go, prints_on_stderr
    from dreamgym_kit.replay.masking import masked
    from dreamgym_kit.report.terminal import next_steps

    flags = {"--tasks": tasks, "--buffer": buffer}
    typed = {flag: value for flag, value in flags.items() if value is not None}
    request = _Asked(graph, typed, tools=tools, verbose=verbose > 0)
    with prints_on_stderr():
        unmasked = [*_checks(request), *_servers(servers or ())]
    checks = [check._replace(text=masked(check.text)) for check in unmasked]
    stops = sum(check.level == "stop" for check in checks)
    fixes = sum(check.level == "fix" for check in checks)
    step = next((check.step for check in checks if check.level == "stop"), None)
    step = step or (request.again() if stops else _next(checks, request))
    if as_json:
        records = [
            {"level": row.level, "name": row.name, "text": row.text, "remedy": row.remedy} for row in checks
        ]
        say_json({"stop": stops, "fix": fixes, "next": step[1], "checks": records})
    else:
        for check in checks:
            say(_format_check(check))
        say(f" {stops} to stop, {fixes} to fix.\n")
        say(next_steps([step]))
    let_go(2 if stops else 0)
    raise typer.Exit(2 if stops else 0)


def _next(checks: "Sequence[Check]", request: "_Asked") -> Step:
    """What to type when nothing stops: the first thing that a dry run still lacks."""
    lacking = {check.name: check.step for check in checks if check.level == "fix" and check.step is not None}
    for name in ("settings", "tasks", "recordings"):
        if name in lacking:
            return lacking[name]
    return "Dream", request.command("simulate"), "no real tool runs"


def _checks(request: "_Asked") -> Iterator[Check]:
    from dreamgym_kit.errors import UserError

    yield _versions()
    try:
        settings = options.settings_for(
            request.graph,
            {"tasks": request.flags.get("--tasks"), "buffer": request.flags.get("--buffer")},
        )
    except UserError as error:
        yield Check("stop", "settings", str(error))
        return
    yield _settings(settings, request)
    if request.verbose:
        yield from _changed_keys(settings)
    facts = yield from _graph(settings, request)
    yield _caught("hooks", _hooks)
    yield _caught("tasks", partial(_tasks, settings, request, facts))
    yield _caught("detectors", partial(_detectors, settings, facts))
    yield _caught("recordings", partial(_recordings, settings, request, facts))
    yield from _experience(settings)
    yield from _runs(settings)
    if settings.workers.elsewhere or settings.workers.backend != "local":
        yield _caught("engine", partial(_engine, settings))
    yield from _extras()


def _servers(urls: "Sequence[str]") -> Iterator[Check]:
    from dreamgym_kit.cli.doctor_servers import look_at_server

    for url in urls:
        yield from (Check(check.level, "server", check.text, check.remedy) for check in look_at_server(url))


def _caught(name: str, check: "Callable[[], Check]") -> Check:
    from dreamgym_kit.errors import EndpointError, StoreError, UserError

    try:
        return check()
    except (EndpointError, StoreError, UserError) as error:
        return Check("stop", name, str(error))


def _versions() -> Check:
    from importlib.metadata import PackageNotFoundError, version

    packages = [f"Python {platform.python_version()}"]
    for package in ("dreamgym-kit", "langgraph", "langchain-core"):
        try:
            packages.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            return Check("stop", "packages", f"{package} is not installed", f"pip install {package}")
    return Check("ok", "packages", ", ".join(packages))


def _settings(settings: "Settings", request: "_Asked") -> Check:
    if settings.path is None:
        command = _typed("dreamgym-kit", "init", request.graph or "my_agent:graph")
        step = ("Begin", command, "writes dreamgym.toml for you to correct") if request.graph else None
        return Check("fix", "settings", "no dreamgym.toml from here upwards", command, step)
    return Check("ok", "settings", str(settings.path))


def _changed_keys(settings: "Settings") -> Iterator[Check]:
    """Each value that is not the default, and where it comes from."""
    from dreamgym_kit.settings.load import origins

    for key, value, origin in origins(settings, os.environ):
        text = ", ".join(map(str, value)) if isinstance(value, (Mapping, tuple)) else str(value)
        yield Check("-", key, f"{text}  ({origin})")


def _graph(settings: "Settings", request: "_Asked") -> "Generator[Check, None, GraphInspection | None]":
    """Look at the graph; gives what it holds, None where it cannot be looked at."""
    import asyncio

    from dreamgym_kit.adapters.langgraph.analysis.inspection import look_at_graph
    from dreamgym_kit.cli.next_command import next_command
    from dreamgym_kit.errors import UserError

    if settings.graph is None:
        yield _no_graph(settings.folder)
        return None
    try:
        facts = asyncio.run(look_at_graph(settings.graph, settings))
    except UserError as error:
        typed = next_command(error, "doctor", request.graph, settings.folder)
        why = "looks again" if typed.startswith(("export ", "set ")) else "once that is mended"
        yield Check("stop", "graph", str(error), step=("Then", typed, why))
        return None
    problems = [*facts.problems, *facts.touched]
    held = "all can be simulated" if not facts.problems else f"{len(facts.problems)} cannot be simulated"
    count = f"{len(facts.every())} tool{'' if len(facts.every()) == 1 else 's'}"
    yield Check("stop" if facts.problems else "ok", "graph", f"{settings.graph} imports; {count}, {held}")
    yield from (Check("stop", "graph", problem) for problem in problems)
    yield from (Check("fix", "graph", warning) for warning in facts.warnings)
    yield from _effects(facts, settings)
    yield _lock(facts, settings)
    yield from _hosts(facts, settings)
    if request.tools:
        from dreamgym_kit.cli.tool_table import tool_rows

        yield Check("-", "tools", "\n".join([count, *tool_rows(facts.every())]))
    return facts


def _hooks() -> Check:
    """Whether the names of other packages by which calls are held are there, in what is loaded by now."""
    from dreamgym_kit.adapters.langgraph.intercept.foreign_names import (
        PAIRS,
        check_foreign_names,
        loaded,
        missing,
    )

    check_foreign_names()
    versions = loaded()
    text = f"in place in {', '.join(f'{name} {ver}' for name, ver in versions.items()) or 'no package yet'}"
    if gone := missing(versions):
        text += f"; absent, not needed: {', '.join(hook.name for hook in gone)}"
    if "mcp" in versions:
        text += f"; tried: {', '.join(map(str, PAIRS))}"
    return Check("ok", "hooks", text)


def _no_graph(folder: "Path") -> Check:
    """Nobody named one; what could have been meant is looked up."""
    from dreamgym_kit.cli.discover import graphs_here

    graphs = graphs_here(folder)
    if not graphs:
        typed = "dreamgym-kit doctor my_agent:graph"
        return Check("stop", "graph", f"none was named, and none was found in {folder}", f"name it: {typed}")
    typed = _typed("dreamgym-kit", "init", graphs[0])
    text = f"none was named; found here: {', '.join(graphs[:_MAX_NAMED])}"
    return Check("stop", "graph", text, step=("Begin", typed, "writes dreamgym.toml for you to correct"))


def _effects(facts: "GraphInspection", settings: "Settings") -> Iterator[Check]:
    from dreamgym_kit.settings import advice

    guessed = [spec for spec in facts.tools if spec.source == "guessed"]
    if not guessed:
        yield Check("ok", "effects", "every tool's effect was said by a person or its author")
        return
    if len(guessed) <= _MAX_NAMED:
        listing = ", ".join(f"{spec.name} ({spec.effect})" for spec in guessed)
    else:
        counts = Counter(str(spec.effect) for spec in guessed)
        listing = ", ".join(f"{count} {effect}" for effect, count in counts.most_common())
        listing += "; each: dreamgym-kit doctor --tools"
    first = guessed[0]
    if first.name in settings.tools:
        remedy = (
            f"{settings.where('tools', first.name)}  correct what is wrong, then: dreamgym-kit init --confirm"
        )
    else:
        entries = facts.inventory or ()
        function = next((entry.reference for entry in entries if entry.name == first.name), None)
        line = advice.tool_answered(first.name, first.effect)
        if function is not None:
            line = advice.function_answered(function, first.effect)
        remedy = advice.format_lines(line)
    yield Check("fix", "effects", f"{len(guessed)} guessed: {listing}", remedy)


def _lock(facts: "GraphInspection", settings: "Settings") -> Check:
    """Whether the graph's tools are those that somebody has seen."""
    from dreamgym_kit.errors import UserError
    from dreamgym_kit.report.percent import format_count
    from dreamgym_kit.rollout.tool_lock import LOCK_FILE, check_lock

    path = settings.folder / LOCK_FILE
    try:
        notes = check_lock(path, str(settings.graph), facts.locked, writes=False)
    except UserError as error:
        return Check("stop", "lock", str(error))
    if notes:
        return Check("-", "lock", "\n".join(notes))
    return Check("ok", "lock", f"{format_count(len(facts.locked), 'tool')} as in {path}")


def _hosts(facts: "GraphInspection", settings: "Settings") -> Iterator[Check]:
    from dreamgym_kit.settings import advice

    allowed = settings.guard.allow_hosts
    for host in facts.hosts:
        if host not in allowed and host.rpartition(":")[0] not in allowed:
            text = f"the chat model at {host} is not let through the guard"
            yield Check("fix", "model", text, advice.format_lines(advice.model_allowed(host)))


def _tasks(settings: "Settings", request: "_Asked", facts: "GraphInspection | None") -> Check:
    """Whether the tasks can be read, fit the graph, and name code that can be imported."""
    import asyncio
    import tempfile
    from pathlib import Path

    from dreamgym_kit.adapters.langgraph.analysis.references import (
        check_expectations,
        check_inputs,
        checkers_of,
        configured,
        environment_providers,
    )
    from dreamgym_kit.adapters.langgraph.intercept.install import dreaming_process, watched_loading
    from dreamgym_kit.rollout.tasks import read_tasks

    if settings.tasks is None:
        typed = f"echo '{_FIRST_TASK}' > tasks.jsonl && {request.command('doctor', tasks='tasks.jsonl')}"
        reason = "none named: --tasks FILE, or tasks in dreamgym.toml; one JSON object a line"
        return Check("stop", "tasks", reason, step=("Ask", typed, "a first task, for you to change"))
    file = settings.resolve(settings.tasks)
    tasks = read_tasks(file)
    if not tasks:
        return Check("stop", "tasks", f"{file} holds no task; one JSON object a line")
    with watched_loading(settings) as touched:  # a run imports these under its guard
        checkers_of(settings, tasks)
    if touched:
        return Check("stop", "tasks", "\n".join(touched))

    async def make_worlds() -> None:  # as a run makes them: on a loop, under the guard
        with (
            tempfile.TemporaryDirectory(prefix="dreamgym-look-") as folder,
            dreaming_process(settings, Path(folder)),
        ):
            environments = environment_providers(settings, {task.environment.name for task in tasks})
            for task in {
                task.environment: task for task in tasks if task.environment.name in environments
            }.values():
                configured(environments[task.environment.name], task)

    asyncio.run(make_worlds())
    if facts is not None:
        check_expectations(tasks, facts)
        check_inputs(tasks, facts)
    played = [task.id for task in tasks if "persona" in (task.meta.get("user") or {})]
    if played and not settings.experience.urls and settings.experience.user_model is None:
        text = (
            f"task {played[0]} describes its user by a persona, and there is no [experience] urls to play it"
        )
        return Check("stop", "tasks", text)
    return Check("ok", "tasks", f"{len(tasks)} in {file}")


def _detectors(settings: "Settings", facts: "GraphInspection | None") -> Check:
    from dreamgym_kit.adapters.langgraph.analysis.references import detectors_named
    from dreamgym_kit.adapters.langgraph.intercept.install import watched_loading
    from dreamgym_kit.adapters.langgraph.run.run import gate_slips

    with watched_loading(settings) as touched:
        detectors = detectors_named(settings)
    if touched:
        return Check("stop", "detectors", "\n".join(touched))
    known = detectors.known
    if facts is not None and (slips := gate_slips(settings.gate, facts, detectors)):
        return Check("fix", "gate", "\n".join(sentence for _, sentence in slips))
    return Check("ok", "detectors", f"{len(known)} kinds of finding are looked for")


def _recordings(settings: "Settings", request: "_Asked", facts: "GraphInspection | None") -> Check:
    """Whether the buffer opens; none at all is an error where no rule and no model could answer instead."""
    from dreamgym_kit.adapters.stores.factory import open_store
    from dreamgym_kit.dream.state.stated import stated_models
    from dreamgym_kit.report.percent import format_count
    from dreamgym_kit.settings.buffer_url import buffer_of, is_missing

    place, stated = buffer_of(settings), stated_models(settings)
    if not is_missing(place):
        with closing(open_store(place, settings)) as store:
            count, missing = store.count(), _not_recorded(store, settings)
        text = f"{format_count(count, 'call')} in {place}"
        if count and not missing:
            return Check("ok", "recordings", text)
        if count:
            environments = ", ".join(map(str, missing[:_MAX_NAMED]))
            text += (
                f"; tasks use environment {environments}, which has no recordings (tenant {settings.tenant})"
            )
            return Check("fix", "recordings", text, request.command("record"))
    typed = request.command("record")
    step = ("Record", typed, "real calls for dreams to answer from; it asks before")
    asks = facts is None or any(not spec.effect.runs_in_dream for spec in facts.tools)
    if not asks or stated or settings.experience.urls or settings.experience.dir is not None:
        return Check("fix", "recordings", f"none yet ({place})", typed, step)
    reason = f"none yet ({place}); no tool call would be answered: simulate would be INCONCLUSIVE"
    return Check("stop", "recordings", reason, typed, step)


def _not_recorded(store: "TransitionStore", settings: "Settings") -> "list[Environment]":
    """The worlds of tasks in which nothing was recorded."""
    from dreamgym_kit.errors import UserError
    from dreamgym_kit.rollout.tasks import read_tasks

    try:
        tasks = read_tasks(settings.resolve(settings.tasks)) if settings.tasks is not None else []
    except UserError:  # another line says so
        return []
    environments = dict.fromkeys(task.environment for task in tasks)
    return [
        environment
        for environment in environments
        if next(iter(store.scan(tenant=settings.tenant, environment=environment)), None) is None
    ]


def _experience(settings: "Settings") -> Iterator[Check]:
    """Whether the models that settings name for the dream answer, and their files can be used."""
    from dreamgym_kit.adapters.models.named_models import learned_directory

    experience, learned = settings.experience, learned_directory(settings)
    named = experience.urls or experience.model is not None or experience.dir is not None
    if named and (learned is None or experience.model is not None):
        yield _caught("experience", partial(_endpoint, settings))
    if learned is not None:
        yield _caught("experience", partial(_learned, settings))


def _endpoint(settings: "Settings") -> Check:
    import asyncio

    from dreamgym_kit.adapters.langgraph.run.experiences import asked_endpoint
    from dreamgym_kit.adapters.models.named_models import gate_of_settings
    from dreamgym_kit.rollout.budgets import RunBudget

    async def ask() -> None:
        async with asked_endpoint(settings, RunBudget(None, None), dreams=True):
            pass

    asyncio.run(ask())
    tried = gate_of_settings(settings) is not None
    where = ", ".join(settings.experience.urls) or "this process"
    text = f"{settings.experience.model or settings.experience.dir} answers ({where})"
    return Check("ok", "experience", text + ("" if tried else "; not tried on held-out recordings"))


def _learned(settings: "Settings") -> Check:
    from dreamgym_kit.adapters.langgraph.run.experiences import chained_experience, with_decisions
    from dreamgym_kit.adapters.stores.factory import open_store
    from dreamgym_kit.settings.buffer_url import buffer_of, is_missing

    place = buffer_of(settings)
    with ExitStack() as stack:
        store = None if is_missing(place) else stack.enter_context(closing(open_store(place, settings)))
        stack.enter_context(with_decisions(chained_experience(store, settings), settings))
        return Check("ok", "experience", f"{settings.experience.dir} can be used")


def _runs(settings: "Settings") -> Iterator[Check]:
    """A word where no run directory can be made in the folder that settings name."""
    import tempfile

    folder = settings.resolve(settings.runs)
    there = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not there.is_dir():
        yield Check("stop", "runs", f"{there} is a file; a run makes its directory in this folder")
        return
    try:
        with tempfile.TemporaryDirectory(prefix=".dreamgym-look-", dir=there):
            pass
    except OSError as error:
        text = f"no directory can be made in {there}, and a run makes one there: {error.strerror or error}"
        yield Check("stop", "runs", text)


def _engine(settings: "Settings") -> Check:
    """Whether what settings want of workers can be had; nothing is started or joined."""
    from dreamgym_kit.adapters.engines.choosing import check_engine
    from dreamgym_kit.adapters.engines.ray_cluster import usable

    check_engine(settings.workers)
    if settings.workers.backend == "ray":
        return Check("ok", "ray", usable(settings.workers.address))
    return Check("ok", "engine", f"{settings.workers.count} workers")


def _below(line: str) -> str:
    """A further line of a check; a line of somebody's code stays whole, with its place."""
    from dreamgym_kit.report.colors import fold

    text = f"{' ' * 19}{line}"
    return text if _FRAME.match(line) else fold(text, indent=19)


def _typed(*words: str) -> str:
    """A command for a shell, whatever its words hold."""
    from dreamgym_kit.cli.running import pasted

    return " ".join(pasted(word) for word in words)


def _extras() -> Iterator[Check]:
    from dreamgym_kit.errors import has_extra

    for extra, needed_for in _EXTRAS.items():
        if not has_extra(extra):
            text = f"extra not installed; only needed for: {needed_for}"
            yield Check("-", extra, text, f"pip install 'dreamgym-kit[{extra}]'")


def _format_check(check: Check) -> str:
    from dreamgym_kit.report.colors import Paint, fold
    from dreamgym_kit.report.sanitize import clean, one_line

    paint = Paint(colour=coloured(sys.stdout))
    colour = {"ok": paint.green, "fix": paint.yellow, "stop": paint.red}.get(check.level, paint.dim)
    first, *more = check.text.split("\n")
    text = fold(f" {check.level:<5} {one_line(check.name):<11} {one_line(first)}", indent=19)
    lines = [text.replace(check.level, colour(check.level), 1)]
    if check.level == "-":  # a table as it is
        lines += [clean(line) for line in more]
    else:
        lines += [_below(one_line(line)) for line in more]
    if check.remedy:
        remedy = f"{' ' * 19}{one_line(check.remedy)}"
        lines.append(fold(remedy, indent=19) if check.remedy.startswith("add to ") else remedy)
    return "\n".join(lines)
