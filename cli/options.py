"""Options that several commands share, and the settings that come of them.

Only typer and the standard library at the top: `--help` imports every command module.
"""

from collections.abc import Mapping
from enum import StrEnum
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from dreamgym_kit.rollout.shards import Shard
    from dreamgym_kit.settings.schema import Settings


class Abstain(StrEnum):
    """What happens when the dream cannot tell."""

    STOP = "stop"
    ERROR = "error"


class Engines(StrEnum):
    """Where workers are."""

    LOCAL = "local"
    RAY = "ray"


Graph = Annotated[
    str | None,
    typer.Argument(
        metavar="GRAPH",
        help="module:attribute, file.py:attribute or langgraph.json:name; else the settings' graph.",
        show_default=False,
    ),
]
Tasks = Annotated[
    Path | None, typer.Option("--tasks", help="Tasks, one JSON object a line.", show_default=False)
]
Buffer = Annotated[
    str | None,
    typer.Option(
        "--buffer",
        metavar="FILE",
        help="Recordings: an SQLite file, or an address (weaviate://host?tenant=shop).",
        show_default=False,
    ),
]
Runs = Annotated[Path | None, typer.Option("--runs", help="Folder that holds the runs.", show_default=False)]
SettingsFile = Annotated[
    Path | None,
    typer.Option("--settings", help="This settings file, not the nearest dreamgym.toml.", show_default=False),
]
Episodes = Annotated[
    int | None, typer.Option("--n", "-n", min=1, help="Episodes per task.", show_default=False)
]
Concurrency = Annotated[
    int | None, typer.Option("--concurrency", min=1, help="Episodes at once.", show_default=False)
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        min=0,
        help="Processes that run the episodes; 0: this one.",
        show_default=False,
    ),
]
Engine = Annotated[
    Engines | None,
    typer.Option("--engine", help="Where they run: here, or in a Ray cluster.", show_default=False),
]
Address = Annotated[
    str | None,
    typer.Option(
        "--address",
        metavar="HOST:PORT",
        help="The Ray cluster to join, or auto; none: one is started here.",
        show_default=False,
    ),
]
Share = Annotated[
    str | None,
    typer.Option(
        "--shard", metavar="I/N", help="Only every N-th task, from the I-th on.", show_default=False
    ),
]
Seed = Annotated[int | None, typer.Option("--seed", min=0, help="Same seed, same run.", show_default=False)]
Steps = Annotated[
    int | None, typer.Option("--steps", min=1, help="Most tool calls of one episode.", show_default=False)
]
Seconds = Annotated[
    float | None, typer.Option("--seconds", min=0.1, help="Most seconds of one episode.", show_default=False)
]
Recursion = Annotated[
    int | None, typer.Option("--recursion", min=1, help="LangGraph's recursion limit.", show_default=False)
]
Calls = Annotated[
    int | None, typer.Option("--calls", min=0, help="Most tool calls of the whole run.", show_default=False)
]
Usd = Annotated[
    float | None,
    typer.Option("--usd", min=0, help="Most model spend of the whole run, in USD.", show_default=False),
]
Tenant = Annotated[str | None, typer.Option("--tenant", help="Whose recordings.", show_default=False)]
Resume = Annotated[
    Path | None,
    typer.Option("--resume", help="Go on with this run directory.", show_default=False, metavar="RUN"),
]
Policy = Annotated[
    str | None,
    typer.Option(
        "--policy",
        metavar="DIR",
        help="Model directory (with policy.urls: served name) that answers in place of the agent's models.",
        show_default=False,
    ),
]
Plain = Annotated[
    bool, typer.Option("--plain", help="Progress as plain lines, as when it is piped.", show_default=False)
]
AsJson = Annotated[
    bool, typer.Option("--json", help="One JSON object on stdout, nothing else.", show_default=False)
]


def settings_for(
    graph: str | None = None, file: Path | None = None, overrides: Mapping[str, object] | None = None
) -> "Settings":
    """Read the settings that hold for this command line; flags win over environment and file.

    Paths among the flags are relative to the current folder, so they are made absolute here.
    """
    from dreamgym_kit.settings.load import graph_from_here, load_settings
    from dreamgym_kit.settings.places import place_of

    start = None
    if graph is not None:
        place = Path(graph_from_here(graph).rpartition(":")[0] or graph)
        start = place.parent if place.is_absolute() else None
    settings = load_settings(start, file=file)
    finite(overrides or {})
    flags = {
        key: str(flag.absolute()) if isinstance(flag, Path) else flag
        for key, flag in (overrides or {}).items()
    }
    if isinstance(buffer := flags.get("buffer"), str):
        flags["buffer"] = str(place_of(buffer, Path.cwd(), source="--buffer"))
    return settings.with_overrides(flags | {"graph": graph_from_here(graph) if graph is not None else None})


def finite(flags: Mapping[str, object]) -> None:
    """Refuse "inf", as the settings file does: no journal could hold it, and leaving a limit out is none."""
    from dreamgym_kit.errors import UserError

    for key, value in flags.items():
        if isinstance(value, float) and not isfinite(value):
            name = key.rpartition(".")[2].replace("_", "-")
            raise UserError(f"{name}: {value} is no number to work with; leave it out for no limit.")


def shard_of(said: str | None) -> "Shard | None":
    """The part of the tasks that --shard names."""
    from dreamgym_kit.rollout.shards import shard_from

    return shard_from(said) if said is not None else None


def graph_of(settings: "Settings", command: str) -> str:
    """The graph to use, or the error that says how to name one."""
    from dreamgym_kit.errors import UserError

    if settings.graph is None:
        raise UserError(
            f"no graph: name one (dreamgym-kit {command} my_agent:graph), or write settings for it "
            "(dreamgym-kit init my_agent:graph)."
        )
    return settings.graph


def tasks_of(settings: "Settings", command: str) -> Path:
    """The tasks file to use, or the error that says how to name one."""
    from dreamgym_kit.errors import UserError

    if settings.tasks is None:
        raise UserError(
            f"no tasks: name a file (dreamgym-kit {command} --tasks tasks.jsonl), or set tasks in "
            f"{settings.where()}. One JSON object a line, for example: "
            '{"id": "hello-1", "input": "What can you do?"}'
        )
    return settings.resolve(settings.tasks)
