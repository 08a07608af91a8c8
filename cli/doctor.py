"""`dreamgym-kit doctor`: what works, what to mend, and what stops a dry run."""

import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from dreamgym_kit.cli import options
from dreamgym_kit.cli.output import coloured, say, say_json

if TYPE_CHECKING:
    from pathlib import Path

    from dreamgym_kit.adapters.langgraph.inspecting import GraphFacts
    from dreamgym_kit.settings.model import Settings

EXAMPLES = (
    "dreamgym-kit doctor",
    "dreamgym-kit doctor my_agent:graph --tools",
    "dreamgym-kit doctor --json",
)
CODES = "Exit codes: 0 nothing stops a dry run; 2 something does."
_EXTRAS = {"desk": (("langchain", "langchain_mcp_adapters", "mcp"), "demo")}

Tools = Annotated[bool, typer.Option("--tools", help="List every tool and its effect.", show_default=False)]


@dataclass(frozen=True, slots=True)
class Check:
    """One line: how it stands, with what, and what to do."""

    level: str  # ok, fix, stop, -
    name: str
    text: str
    remedy: str = ""


def command(
    graph: options.Graph = None,
    tasks: options.Tasks = None,
    buffer: options.Buffer = None,
    settings_file: options.SettingsFile = None,
    tools: Tools = False,
    as_json: options.AsJson = False,
) -> None:
    """Check settings, graph, tasks, recordings and packages; imports the graph, runs no tool."""
    from dreamgym_kit.replay.masking import masked_text

    found = _checks(graph, tasks, buffer, settings_file, tools=tools)
    checks = [replace(check, text=masked_text(check.text)) for check in found]
    stops = sum(check.level == "stop" for check in checks)
    fixes = sum(check.level == "fix" for check in checks)
    if as_json:
        say_json({"stop": stops, "fix": fixes, "checks": [asdict(check) for check in checks]})
    else:
        for check in checks:
            say(_told(check))
        say(f" {stops} to stop, {fixes} to fix." + ("" if stops else " Then: dreamgym-kit simulate"))
    raise typer.Exit(2 if stops else 0)


def _checks(
    graph: str | None, tasks: "Path | None", buffer: "Path | None", file: "Path | None", *, tools: bool
) -> Iterator[Check]:
    from dreamgym_kit.errors import UserError

    yield _versions()
    try:
        settings = options.settings_for(graph, file, {"tasks": tasks, "buffer": buffer})
    except UserError as error:
        yield Check("stop", "settings", str(error))
        return
    yield _settings(settings)
    yield from _graph(settings, tools=tools)
    for name, check in (("tasks", _tasks), ("recordings", _recordings)):
        yield _caught(name, check, settings)
    yield from _extras()


def _caught(name: str, check: "Callable[[Settings], Check]", settings: "Settings") -> Check:
    from dreamgym_kit.errors import UserError

    try:
        return check(settings)
    except UserError as error:
        return Check("stop", name, str(error))


def _versions() -> Check:
    from importlib.metadata import PackageNotFoundError, version

    told = [f"Python {platform.python_version()}"]
    for package in ("dreamgym-kit", "langgraph", "langchain-core"):
        try:
            told.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            return Check("stop", "packages", f"{package} is not installed", f"pip install {package}")
    return Check("ok", "packages", ", ".join(told))


def _settings(settings: "Settings") -> Check:
    if settings.path is None:
        return Check(
            "fix", "settings", "no dreamgym.toml from here upwards", "dreamgym-kit init my_agent:graph"
        )
    return Check("ok", "settings", str(settings.path))


