"""`dreamgym-kit init`: reads a graph and writes a commented dreamgym.toml, with guesses to correct."""

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dreamgym_kit.cli import options
from dreamgym_kit.cli.approving import format_effects
from dreamgym_kit.cli.output import can_ask, say, say_json, say_steps, tell
from dreamgym_kit.cli.running import graphs_here, let_go, next_command, prints_on_stderr
from dreamgym_kit.errors import UserError
from dreamgym_kit.report.colors import fold
from dreamgym_kit.report.sanitize import one_line

if TYPE_CHECKING:
    from dreamgym_kit.adapters.langgraph.analysis.inspection import GraphInspection
    from dreamgym_kit.adapters.langgraph.intercept.chat_models import AgentModel
    from dreamgym_kit.settings.schema import Settings

EXAMPLES = (
    "dreamgym-kit init my_agent:graph",
    "dreamgym-kit init src/agent.py:build --tasks tasks.jsonl",
    "dreamgym-kit init langgraph.json",
    "dreamgym-kit init my_agent:graph --update",
    "dreamgym-kit init --confirm",
    "dreamgym-kit init --all-settings",
)

_MAX_NAMED = 8
_TASKS = "tasks.jsonl"
_REFERENCE = "dreamgym.reference.toml"
_TOOL_TABLE = re.compile(r"\s*\[\s*tools\s*\.")
_TOOLS_HEADER = re.compile(r"\s*\[\s*tools\s*\]\s*(#.*)?$")

Spec = Annotated[
    str | None,
    options.argument(
        "GRAPH",
        "module:attribute, file.py:attribute or langgraph.json:name; default: the only one found here.",
    ),
]
Update = Annotated[bool, options.option("--update", "Add missing tools to dreamgym.toml and keep the rest.")]
Confirm = Annotated[
    bool, options.option("--confirm", "Mark every guessed effect in dreamgym.toml as confirmed.")
]
AllSettings = Annotated[
    bool, options.option("--all-settings", f"Write {_REFERENCE}, which lists and explains every setting.")
]


def command(
    graph: Spec = None,
    tasks: options.Tasks = None,
    update: Update = False,
    confirm: Confirm = False,
    all_settings: AllSettings = False,
    as_json: options.AsJson = False,
) -> None:
    """Read your graph, list its tools, write dreamgym.toml.

    Imports the graph's module and calls the graph's factory, if there is one; runs no tool. If there is no
    tasks file, also writes one with a first task.
    """
    from dreamgym_kit.settings.schema import SETTINGS_FILE

    file = Path.cwd() / SETTINGS_FILE
    if confirm:
        _confirm(file, as_json=as_json)
        return
    if all_settings:
        _write_reference(file.with_name(_REFERENCE), as_json=as_json)
        return
    if update and file.exists() and _renamed(file):
        return
    settings = _before(file, graph, update=update)
    chosen = graph or settings.graph or _only_one_here(file.parent)
    settings = replace(settings, graph=chosen, tasks=str(tasks or settings.tasks or _TASKS))
    import asyncio

    from dreamgym_kit.adapters.langgraph.analysis.inspection import look_at_graph

    try:
        with prints_on_stderr():
            facts = asyncio.run(look_at_graph(chosen, settings))
    except UserError as error:
        raise UserError(f"{error}\nThen: {next_command(error, 'init', chosen, file.parent)}") from None
    settings = _with_hosts(settings, facts)
    served = facts.served[0] if facts.served and not settings.experience.named else None
    if served is not None and not as_json and _agreed(served):
        experience = replace(
            settings.experience, urls=(served.url,), model=served.model, key_env=served.key_env
        )
        settings, served = replace(settings, experience=experience), None
    _write(file, settings, facts, served, as_json=as_json)
    let_go(0)


def _renamed(file: Path) -> bool:
    """Give keys of an earlier version the names of today, and keep a copy; False where there are none."""
    from dreamgym_kit.rollout.atomic_files import write_atomically
    from dreamgym_kit.settings.load import parse_settings, text_of
    from dreamgym_kit.settings.render import with_new_names

    before = text_of(file)
    text, renames = with_new_names(before)
    if not renames:
        return False
    copy = file.with_name(f"{file.name}.old")
    write_atomically(copy, before.encode("utf-8"))
    write_atomically(file, text.encode("utf-8"))
    say(f" Renamed in {file.name} (the file as it was: {copy.name}):")
    say("".join(f"   {rename}\n" for rename in renames))
    try:
        parse_settings(text, path=file)
    except UserError as error:
        say(" Not carried over, to be corrected or deleted:")
        say("".join(f"   {line}\n" for line in str(error).splitlines()))
    say_steps(("Go on", "dreamgym-kit init --update", "add the tools that the file lacks"))
    return True


