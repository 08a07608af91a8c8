"""From what a person writes ("my_agent:graph") to a compiled graph, kept open as long as it is used.

Takes `module:attr`, `file.py:attr`, `langgraph.json[:name]` or a live object; compiled graphs,
`StateGraph`s, and factories: plain, async, or (async) context managers, with no argument or `config`.
"""

import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import AsyncIterator, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    asynccontextmanager,
)
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any

from dotenv import dotenv_values
from langgraph.pregel import Pregel

from dreamgym_kit.errors import EpisodeStop, NotJson, UnknownName, UserError
from dreamgym_kit.jsonread import read_json

PROJECT_FILE = "langgraph.json"


@asynccontextmanager
async def open_graph(source: object, *, folder: Path | None = None) -> AsyncIterator[Pregel[Any]]:
    """Load a graph and keep it open.

    Args:
        source: a spec (see module docstring), or a graph, StateGraph or factory.
        folder: what relative files and modules are looked up from; the current folder when None.

    Raises:
        UserError: nothing there, not importable (with the user's own frames), no graph, a factory
            that fails or wants something that we cannot give.
    """
    named = source if isinstance(source, str) else type(source).__name__
    found = load_object(source, folder=folder) if isinstance(source, str) else source
    raised: BaseException | None = None
    try:
        async with AsyncExitStack() as stack:
            graph = await _as_graph(found, named, stack)
            try:
                yield graph
            except BaseException as error:
                raised = error
                raise
    except BaseException as error:
        if raised is None or error is raised:
            raise
        # A user's context manager with a task group wraps what passes it; ours is what matters.
        raise raised from None


def load_object(spec: str, *, folder: Path | None = None, kind: str = "graph") -> object:
    """What a spec names, imported. The project's folder is on `sys.path` from then on.

    Args:
        spec: see module docstring.
        folder: what relative files and modules are looked up from; the current folder when None.
        kind: what messages call the thing that was named.
    """
    start = (folder or Path.cwd()).resolve()
    path, attribute = _split(spec)
    if Path(path).name == PROJECT_FILE:
        path, attribute, start = _from_project(start / path, attribute)
    if not attribute or not path or (path.startswith(".") and not path.endswith(".py")):
        forms = "module:attribute or file.py:attribute" + (f" or {PROJECT_FILE}" if kind == "graph" else "")
        raise UserError(f"{kind} '{spec}': write it as {forms}")
    module = _import_file(start / path, start) if path.endswith(".py") else _import_module(path, start)
    return _attribute(module, attribute, f"{kind} '{spec}'")


def load_named(reference: str, *, kind: str, where: str, folder: Path | None) -> Any:
    """What settings or tasks name; an error begins with the place where the name stands."""
    try:
        return load_object(reference, folder=folder, kind=kind)
    except UserError as error:
        raise UserError(f"{where}: {error}") from None


def _split(spec: str) -> tuple[str, str]:
    path, colon, attribute = spec.rpartition(":")
    if not colon or "/" in attribute or "\\" in attribute:
        return spec, ""
    return path, attribute


def _from_project(file: Path, name: str) -> tuple[str, str, Path]:
    """Resolve a graph of a langgraph.json, and take over its environment where nothing is set yet."""
    if not file.is_file():
        raise UserError(f"{file}: no such file")
    try:
        project = read_json(file.read_bytes())
    except NotJson as error:
        raise UserError(f"{file}: {error}") from None
    graphs = project.get("graphs") if isinstance(project, dict) else None
    if not isinstance(graphs, dict) or not graphs:
        raise UserError(f'{file}: has no "graphs": nothing to run')
    if not name and len(graphs) > 1:
        listed = ", ".join(f"{file.name}:{one}" for one in graphs)
        raise UserError(f"{file}: has {len(graphs)} graphs; name one: {listed}")
    chosen = name or next(iter(graphs))
    if chosen not in graphs:
        raise UnknownName("graph", chosen, known=graphs, source=str(file), where="its graphs")
    entry = graphs[chosen]
    target = entry.get("path") if isinstance(entry, dict) else entry
    if not isinstance(target, str):
        raise UserError(f"{file}: graph '{chosen}' has no path")
    _take_environment(file, project.get("env"))
    path, attribute = _split(target)
    return path, attribute, file.parent


def _take_environment(file: Path, env: object) -> None:
    import os

    values: Mapping[str, str | None] = {}
    if isinstance(env, str) and (file.parent / env).is_file():
        values = dotenv_values(file.parent / env)
    elif isinstance(env, dict):
        values = {str(key): str(value) for key, value in env.items()}
    for key, value in values.items():
        if value is not None:
            os.environ.setdefault(key, value)


