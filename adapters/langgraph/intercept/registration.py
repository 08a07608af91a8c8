"""Puts the gate into functions beside the tools: what settings name, and what reading does not reach.

Code reaches functions in ways that reading does not follow: by a property, a generated function, a method
looked up by name. So in a dream every function of the graph's modules that acts by its own code meets the
gate when a graph's run calls it. Other calls (a checker's, a script's `main`) are left alone, and so is what
the framework itself calls: its own methods in the user's chat models, embeddings, caches, stores,
checkpointers, callback handlers and handlers of `logging`, and what those use. What only opens files is the
guard's to judge, which tells files that are allowed from others.
"""

import contextlib
import functools
import gc
import logging
import sys
import types
import weakref
from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import compress
from operator import attrgetter
from pathlib import Path
from typing import Any

from langchain_core.caches import BaseCache
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.embeddings import Embeddings
from langchain_core.language_models import BaseLanguageModel
from langchain_core.tools import BaseTool
from langgraph.cache.base import BaseCache as NodeCache
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.pregel import Pregel
from langgraph.store.base import BaseStore

from dreamgym_kit.adapters.langgraph.analysis.gc_objects import Living, instances_of
from dreamgym_kit.adapters.langgraph.analysis.inventory import Inventory, InventoryEntry, body_of_task
from dreamgym_kit.adapters.langgraph.analysis.loading import load_named
from dreamgym_kit.adapters.langgraph.analysis.nodes import functions_of, is_framework, nodes_of
from dreamgym_kit.adapters.langgraph.analysis.side_effects import (
    OPENS,
    Reached,
    asks_arguments,
    is_library_class,
    is_users,
    read,
    unpacked,
)
from dreamgym_kit.adapters.langgraph.intercept.bound_names import HOLDINGS
from dreamgym_kit.adapters.langgraph.intercept.call_context import running
from dreamgym_kit.adapters.langgraph.intercept.functions import (
    NotHookable,
    hook,
    hook_of,
    hook_twins,
    hooked_ids,
    of_library,
    real_of,
    under,
)
from dreamgym_kit.adapters.langgraph.intercept.threads import left_behind
from dreamgym_kit.errors import UserError
from dreamgym_kit.routing.process import keep_stray
from dreamgym_kit.settings.schema import Settings


def register_functions(settings: Settings) -> Living:
    """Hook every function that `[functions]` names; gives what is alive after that.

    Raises:
        UserError: not importable, no such name, or nothing that can be hooked.
    """
    for reference, entry in settings.functions.items():
        where = settings.where("functions", reference)
        target = body_of_task(load_named(reference, kind="function", where=where, folder=settings.folder))
        name = entry.name or str(getattr(target, "__name__", reference.rpartition(":")[2]))
        try:
            hook(target, name).reference = reference
        except NotHookable as reason:
            raise UserError(f"{where}: '{reference}' cannot be hooked: {reason}") from None
    living = Living()  # not before: a function's module may have been imported for it
    if settings.functions:
        hook_twins(living)
    return living


def check_confirmed(
    listed: Sequence[InventoryEntry], settings: Settings, confirmed: Container[str] = ()
) -> None:
    """Refuse real calls of functions whose effect is confirmed neither in settings nor in the lock.

    `confirmed`: the names in the lock.

    Raises:
        UserError: it says the lines to add.
    """
    guessed = [entry for entry in listed if not entry.confirmed and entry.name not in confirmed]
    if guessed:
        lines = "\n".join(f"  {entry.line()}  # {entry.reached}: {entry.why}" for entry in guessed)
        raise UserError(
            f"{settings.where('functions')}: functions beside the tools may act on the world, and would run "
            f"for real. Correct these lines and add them to dreamgym.toml:\n{lines}\nIf all guesses in "
            "dreamgym.lock are right: dreamgym-kit init --confirm\nNothing was run."
        )