def _write_reference(file: Path, *, as_json: bool) -> None:
    from dreamgym_kit.rollout.atomic_files import write_atomically
    from dreamgym_kit.settings.render import render_reference

    write_atomically(file, render_reference().encode("utf-8"))
    if as_json:
        say_json({"reference": str(file)})
    else:
        say(f" Written: {file}. It is not read; copy lines of it into dreamgym.toml.")


def _agreed(served: "AgentModel") -> bool:
    """Ask whether the agent's model may also answer for its tools; where nobody can be asked it may not."""
    if not can_ask():
        return False
    say(f" Your agent asks {served.model} at {served.url}. A dream can ask it what tools answer, too:")
    say(" it is then sent the tools' schemas and the texts of your tasks, and its answers cost tokens.")
    return typer.confirm(" Use it, as [experience]?", default=False, err=True)


def _write(
    file: Path, settings: "Settings", facts: "GraphInspection", served: "AgentModel | None", *, as_json: bool
) -> None:
    from dreamgym_kit.rollout.atomic_files import write_atomically
    from dreamgym_kit.rollout.tool_lock import LOCK_FILE, write_lock
    from dreamgym_kit.settings.load import text_of
    from dreamgym_kit.settings.render import render_settings

    if file.exists():
        written = _added_to(text_of(file), settings, facts)
    else:
        written = render_settings(settings, facts.tools)
    write_atomically(file, written.encode("utf-8"))
    write_lock(file.with_name(LOCK_FILE), str(settings.graph), facts.locked)
    tasks = _first_task(settings, facts)
    if as_json:
        tools = [
            {"name": spec.name, "effect": str(spec.effect), "source": spec.source, "reason": spec.reason}
            for spec in facts.every()
        ]
        record: dict[str, Any] = {"settings": str(file), "tasks": str(tasks) if tasks is not None else None}
        record |= {"tools": tools, "problems": [*facts.problems, *facts.touched]}
        questions = [{"question": question, "line": line} for question, line in facts.questions()]
        offered = "\n".join(served.lines) if served is not None else None
        say_json({**record, "warnings": facts.warnings, "questions": questions, "experience": offered})
    else:
        _show(file, tasks, facts, settings, served)


def _added_to(text: str, settings: "Settings", facts: "GraphInspection") -> str:
    """The file with what it lacks: tools, the graph, the tasks and hosts of models; all else as it is."""
    import tomlkit

    from dreamgym_kit.settings.render import render_effects, render_tool

    new = [spec for spec in facts.tools if spec.kind == "tool" and spec.name not in settings.tools]
    lines = render_effects(new)
    header = next((at for at, line in enumerate(text.split("\n")) if _TOOLS_HEADER.match(line)), None)
    if header is not None:
        before = text.split("\n")
        text = "\n".join([*before[: header + 1], *lines, *before[header + 1 :]])
    elif any(_TOOL_TABLE.match(line) for line in text.split("\n")):  # no [tools] after its tables
        text = "\n".join([text.rstrip(), "", *(line for spec in new for line in render_tool(spec))])
    elif lines:
        text = "\n".join([text.rstrip(), "", "[tools]", *lines, ""])
    document = tomlkit.parse(text)
    tops = {"graph": settings.graph, "tasks": settings.tasks}
    missing = [
        f"{name} = {tomlkit.item(value).as_string()}" for name, value in tops.items() if name not in document
    ]
    for name, value in tops.items():
        if name in document and document[name] != value:
            document[name] = value
    experience = settings.experience
    if experience.urls and "experience" not in document:
        pairs = {"urls": list(experience.urls), "model": experience.model, "key_env": experience.key_env}
        document["experience"] = {name: value for name, value in pairs.items() if value is not None}
    hosts = list(settings.guard.allow_hosts)
    if hosts != list(document.get("guard", {}).get("allow_hosts", [])):
        document.setdefault("guard", tomlkit.table())["allow_hosts"] = hosts
    return "\n".join([*missing, tomlkit.dumps(document)])


def _only_one_here(folder: Path) -> str:
    """The graph that was meant by naming none."""
    graphs = graphs_here(folder)
    if len(graphs) == 1:
        return graphs[0]
    if not graphs:
        raise UserError(
            "no graph was named, and none was found here; name it: dreamgym-kit init my_agent:graph"
        )
    listed = "".join(f"\n  dreamgym-kit init {shlex.quote(graph)}" for graph in graphs[:_MAX_NAMED])
    more = f"\n  and {len(graphs) - _MAX_NAMED} more" if len(graphs) > _MAX_NAMED else ""
    raise UserError(f"no graph was named, and {len(graphs)} were found here; name one:{listed}{more}")


