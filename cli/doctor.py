"""`dreamgym-kit doctor`: what works, what to fix, and what stops a dry run.

First come the checks that need no graph: packages, recordings, models, workers, servers.
"""

import os
import platform
import re
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from dreamgym_kit.cli import options
from dreamgym_kit.cli.approving import tool_rows
from dreamgym_kit.cli.output import coloured, say, say_json, say_steps
from dreamgym_kit.cli.running import graphs_here, let_go, next_command, prints_on_stderr, typed_command
from dreamgym_kit.errors import EndpointError, ExitCode, StoreError, UserError, has_extra
from dreamgym_kit.report.colors import Paint, fold
from dreamgym_kit.report.percent import format_count, format_some
from dreamgym_kit.report.sanitize import clean, one_line

if TYPE_CHECKING:
    from dreamgym_kit.adapters.langgraph.analysis.inspection import GraphInspection
    from dreamgym_kit.adapters.models.vllm.looking import OpenRoute
    from dreamgym_kit.interfaces import TransitionStore
    from dreamgym_kit.settings.schema import Settings
    from dreamgym_kit.types import Environment

_EXTRAS = {"demo": "demo", "ray": 'workers.backend = "ray"'}
_CAN = {
    "tells": "tells what it does",
    "works": "works for anybody",
    "changes": "lets anybody change weights or caches",
}
MAX_NAMED = 6
_REMEDY = "serve it by dreamgym-kit serve, or put a proxy with an allow-list before it"
Step = tuple[str, str, str]  # word, command to paste, what it does


class Check(NamedTuple):
    """One line: how it stands, with what, and what to do."""

    level: str  # ok, fix, stop, -
    name: str
    text: str
    remedy: str = ""
    step: Step | None = None  # what to type about it


def caught(name: str, check: "Callable[[], Check]") -> Check:
    """Make a check; what a person can mend stops a dry run."""
    try:
        return check()
    except (EndpointError, StoreError, UserError) as error:
        return Check("stop", name, str(error))


def versions() -> Check:
    """Which packages there are."""
    from importlib.metadata import PackageNotFoundError, version

    packages = [f"Python {platform.python_version()}"]
    for package in ("dreamgym-kit", "langgraph", "langchain-core"):
        try:
            packages.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            return Check("stop", "packages", f"{package} is not installed", f"pip install {package}")
    return Check("ok", "packages", ", ".join(packages))


def recordings(settings: "Settings", command: str, facts: "GraphInspection | None") -> Check:
    """Whether the buffer opens; none at all is an error where no rule and no model could answer instead."""
    from dreamgym_kit.adapters.stores.factory import open_store
    from dreamgym_kit.dream.programs.rules_files import read_rules
    from dreamgym_kit.settings.buffer_url import buffer_of, is_missing
    from dreamgym_kit.settings.load import rules_folder

    place = buffer_of(settings)
    rules = read_rules(rules_folder(settings))
    if not is_missing(place):
        with closing(open_store(place, settings)) as store:
            count, missing = store.count(), _not_recorded(store, settings)
        text = f"{format_count(count, 'call')} in {place}"
        if count and not missing:
            return Check("ok", "recordings", text)
        if count:
            environments = ", ".join(map(str, missing[:MAX_NAMED]))
            text += (
                f"; tasks use environment {environments}, which has no recordings (tenant {settings.tenant})"
            )
            return Check("fix", "recordings", text, command)
    step = ("Record", command, "real calls for dreams to answer from; it asks before")
    asks = facts is None or any(not spec.effect.runs_in_dream for spec in facts.tools)
    if not asks or rules or settings.experience.urls or settings.experience.dir is not None:
        return Check("fix", "recordings", f"none yet ({place})", command, step)
    reason = f"none yet ({place}); no tool call would be answered: simulate would be INCONCLUSIVE"
    return Check("stop", "recordings", reason, command, step)


def buffer_server(settings: "Settings") -> Iterator[Check]:
    """Check that a run can use the buffer's server: write, read and remove one row."""
    from dreamgym_kit.adapters.stores.factory import open_store
    from dreamgym_kit.settings.buffer_url import Address, buffer_of

    place = buffer_of(settings)
    if not isinstance(place, Address) or place.scheme == "weaviate+embedded":
        return
    try:
        open_store(place, settings).close()  # makes nothing
    except StoreError:
        return  # the check "recordings" covers these
    from dreamgym_kit.adapters.stores.weaviate_check import check_server

    try:
        with closing(open_store(place, settings, read_only=False)) as store:
            yield Check("ok", "buffer server", check_server(store))
    except StoreError as error:
        yield Check("fix", "buffer server", f"record could not write there: {error}")