def register_nodes(graph: Pregel[Any], settings: Settings) -> None:
    """Hook the functions of nodes whose effect is more than pure or control."""
    for path, bound in nodes_of(graph):
        name = path.rpartition("/")[2]
        entry = settings.nodes.get(name)
        if entry is None or entry.effect.runs_in_dream:
            continue
        functions = functions_of(bound)
        if not functions:
            where = settings.where("nodes", name)
            raise UserError(
                f"{where}: node '{name}' is no plain function; register the functions that it calls"
            )
        for function in functions:
            hook(function, name)


_LOCAL = (OPENS, "shutil")
_MOST_HELD = 300  # objects that tell one call from another
_HOLDERS = (dict, frozenset, list, set, tuple, functools.partial, types.MethodType)
_MAX_LEFT = 3  # steps from what an episode left to what acts
# Their methods run because the framework calls them, not because the agent chose to.
_CALLED_BY_FRAMEWORK = (
    BaseCache, BaseCallbackHandler, BaseCheckpointSaver, BaseLanguageModel, BaseStore, Embeddings, NodeCache,
    logging.Filter, logging.Formatter, logging.Handler,
)  # fmt: skip
_OF_OBJECTS = frozenset(
    {
        "__copy__", "__deepcopy__", "__del__", "__delattr__", "__eq__", "__format__", "__getattr__",
        "__getattribute__", "__hash__", "__init__", "__init_subclass__", "__new__", "__post_init__",
        "__prepare__", "__reduce__", "__reduce_ex__", "__repr__", "__set_name__", "__setattr__", "__str__",
    }
)  # fmt: skip
Scope = Mapping[str, Any]


_LISTED: list[Any] = []
"""The functions that the inventory of the graph lists: a setting decides about each."""


def hook_unreached(inventory: Inventory, living: Iterable[Any]) -> None:
    """Intercept, in episodes, functions with side effects that the inventory does not list.

    Args:
        inventory: what is listed, and the modules that it was read from.
        living: the functions that are alive.
    """
    _LISTED[:] = [*(acting for _, acting, _ in inventory.acting), *inventory.stated]
    near = _scopes(inventory.scopes)
    around = _scopes([*near.values(), *inventory.around], imported=True)
    _hook_acting(near, near | around, living)


def hook_loaded(module: types.ModuleType) -> None:
    """Do the same for a user's module that an episode imports; what it imports follows by itself."""
    names = vars(module)
    if _is_users_module(names):
        _hook_acting({id(names): names}, {id(names): names}, instances_of(types.FunctionType))