def _confirm(file: Path, *, as_json: bool) -> None:
    """Take `guessed = true` out of the settings, and touch nothing else in them; the same in the lock."""
    from dreamgym_kit.rollout.atomic_files import write_atomically
    from dreamgym_kit.rollout.tool_lock import LOCK_FILE, confirm_lock
    from dreamgym_kit.settings.load import load_settings

    if not file.exists():
        raise UserError(f"{file}: there is no such file yet; write it with: dreamgym-kit init my_agent:graph")
    load_settings(file=file, environ={})
    # the bytes as they are, also with the line ends of Windows
    text, confirmed = _without_guesses(file.read_bytes().decode("utf-8"))
    write_atomically(file, text.encode("utf-8"))
    effects = {name: tool.effect for name, tool in load_settings(file=file, environ={}).tools.items()}
    confirmed = max(confirmed, confirm_lock(file.with_name(LOCK_FILE), effects))
    if as_json:
        say_json({"settings": str(file), "confirmed": confirmed})
        return
    places = f"in {file.name}"
    singular, plural = f"effect {places} is no longer a guess", f"effects {places} are no longer guesses"
    say(f" {confirmed} {singular if confirmed == 1 else plural}.")
    say_steps(("Check", "dreamgym-kit doctor", "what is still missing"))


def _without_guesses(text: str) -> tuple[str, int]:
    """Settings without guesses such as `name = "read?"` and `name = {effect = "read", guessed = true}`."""
    import tomlkit

    document = tomlkit.parse(text)
    tools: Any = document.get("tools", {})
    guessed = 0
    for name, tool in tools.items():
        if not isinstance(tool, dict) and str(tool).endswith("?"):
            item = tomlkit.string(str(tool).removesuffix("?"))
            item.trivia.comment_ws, item.trivia.comment = tool.trivia.comment_ws, tool.trivia.comment
            tools[name] = item
            guessed += 1
        elif isinstance(tool, dict) and tool.get("guessed"):
            del tool["guessed"]
            guessed += 1
    return (tomlkit.dumps(document), guessed) if guessed else (text, 0)


def _first_task(settings: "Settings", facts: "GraphInspection") -> Path | None:
    """Write a tasks file to start from where there is none; gives it if it was written."""
    from dreamgym_kit.rollout.atomic_files import write_atomically

    file = settings.resolve(settings.tasks or _TASKS)
    if file.exists() or not file.parent.is_dir():
        return None
    task = {"id": "first-1", "input": facts.example}
    write_atomically(file, f"{json.dumps(task)}\n".encode())
    return file


def _before(file: Path, graph: str | None, *, update: bool) -> "Settings":
    from dreamgym_kit.settings.load import load_settings
    from dreamgym_kit.settings.schema import Settings

    if not file.exists():
        return Settings()
    if not update:
        typed = ["dreamgym-kit", "init", *([graph] if graph else [])]
        raise UserError(
            f"{file} is there already and was left alone; --update keeps what it says and "
            f"adds the tools that it lacks.\nThen: {shlex.join([*typed, '--update'])}"
        )
    return load_settings(file=file, environ={})


def _with_hosts(settings: "Settings", facts: "GraphInspection") -> "Settings":
    """Allow the hosts of the graph's chat models."""
    allowed = settings.guard.allow_hosts
    new = tuple(
        host for host in facts.hosts if host not in allowed and host.rpartition(":")[0] not in allowed
    )
    return replace(settings, guard=replace(settings.guard, allow_hosts=(*allowed, *new)))


def _show(
    file: Path,
    first: Path | None,
    facts: "GraphInspection",
    settings: "Settings",
    served: "AgentModel | None",
) -> None:
    """Show what was written; `first`: a tasks file; `served`: a model that a dream could ask."""
    say(f" {len(facts.every())} tool{'' if len(facts.every()) == 1 else 's'} found:")
    say(format_effects(facts.every(), written=file.name))
    for problem in (*facts.problems, *facts.touched, *facts.warnings):
        tell(fold(f"fix: {one_line(problem)}", indent=2))
    for question, line in facts.questions():
        say(fold(f" ? {one_line(question)}", indent=3))
        say(f"     {one_line(line)}")
    if served is not None:
        question_text = (
            f"may a dream ask your agent's model {one_line(served.model)} what tools answer? It is sent"
        )
        say(fold(f" ? {question_text} schemas and task texts. Then add to {file.name}:", indent=3))
        say("".join(f"     {one_line(line)}\n" for line in served.lines).rstrip("\n"))
    say(f"\n Written: {file}")
    tasks, guesses = settings.tasks or _TASKS, any(spec.source == "guessed" for spec in facts.every())
    if first is not None:
        say(f" Written: {first}")
    steps = [
        *([("Correct", file.name, "the guessed effects: a dry run rests on them")] if guesses else []),
        *([("Edit", tasks, "what your agent is to do, one task per line")] if first is not None else []),
        ("Check", "dreamgym-kit doctor", "what is still missing"),
        ("Record", "dreamgym-kit record", "real calls for dreams to answer from"),
        ("Dream", "dreamgym-kit simulate", "no real tool runs"),
    ]
    say_steps(*steps)