def masking(settings: "Settings", facts: "GraphInspection | None") -> Iterator[Check]:
    """Check secrets: list masked variables and tool arguments, and count recordings stored unmasked."""
    from dreamgym_kit.adapters.stores.factory import MOST_CHECKED, open_store, salt_of, to_mask
    from dreamgym_kit.replay.masking import process_masker, secret_variables
    from dreamgym_kit.settings.buffer_url import buffer_of, is_missing
    from dreamgym_kit.settings.secrets import NAMED, OWN, names_secret

    variables = sorted(secret_variables(os.environ, NAMED))
    arguments = [
        f"{spec.name}.{name}"
        for spec in (facts.tools if facts is not None else ())
        for name in dict(spec.args_schema).get("properties", spec.args_schema) or ()
        if isinstance(name, str) and (names_secret(name) or name in OWN[-1].fields)
    ]
    listed = [format_some(names, MAX_NAMED) or "none" for names in (variables, arguments)]
    text = f"variables {listed[0]}; arguments {listed[1]}"
    yield Check("ok", "secrets", f"masked: {text} ([secrets] adds more)")
    place = buffer_of(settings)
    if is_missing(place):
        return
    with closing(open_store(place, settings)) as store:
        if store.count() > MOST_CHECKED:
            return
        masker = process_masker(settings.experience.key_env, salt=salt_of(store, settings))
        count = len(to_mask(store, masker))
    if count:
        text = f"{format_count(count, 'recording')} in {place}: today's rules would mask something in them"
        yield Check("fix", "secrets", text, "dreamgym-kit buffer scrub")


def _not_recorded(store: "TransitionStore", settings: "Settings") -> "list[Environment]":
    """The worlds of tasks in which nothing was recorded."""
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


def experience_models(settings: "Settings") -> Iterator[Check]:
    """Whether the models that settings name for the dream answer, and their files can be used."""
    from dreamgym_kit.adapters.models.named_models import learned_directory

    experience, learned = settings.experience, learned_directory(settings)
    if experience.named and (learned is None or experience.model is not None):
        yield caught("experience", partial(_endpoint, settings))
    if learned is not None:
        yield caught("experience", partial(_learned, settings))


def _endpoint(settings: "Settings") -> Check:
    import asyncio

    from dreamgym_kit.adapters.langgraph.run.experiences import experience_endpoint
    from dreamgym_kit.adapters.models.named_models import gate_of_settings
    from dreamgym_kit.rollout.budgets import RunBudget

    async def ask() -> None:
        async with experience_endpoint(settings, RunBudget(None, None), dreams=True):
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


def run_folder(settings: "Settings") -> Iterator[Check]:
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


def sandbox(settings: "Settings") -> Check:
    """Which kernel sandbox a dream gets here, and what would give a stronger one."""
    from dreamgym_kit.sandbox.confining import NAMESPACES, available, check, stands_for

    wanted = settings.guard.sandbox
    if wanted in ("off", "external"):
        return Check("-", "sandbox", f'{stands_for(wanted)} (guard.sandbox = "{wanted}")')
    best = available()
    check(wanted, best=best, where=settings.where("guard", "sandbox"))
    if best.kind == NAMESPACES:
        return Check("ok", "sandbox", str(best))
    return Check("-", "sandbox", str(best), f"for more: {best.more}" if best.more else "")


def engine(settings: "Settings") -> Check:
    """Whether what settings want of workers can be had; nothing is started or joined."""
    from dreamgym_kit.adapters.engines.ray_cluster import usable
    from dreamgym_kit.adapters.langgraph.run.workers import check_engine

    check_engine(settings.workers)
    if settings.workers.backend == "ray":
        return Check("ok", "ray", usable(settings.workers.address))
    return Check("ok", "engine", f"{settings.workers.count} workers")


def extras() -> Iterator[Check]:
    """A word on each extra that is not installed."""
    for extra, needed_for in _EXTRAS.items():
        if not has_extra(extra):
            text = f"extra not installed; only needed for: {needed_for}"
            yield Check("-", extra, text, f"pip install 'dreamgym-kit[{extra}]'")


def look_at_server(url: str, *, timeout_s: float = 5.0) -> list[Check]:
    """Walk one server's routes; `timeout_s` for each of them.

    Raises:
        UserError: it is no URL that is asked.
    """
    from dreamgym_kit.adapters.models.addresses import Resolver, read_address
    from dreamgym_kit.adapters.models.vllm.launch import is_loopback
    from dreamgym_kit.adapters.models.vllm.looking import open_routes

    address = read_address(url, source="--server")
    host = f"[{address.host}]" if ":" in address.host else address.host
    base = f"{address.scheme}://{host}:{address.port}"
    try:
        Resolver().resolve(address.host, address.port)  # a metadata service is not asked
        ways = list(open_routes(base, timeout_s=timeout_s))
    except (EndpointError, ConnectionError) as error:
        return [Check("fix", "server", str(error))]
    return _open_routes(base, ways, here=is_loopback(address.host))