def _of_agent(
    function: Any, harmless: set[Any] | None, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> bool:
    """Whether a call is the agent's, and acts; `harmless`: kinds of arguments by which it does not."""
    if args and _is_called_by_framework(function.__name__, type(args[0])):
        return False
    body = running()
    if isinstance(body, BaseLanguageModel):
        return False
    if harmless is not None:
        given = [*args, *kwargs.values()]
        kinds = _kinds(given)
        if kinds in harmless or not (body is None or isinstance(body, BaseTool)):
            return False
        if read(function, given=given).acts in (None, OPENS):
            if kinds is not None:
                harmless.add(kinds)
            return False
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        owner = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
        if _is_called_by_framework(code.co_name, type(owner)):
            return False
        frame = frame.f_back
    return True


def _kinds(given: Iterable[Any]) -> tuple[Any, ...] | None:
    """Return the kinds of what a call is given, and of all that this holds; None: it holds too much."""
    kinds: list[Any] = []
    waiting, known = list(given), set[int]()
    for value in waiting:  # it grows
        kind = type(value)
        kinds.append(value.__code__ if kind is types.FunctionType else kind)
        if id(value) in known:
            continue
        known.add(id(value))
        if kind is types.FunctionType:
            waiting += [part for cell in value.__closure__ or () for part in gc.get_referents(cell)]
        elif kind in _HOLDERS or not (kind.__module__ == "builtins" or is_library_class(kind)):
            waiting += gc.get_referents(value)
        if len(waiting) > _MOST_HELD:
            return None
    return tuple(kinds)


def refuse_left_behind() -> None:
    """Tell of what episodes left to be done after them, and acts: it will be refused, or never run."""
    for target in left_behind():
        function, owner = unpacked(target)
        if is_users(function) and _leads_to_acting(Reached(function, owner)):
            code = real_of(function).__code__
            place = f"{Path(code.co_filename).name}:{code.co_firstlineno}"
            keep_stray(
                f"{function.__qualname__} ({place}) was left by an episode to run later; it did not run"
            )


def _leads_to_acting(reached: Reached, depth: int = 0) -> bool:
    sure = (hooked := hook_of(reached.function)) is not None and not hooked.unsure
    if sure or depth > _MAX_LEFT:
        return sure
    reading = read(reached.function, reached.owner)
    if reading.acts in _LOCAL:  # the guard confines a cleanup of the agent's own files
        return False
    return reading.acts is not None or any(_leads_to_acting(inner, depth + 1) for inner in reading.reached)


def _hook_acting(near: dict[int, Scope], scopes: dict[int, Scope], living: Iterable[Any]) -> None:
    """Hook the functions without a hook that have side effects, and those that may, by their arguments."""
    # nearly all are functions of other modules: this is asked of each function in the process
    functions = [item if type(item) is types.FunctionType else under(item) for item in living]
    functions = [item for item in functions if type(item) is types.FunctionType]
    ours = map(scopes.__contains__, map(id, map(attrgetter("__globals__"), functions)))
    known = hooked_ids().union(map(id, _LISTED))
    for function in filter(is_users, compress(functions, ours)):
        if id(function) in known:
            continue
        acts = _acts(function, fresh=id(function.__globals__) in near)
        if acts or (function.__name__ not in _OF_OBJECTS and asks_arguments(function.__code__)):
            with contextlib.suppress(NotHookable):  # an async generator: the guard is left
                made = hook(function, function.__name__)
                made.in_episodes, made.unsure = True, not acts
                made.acts = functools.partial(_of_agent, function, None if acts else set())


_READ: "weakref.WeakKeyDictionary[types.FunctionType, bool]" = weakref.WeakKeyDictionary()


def _acts(function: types.FunctionType, *, fresh: bool) -> bool:
    """Whether a function acts; of one far from the graph (a process may hold thousands), once and for all.

    Not asked of what makes, ends, shows or looks into an object: nobody can answer in its place.
    """
    if fresh or function not in _READ:
        acts = function.__name__ not in _OF_OBJECTS and read(function).acts not in (None, OPENS)
        _READ[function] = acts and not HOLDINGS.is_body(function)  # last: it looks through all tools
    return _READ[function]


def _scopes(given: Iterable[Scope], *, imported: bool = False) -> dict[int, Scope]:
    """The global names of these modules and of the user's modules that they name, by id.

    With `imported`, also of the modules that their functions and classes were imported from.
    """
    scopes: dict[int, Scope] = {}
    waiting = list(given)
    while waiting:
        scope = waiting.pop()
        if id(scope) not in scopes:
            scopes[id(scope)] = scope
            values = list(scope.values())
            modules = {id(value): value for value in values if type(value) is types.ModuleType}
            if imported:
                named = {vars(value).get("__module__") for value in values if issubclass(type(value), type)}
                named |= {value.__module__ for value in values if type(value) is types.FunctionType}
                named |= {vars(type(value)).get("__module__") for value in values}
                origins = (sys.modules.get(name) for name in named if isinstance(name, str))
                modules |= {id(module): module for module in origins if module is not None}
            waiting += [vars(module) for module in modules.values() if _is_users_module(vars(module))]
    return scopes


def _is_users_module(names: Scope) -> bool:
    file, name = names.get("__file__"), names.get("__name__")
    return isinstance(file, str) and not of_library(file) and not is_framework(str(name))


def _is_called_by_framework(name: str, kind: type) -> bool:
    """Whether a method is one that the framework's own classes have: not what a user added beside those."""
    bases = kind.__mro__ if issubclass(kind, _CALLED_BY_FRAMEWORK) else ()
    return any(name in vars(base) for base in bases if is_library_class(base))
