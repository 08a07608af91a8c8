"""`dreamgym-kit doctor`: what works, what to mend, and what stops a dry run."""

import os
import re
import sys
from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from dreamgym_kit.cli import options
from dreamgym_kit.cli.approving import tool_rows
from dreamgym_kit.cli.doctor_checks import (
    MAX_NAMED,
    Check,
    Step,
    buffer_server,
    caught,
    engine,
    experience_models,
    extras,
    look_at_server,
    masking,
    recordings,
    run_folder,
    sandbox,
    versions,
)
from dreamgym_kit.cli.output import coloured, say, say_json, say_steps
from dreamgym_kit.cli.running import graphs_here, let_go, next_command, prints_on_stderr, typed_command
from dreamgym_kit.errors import ExitCode, StoreError, UserError
from dreamgym_kit.report.colors import Paint, fold
from dreamgym_kit.report.percent import format_count
from dreamgym_kit.report.sanitize import clean, one_line

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dreamgym_kit.adapters.langgraph.analysis.inspection import GraphInspection
    from dreamgym_kit.settings.schema import Settings

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
    from pathlib import Path

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
