"""`dreamgym-kit init`: reads a graph and writes a commented dreamgym.toml, with guesses to correct."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dreamgym_kit.cli import options
from dreamgym_kit.cli.output import say, say_json, tell

if TYPE_CHECKING:
    from dreamgym_kit.adapters.langgraph.inspecting import GraphFacts
    from dreamgym_kit.settings.model import Settings

EXAMPLES = (
    "dreamgym-kit init my_agent:graph",
    "dreamgym-kit init src/agent.py:build --tasks tasks.jsonl",
    "dreamgym-kit init langgraph.json",
    "dreamgym-kit init my_agent:graph --update",
)

_MOST_MINED = 20_000  # recorded calls; mining more would keep a person waiting
_OFFER = (
    "# Mined from the recordings; a dream goes by it anyway. To correct a rule, or to keep it whatever is",
    "# recorded later, remove the # in front of it: what is said here is believed before what is mined.",
)

Spec = Annotated[str, typer.Argument(help="module:attribute, file.py:attribute or langgraph.json:name.")]
Update = Annotated[
    bool,
    typer.Option(
        "--update", help="Keep what dreamgym.toml says and add the tools that it lacks.", show_default=False
    ),
]


def command(
    graph: Spec,
    tasks: options.Tasks = None,
    update: Update = False,
    as_json: options.AsJson = False,
) -> None:
    """Read a graph, list its tools with guessed effects, and write dreamgym.toml here.

    Imports the graph's module and calls its factory, if it is one; runs no tool.
    """
    import asyncio

    from dreamgym_kit.adapters.langgraph.inspecting import inspect_graph
    from dreamgym_kit.rollout.files import write_atomically
    from dreamgym_kit.settings.model import SETTINGS_FILE
    from dreamgym_kit.settings.render import render_settings

    file = Path.cwd() / SETTINGS_FILE
    settings = _before(file, update=update).with_overrides(
        {"graph": graph, "tasks": str(tasks) if tasks is not None else None}
    )
    facts = asyncio.run(inspect_graph(graph, settings))
    settings = _with_hosts(settings, facts)
    offered = _offered(settings)
    written = "\n".join([render_settings(settings, facts.tools), *offered])
    write_atomically(file, written.encode("utf-8"))
    _show(file, facts, offered=sum(line.startswith("# [tools.") for line in offered), as_json=as_json)


def _before(file: Path, *, update: bool) -> "Settings":
    from dreamgym_kit.errors import UserError
    from dreamgym_kit.settings.load import load_settings
    from dreamgym_kit.settings.model import Settings

    if not file.exists():
        return Settings()
    if not update:
        raise UserError(
            f"{file} is there already and was left alone; --update keeps what it says (but not its comments) "
            "and adds the tools that it lacks."
        )
    return load_settings(file=file, environ={})


def _offered(settings: "Settings") -> list[str]:
    """What recordings show of tools that settings do not describe, as comments to take over."""
    from dreamgym_kit.cli.rules import recorded, settings_lines
    from dreamgym_kit.dream.state.mining import mine

    episodes = recorded(settings, needed=False)
    calls = sum(len(episode.steps) for episode in episodes)
    if calls > _MOST_MINED:
        tell(f"{calls} recorded calls: what they show is told by dreamgym-kit buffer rules --toml")
    if not 0 < calls <= _MOST_MINED:
        return []
    models = mine(episodes)
    said = {name for name, tool in settings.tools.items() if tool.model is not None}
    tools = sorted({tool for tool, _ in models.answers} - said)
    lines = settings_lines(models, episodes, tools)
    return ["", *_OFFER, *(f"# {line}".rstrip() for line in lines), ""] if lines else []


def _with_hosts(settings: "Settings", facts: "GraphFacts") -> "Settings":
    """The chat model's host has to be let through; it was found in the graph itself."""
    known = settings.guard.allow_hosts
    new = tuple(host for host in facts.hosts if host not in known and host.rpartition(":")[0] not in known)
    return replace(settings, guard=replace(settings.guard, allow_hosts=(*known, *new)))


def _show(file: Path, facts: "GraphFacts", *, offered: int, as_json: bool) -> None:
    from dreamgym_kit.cli.record import effects_told
    from dreamgym_kit.report.clean import one_line
    from dreamgym_kit.report.terminal import fold, next_steps

    if as_json:
        tools = [
            {"name": spec.name, "effect": str(spec.effect), "source": spec.source, "reason": spec.reason}
            for spec in facts.tools
        ]
        say_json(
            {
                "settings": str(file),
                "tools": tools,
                "offered": offered,
                "problems": facts.problems,
                "warnings": facts.warnings,
            }
        )
        return
    say(f" {len(facts.tools)} tools found:")
    say(effects_told(facts.tools))
    for problem in (*facts.problems, *facts.warnings):
        tell(fold(f"to mend: {one_line(problem)}", indent=2))
    say(f"\n Written: {file}")
    if offered:
        say(
            f" At its end, as comments: what the recordings show of {offered} tools. Take over what is right."
        )
    steps = [
        ("Correct", file.name, "the guessed effects: a dry run rests on them"),
        ("Check", "dreamgym-kit doctor", "what is still missing"),
        ("Record", "dreamgym-kit record --tasks tasks.jsonl", "real calls for dreams to answer from"),
        ("Dream", "dreamgym-kit simulate --tasks tasks.jsonl", "no real tool runs"),
    ]
    say(next_steps(steps))