def _open_routes(base: str, ways: "Sequence[OpenRoute]", *, here: bool) -> list[Check]:
    checks = []
    for kind, can in _CAN.items():
        if paths := [way.path for way in ways if way.kind == kind]:
            level = "stop" if kind == "changes" and not here else "fix"
            text = f"{base} {can} without a key: {', '.join(paths)}"
            checks.append(Check(level, "server", text, _REMEDY))
    if not checks:
        paths = [way.path for way in ways]
        checks.append(Check("ok", "server", f"{base}: without a key only {', '.join(paths) or 'nothing'}"))
    return checks


EXAMPLES = (
    "dreamgym-kit doctor",
    "dreamgym-kit doctor my_agent:graph --tools",
    "dreamgym-kit doctor --server http://127.0.0.1:8000/v1",
    "dreamgym-kit doctor --json",
)
CODES = "Exit codes: 0 a dry run can start; 2 it cannot."
_FRAME = re.compile(r"\S+:\d+( in |: )")  # "/srv/agent.py:2 in <module>: ..."
_FIRST_TASK = '{"id": "first-1", "input": "What can you do?"}'


Servers = Annotated[list[str] | None, options.option("--server", "List its unauthenticated routes.", "URL")]
Verbose = Annotated[
    int, options.option("--verbose -v", "Show settings that are not at their default.", count=True)
]
Tools = Annotated[bool, options.option("--tools", "List every tool and its effect.")]


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
    from dreamgym_kit.replay.masking import masked

    given = options.Given(graph, {"tasks": tasks, "buffer": buffer})
    with prints_on_stderr():
        unmasked = [
            *_checks(given, tools=tools, verbose=verbose > 0),
            *(check for url in servers or () for check in look_at_server(url)),
        ]
    checks = [check._replace(text=masked(check.text)) for check in unmasked]
    stops = sum(check.level == "stop" for check in checks)
    fixes = sum(check.level == "fix" for check in checks)
    step = next((check.step for check in checks if check.level == "stop"), None)
    step = step or (
        ("Then", given.command("doctor"), "once that is mended") if stops else _next(checks, given)
    )
    if as_json:
        shown = ("level", "name", "text", "remedy")
        records = [{name: getattr(check, name) for name in shown} for check in checks]
        say_json({"stop": stops, "fix": fixes, "next": step[1], "checks": records})
    else:
        for check in checks:
            say(_format_check(check))
        say(f" {stops} to stop, {fixes} to fix.\n")
        say_steps(step)
    let_go(2 if stops else 0)
    raise typer.Exit(ExitCode.CANNOT_RUN if stops else 0)


def _next(checks: "Sequence[Check]", given: options.Given) -> Step:
    """What to type when nothing stops: the first thing that a dry run still lacks."""
    lacking = {check.name: check.step for check in checks if check.level == "fix" and check.step is not None}
    for name in ("settings", "tasks", "recordings"):
        if name in lacking:
            return lacking[name]
    return "Dream", given.command("simulate"), "no real tool runs"


def _checks(given: options.Given, *, tools: bool, verbose: bool) -> Iterator[Check]:
    yield versions()
    try:
        settings = given.settings()
    except UserError as error:
        yield Check("stop", "settings", str(error))
        return
    yield _settings(settings, given)
    if verbose:
        yield from _changed_keys(settings)
    facts = yield from _graph(settings, given.graph, tools=tools)
    yield caught("hooks", _hooks)
    yield caught("tasks", partial(_tasks, settings, given, facts))
    yield caught("detectors", partial(_detectors, settings, facts))
    yield caught("recordings", partial(recordings, settings, given.command("record"), facts))
    yield from buffer_server(settings)
    try:
        yield from masking(settings, facts)
    except (StoreError, UserError) as error:
        yield Check("stop", "secrets", str(error))
    yield from experience_models(settings)
    yield from run_folder(settings)
    yield caught("sandbox", partial(sandbox, settings))
    if settings.workers.elsewhere or settings.workers.backend != "local":
        yield caught("engine", partial(engine, settings))
    yield from extras()


def _settings(settings: "Settings", given: options.Given) -> Check:
    if settings.path is None:
        command = typed_command("init", given.graph or "my_agent:graph")
        step = ("Begin", command, "writes dreamgym.toml for you to correct") if given.graph else None
        return Check("fix", "settings", "no dreamgym.toml from here upwards", command, step)
    return Check("ok", "settings", str(settings.path))


