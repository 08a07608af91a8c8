"""From what a person writes ("my_agent:graph") to a compiled graph, kept open as long as it is used.

Takes `module:attr`, `file.py:attr`, `langgraph.json[:name]` or a live object; compiled graphs,
`StateGraph`s, and factories: plain, async, or (async) context managers, with no argument or `config`.
"""

import asyncio
import importlib
import importlib.util
import inspect
import sys
from asyncio import events, tasks
from collections.abc import AsyncIterator, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
)
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any

from langgraph.pregel import Pregel

from dreamgym_kit.adapters.langgraph.analysis.import_errors import not_loaded
from dreamgym_kit.adapters.langgraph.analysis.projects import PROJECT_FILE, project_graph
from dreamgym_kit.errors import GraphNotLoaded, UnknownName, UserError


@contextmanager
def no_running_loop() -> Iterator[None]:
    """Hide this thread's running loop from the code inside, which may run one of its own.

    The kit looks at a graph inside its own loop, and a module that fetches its MCP tools with
    `asyncio.run(...)` while it is imported is no rarity.
    """
    loop = events._get_running_loop()
    if loop is None:
        yield
        return
    swap = getattr(tasks, "_swap_current_task", None)  # from Python 3.14 a thread has one current task
    task = swap(loop, None) if swap is not None else None
    events._set_running_loop(None)
    try:
        yield
    finally:
        events._set_running_loop(loop)
        if swap is not None:
            swap(loop, task)
        asyncio.set_event_loop(loop)


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
    loaded = load_object(source, folder=folder) if isinstance(source, str) else source
    raised: BaseException | None = None
    try:
        async with AsyncExitStack() as stack:
            graph = await _as_graph(loaded, named, stack, folder or Path.cwd())
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
    missing_env = None
    if Path(path).name == PROJECT_FILE:
        chosen = project_graph(start / path, attribute)
        (path, attribute), start, missing_env = _split(chosen.target), chosen.folder, chosen.missing_env
    if not attribute or not path or (path.startswith(".") and not path.endswith(".py")):
        forms = "module:attribute or file.py:attribute" + (f" or {PROJECT_FILE}" if kind == "graph" else "")
        raise UserError(f"{kind} '{spec}': write it as {forms}")
    try:
        with no_running_loop():
            module = (
                _import_file(start / path, start) if path.endswith(".py") else _import_module(path, start)
            )
    except GraphNotLoaded as error:
        if missing_env is None:
            raise
        raise GraphNotLoaded(
            f"{error}\n  {PROJECT_FILE} takes its environment from {missing_env}, and there is no such file.",
            variables=error.variables,
        ) from None
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


def _import_module(name: str, start: Path) -> ModuleType:
    _on_path(start)
    try:
        return importlib.import_module(name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001  a user's module may end in anything
        if _is_missing(error, name):
            raise UserError(f"no module '{name}' from {start}; {_near_module(name, start)}") from None
        raise not_loaded(f"importing {name}", error, start) from None


def _is_missing(error: BaseException, name: str) -> bool:
    """Whether the module itself is not there, and not something that it imports."""
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    return bool(missing) and (name == missing or name.startswith(f"{missing}."))


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
    if (
        packaged := _package_name(file)
    ) is not None:  # its folder may hold a module of the package's own name
        return _import_packaged(file, *packaged)
    _on_path(file.parent)
    name = file.stem
    imported = sys.modules.get(name)
    if imported is not None and getattr(imported, "__file__", None) == str(file):
        return imported
    if imported is None:
        return _import_module(name, file.parent)
    return _import_beside(file, start)


def _package_name(file: Path) -> tuple[str, Path] | None:
    """A file of a package is imported by its whole name, so that `from .tools import ...` works in it."""
    parts, folder = [file.stem], file.resolve().parent
    while (folder / "__init__.py").is_file() and folder.name.isidentifier():
        parts.insert(0, folder.name)
        folder = folder.parent
    return (".".join(parts), folder) if len(parts) > 1 and file.stem.isidentifier() else None


def _import_packaged(file: Path, name: str, root: Path) -> ModuleType:
    top = sys.modules.get(name.partition(".")[0])
    if top is not None and not str(getattr(top, "__file__", "") or "").startswith(f"{root}/"):
        return _import_beside(file, root)
    return _import_module(name, root)


def _import_beside(file: Path, start: Path) -> ModuleType:
    """Import a file whose name another module has already."""
    spec = importlib.util.spec_from_file_location(f"dreamgym_user_{file.stem}", file)
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
        raise not_loaded(f"importing {file}", error, start) from None
    return module


def _on_path(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _attribute(module: ModuleType, attribute: str, source: str) -> object:
    value: object = module
    for part in attribute.split("."):
        if not hasattr(value, part):
            near = [name for name, var in vars(module).items() if _could_be_graph(var)]
            raise UnknownName("name", attribute, known=near, source=source, where=module.__name__)
        value = getattr(value, part)
    return value


def _could_be_graph(value: object) -> bool:
    return isinstance(value, Pregel) or hasattr(value, "compile") or inspect.isfunction(value)


async def _as_graph(loaded: object, named: str, stack: AsyncExitStack, folder: Path) -> Pregel[Any]:
    """Unwrap factories and builders until a compiled graph is there."""
    value: Any = loaded
    for _ in range(4):
        if isinstance(value, Pregel):
            return value
        try:
            unwrapped = await _unwrap(value, named, stack)
        except (UserError, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001  a user's factory may end in anything
            raise not_loaded(f"building the graph '{named}'", error, folder) from None
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