def _graph(settings: "Settings", *, tools: bool) -> Iterator[Check]:
    import asyncio

    from dreamgym_kit.adapters.langgraph.inspecting import inspect_graph
    from dreamgym_kit.errors import UserError

    try:
        spec = options.graph_of(settings, "doctor")
        facts = asyncio.run(inspect_graph(spec, settings))
    except UserError as error:
        yield Check("stop", "graph", str(error))
        return
    held = "all can be simulated" if not facts.problems else f"{len(facts.problems)} cannot be simulated"
    yield Check(
        "stop" if facts.problems else "ok", "graph", f"{spec} imports; {len(facts.tools)} tools, {held}"
    )
    yield from (Check("stop", "graph", problem) for problem in facts.problems)
    yield from (Check("fix", "graph", warning) for warning in facts.warnings)
    yield from _effects(facts, settings)
    yield from _hosts(facts, settings)
    if tools:
        yield from (
            Check("-", spec.name, f"{spec.effect} ({spec.source}{': ' if spec.reason else ''}{spec.reason})")
            for spec in facts.tools
        )


def _effects(facts: "GraphFacts", settings: "Settings") -> Iterator[Check]:
    guessed = [spec for spec in facts.tools if spec.source == "guessed"]
    if not guessed:
        yield Check("ok", "effects", "every tool's effect was said by a person or its author")
        return
    names = ", ".join(f"{spec.name} ({spec.effect})" for spec in guessed)
    first = guessed[0]
    written = first.name in settings.tools
    remedy = (
        f"{settings.where('tools', first.name)}  correct the effect, then delete guessed = true"
        if written
        else f'dreamgym.toml  [tools.{first.name}] effect = "{first.effect}"'
    )
    yield Check("fix", "effects", f"{len(guessed)} guessed: {names}", remedy)


def _hosts(facts: "GraphFacts", settings: "Settings") -> Iterator[Check]:
    allowed = settings.guard.allow_hosts
    for host in facts.hosts:
        if host not in allowed and host.rpartition(":")[0] not in allowed:
            text = f"the chat model at {host} is not let through the guard"
            yield Check("fix", "model", text, f'dreamgym.toml  [guard] allow_hosts = ["{host}"]')


def _tasks(settings: "Settings") -> Check:
    from dreamgym_kit.rollout.tasks import read_tasks

    if settings.tasks is None:
        return Check(
            "fix", "tasks", "no tasks file in settings", "--tasks tasks.jsonl, or tasks in dreamgym.toml"
        )
    file = settings.resolve(settings.tasks)
    return Check("ok", "tasks", f"{len(read_tasks(file))} in {file}")


def _recordings(settings: "Settings") -> Check:
    from dreamgym_kit.adapters.stores.sqlite import SqliteStore

    file = settings.resolve(settings.buffer)
    if not file.exists():
        return Check(
            "fix", "recordings", f"none yet ({file}); the dream can answer nothing", "dreamgym-kit record"
        )
    store = SqliteStore(file, read_only=True)
    try:
        return Check("ok", "recordings", f"{store.count()} calls in {file}")
    finally:
        store.close()


def _extras() -> Iterator[Check]:
    from importlib.util import find_spec

    for extra, (packages, needed_for) in _EXTRAS.items():
        if any(find_spec(package) is None for package in packages):
            text = f"extra not installed; only needed for: {needed_for}"
            yield Check("-", extra, text, f"pip install 'dreamgym-kit[{extra}]'")


def _told(check: Check) -> str:
    from dreamgym_kit.report.clean import one_line
    from dreamgym_kit.report.paint import Paint
    from dreamgym_kit.report.terminal import fold

    paint = Paint(colour=coloured(sys.stdout))
    colour = {"ok": paint.green, "fix": paint.yellow, "stop": paint.red}.get(check.level, paint.dim)
    first, *more = check.text.split("\n")
    text = fold(f" {check.level:<5} {one_line(check.name):<11} {one_line(first)}", indent=19)
    lines = [text.replace(check.level, colour(check.level), 1)]
    lines += [f"{' ' * 19}{one_line(line)}" for line in more]
    if check.remedy:
        lines.append(f"{' ' * 19}{one_line(check.remedy)}")
    return "\n".join(lines)