def _changed_keys(settings: "Settings") -> Iterator[Check]:
    """Each value that is not the default, and where it comes from."""
    from dreamgym_kit.settings.load import origins

    for key, value, origin in origins(settings, os.environ):
        text = ", ".join(map(str, value)) if isinstance(value, (Mapping, tuple)) else str(value)
        yield Check("-", key, f"{text}  ({origin})")


def _graph(
    settings: "Settings", graph: str | None, *, tools: bool
) -> "Generator[Check, None, GraphInspection | None]":
    """Look at the graph; gives what it holds, None where it cannot be looked at."""
    import asyncio

    from dreamgym_kit.adapters.langgraph.analysis.inspection import look_at_graph

    if settings.graph is None:
        yield _no_graph(settings.folder)
        return None
    try:
        facts = asyncio.run(look_at_graph(settings.graph, settings))
    except UserError as error:
        typed = next_command(error, "doctor", graph, settings.folder)
        why = "looks again" if typed.startswith(("export ", "set ")) else "once that is mended"
        yield Check("stop", "graph", str(error), step=("Then", typed, why))
        return None
    problems = [*facts.problems, *facts.touched]
    verdict = "all can be simulated" if not facts.problems else f"{len(facts.problems)} cannot be simulated"
    count = f"{len(facts.every())} tool{'' if len(facts.every()) == 1 else 's'}"
    yield Check("stop" if facts.problems else "ok", "graph", f"{settings.graph} imports; {count}, {verdict}")
    yield from (Check("stop", "graph", problem) for problem in problems)
    yield from (Check("fix", "graph", warning) for warning in facts.warnings)
    yield from _effects(facts, settings)
    yield _lock(facts, settings)
    yield from _hosts(facts, settings)
    if tools:
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
    graphs = graphs_here(folder)
    if not graphs:
        typed = "dreamgym-kit doctor my_agent:graph"
        return Check("stop", "graph", f"none was named, and none was found in {folder}", f"name it: {typed}")
    typed = typed_command("init", graphs[0])
    text = f"none was named; found here: {', '.join(graphs[:MAX_NAMED])}"
    return Check("stop", "graph", text, step=("Begin", typed, "writes dreamgym.toml for you to correct"))


def _effects(facts: "GraphInspection", settings: "Settings") -> Iterator[Check]:
    from dreamgym_kit.settings import advice

    guessed = [spec for spec in facts.tools if spec.source == "guessed"]
    if not guessed:
        yield Check("ok", "effects", "every tool's effect was said by a person or its author")
        return
    if len(guessed) <= MAX_NAMED:
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

    for host in facts.hosts:
        if not {host, host.rpartition(":")[0]} & {*settings.guard.allow_hosts}:
            text = f"the chat model at {host} is not let through the guard"
            yield Check("fix", "model", text, advice.format_lines(advice.model_allowed(host)))


def _tasks(settings: "Settings", given: options.Given, facts: "GraphInspection | None") -> Check:
    """Whether the tasks can be read, fit the graph, and name code that can be imported."""
    import asyncio
    import tempfile

    from dreamgym_kit.adapters.langgraph.analysis.references import (
        check_tasks,
        checkers_of,
        configured,
        environment_providers,
    )
    from dreamgym_kit.adapters.langgraph.intercept.install import dreaming_process, watched_loading
    from dreamgym_kit.rollout.tasks import read_tasks

    if settings.tasks is None:
        typed = f"echo '{_FIRST_TASK}' > tasks.jsonl && {given.command('doctor', '--tasks', 'tasks.jsonl')}"
        reason = "none named: --tasks FILE, or tasks in dreamgym.toml; one JSON object per line"
        return Check("stop", "tasks", reason, step=("Ask", typed, "a first task, for you to change"))
    file = settings.resolve(settings.tasks)
    tasks = read_tasks(file)
    if not tasks:
        return Check("stop", "tasks", f"{file} holds no task; one JSON object per line")
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
        check_tasks(tasks, facts, settings)
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
    kinds = detectors.by_name
    if facts is not None and (slips := gate_slips(settings.gate, facts, detectors)):
        return Check("fix", "gate", "\n".join(sentence for _, sentence in slips))
    return Check("ok", "detectors", f"{len(kinds)} kinds of finding are looked for")


def _below(line: str) -> str:
    """A further line of a check; a line of somebody's code stays whole, with its place."""
    text = f"{' ' * 19}{line}"
    return text if _FRAME.match(line) else fold(text, indent=19)


def _format_check(check: Check) -> str:
    paint = Paint(color=coloured(sys.stdout))
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
