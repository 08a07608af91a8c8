"""langgraph.json: which graph is meant, and where its code and its environment come from.

As `langgraph dev` reads it: folders among the dependencies are put on the module path, and the
environment fills in what is not set yet.
"""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dotenv import dotenv_values

from dreamgym_kit.bounded_json import read_json
from dreamgym_kit.errors import AmbiguousGraph, NotSerializable, UnknownName, UserError
from dreamgym_kit.serialization import JsonValue

PROJECT_FILE = "langgraph.json"


@dataclass(frozen=True, slots=True)
class ProjectGraph:
    """One graph of a project.

    Attributes:
        target: "./src/agent.py:graph", as the file says it, relative to `folder`.
        missing_env: the environment file that the project names and that is not there.
    """

    target: str
    folder: Path
    missing_env: Path | None = None


def graphs_of(file: Path) -> Mapping[str, JsonValue]:
    """Give the graphs that a project names.

    Raises:
        UserError: no such file, no JSON, or it names no graph.
    """
    graphs = _read(file).get("graphs")
    if not isinstance(graphs, dict) or not graphs:
        raise UserError(f'{file}: has no "graphs": nothing to run')
    return graphs


def project_graph(file: Path, name: str) -> ProjectGraph:
    """Find one graph, and take over its environment and its folders of code.

    Args:
        file: the project file.
        name: of the graph; "" where there is only one.

    Raises:
        UserError: see `graphs_of`; or no such graph, or it names no path, or several and none was named.
    """
    graphs = graphs_of(file)
    if not name and len(graphs) > 1:
        raise AmbiguousGraph(str(file), [f"{file.name}:{graph}" for graph in graphs])
    chosen = name or next(iter(graphs))
    if chosen not in graphs:
        raise UnknownName("graph", chosen, known=graphs, source=str(file), where="its graphs")
    entry = graphs[chosen]
    target = entry.get("path") if isinstance(entry, dict) else entry
    if not isinstance(target, str):
        raise UserError(f"{file}: graph '{chosen}' has no path")
    project = _read(file)
    _take_folders(file.parent, project.get("dependencies"))
    return ProjectGraph(target, file.parent, _take_environment(file.parent, project.get("env")))


def _read(file: Path) -> Mapping[str, JsonValue]:
    if not file.is_file():
        raise UserError(f"{file}: no such file")
    try:
        project = read_json(file.read_bytes())
    except NotSerializable as error:
        raise UserError(f"{file}: {error}") from None
    return project if isinstance(project, dict) else {}


def _take_folders(folder: Path, dependencies: JsonValue) -> None:
    """Local folders go on the path behind what is there; packages are a matter of `pip install`."""
    for dependency in dependencies if isinstance(dependencies, list) else ():
        place = (
            (folder / dependency).resolve()
            if isinstance(dependency, str) and dependency.startswith(".")
            else None
        )
        if place is not None and place.is_dir() and str(place) not in sys.path:
            sys.path.append(str(place))


def _take_environment(folder: Path, env: JsonValue) -> Path | None:
    """Set what is not set yet; gives the file that was named and is not there."""
    values: Mapping[str, str | None] = {}
    if isinstance(env, str) and env:
        if not (folder / env).is_file():
            return folder / env
        values = dotenv_values(folder / env)
    elif isinstance(env, dict):
        values = {str(key): str(value) for key, value in env.items()}
    for key, value in values.items():
        if value is not None:
            os.environ.setdefault(key, value)
    return None