def _import_module(name: str, start: Path) -> ModuleType:
    _on_path(start)
    try:
        return importlib.import_module(name)
    except EpisodeStop as stop:
        raise UserError(f"importing {name}: {stop}") from None
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise UserError(f"no module '{name}' from {start}; {_near_module(name, start)}") from None
        raise UserError(f"importing {name} failed: {error}\n{_own_frames(error)}") from None
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        raise UserError(f"importing {name} failed: {_short(error)}\n{_own_frames(error)}") from None


def _near_module(name: str, start: Path) -> str:
    """The module of the project's folder that was probably meant."""
    here = [path.stem for path in start.glob("*.py")] + [
        path.parent.name for path in start.glob("*/__init__.py")
    ]
    near = get_close_matches(name, here, n=1)
    return f"did you mean '{near[0]}'?" if near else "is the name right, and its package installed?"


def _import_file(file: Path, start: Path) -> ModuleType:
    if not file.is_file():
        raise UserError(f"{file}: no such file")
    _on_path(start)
    _on_path(file.parent)
    name = file.stem
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__file__", None) == str(file):
        return known
    if known is None:
        return _import_module(name, file.parent)
    spec = importlib.util.spec_from_file_location(f"dreamgym_user_{name}", file)
    if spec is None or spec.loader is None:
        raise UserError(f"{file}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        sys.modules.pop(spec.name, None)
        if isinstance(error, KeyboardInterrupt):
            raise
        raise UserError(f"importing {file} failed: {_short(error)}\n{_own_frames(error)}") from None
    return module


def _on_path(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _attribute(module: ModuleType, attribute: str, source: str) -> object:
    value: object = module
    for part in attribute.split("."):
        if not hasattr(value, part):
            near = [name for name, one in vars(module).items() if _could_be_graph(one)]
            raise UnknownName("name", attribute, known=near, source=source, where=module.__name__)
        value = getattr(value, part)
    return value


def _could_be_graph(value: object) -> bool:
    return isinstance(value, Pregel) or hasattr(value, "compile") or inspect.isfunction(value)


async def _as_graph(found: object, named: str, stack: AsyncExitStack) -> Pregel[Any]:
    """Unwrap factories and builders until a compiled graph is there."""
    value: Any = found
    for _ in range(4):
        if isinstance(value, Pregel):
            return value
        try:
            unwrapped = await _unwrap(value, named, stack)
        except (UserError, KeyboardInterrupt):
            raise
        except EpisodeStop as stop:
            raise UserError(f"building the graph '{named}': {stop}") from None
        except BaseException as error:  # noqa: BLE001  a user's factory may end in anything
            raise UserError(
                f"building the graph '{named}' failed: {_short(error)}\n{_own_frames(error)}"
            ) from None
        if unwrapped is value:
            break
        value = unwrapped
    raise UserError(
        f"graph '{named}' is of type {type(value).__name__}, not a graph: a compiled graph, a StateGraph, "
        "or a function that makes one is needed"
    )


async def _unwrap(value: Any, named: str, stack: AsyncExitStack) -> Any:
    if isinstance(value, AbstractAsyncContextManager):
        return await stack.enter_async_context(value)
    if isinstance(value, AbstractContextManager) and not isinstance(value, Pregel):
        return stack.enter_context(value)
    if inspect.isawaitable(value):
        return await value
    if hasattr(value, "compile") and hasattr(value, "add_node"):
        return value.compile()
    if inspect.isroutine(value) or isinstance(value, type):
        return _call_factory(value, named)
    return value


def _call_factory(factory: Any, named: str) -> Any:
    needed = [
        parameter
        for parameter in inspect.signature(factory).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if not needed:
        return factory()
    if len(needed) == 1 and ("config" in needed[0].name or "RunnableConfig" in str(needed[0].annotation)):
        return factory({"configurable": {}})
    wanted = ", ".join(parameter.name for parameter in needed)
    raise UserError(
        f"graph '{named}' is a factory that wants ({wanted}); the kit can call factories with no argument or "
        "with `config`. Write a small function that calls it, and name that one"
    )


def _short(error: BaseException) -> str:
    text = str(error).strip().split("\n", 1)[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _own_frames(error: BaseException) -> str:
    """The user's part of the traceback: no frames of ours, of importlib or of installed packages."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "dreamgym_kit" not in frame.filename
        and not frame.filename.startswith("<")
        and "site-packages" not in frame.filename
        and "/lib/python" not in frame.filename
    ]
    lines = [f"  {frame.filename}:{frame.lineno} in {frame.name}: {frame.line}" for frame in frames[-6:]]
    if isinstance(error, SyntaxError) and error.filename:  # the line that does not parse has no frame
        lines.append(f"  {error.filename}:{error.lineno}: {(error.text or '').strip()}")
    return "\n".join(lines) or "  (no frame of your own code)"
