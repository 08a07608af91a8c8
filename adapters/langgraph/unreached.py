"""Functions that act, in the modules of a graph's code, which the graph is not seen to reach.

Code reaches functions in ways that reading does not follow: by a property, a generated function, a method
looked up by name. So in a dream every function of these modules that acts by its own code meets the gate
when an episode calls it. Calls from outside an episode (a checker, a script's `main`) are left alone, and so
is what the framework calls: chat models, stores, callbacks, and what their methods use.
"""

import contextlib
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dreamgym_kit.adapters.langgraph.acting import (
    FRAMEWORKS,
    Reached,
    is_users,
    is_users_object,
    read,
    unpacked,
)
from dreamgym_kit.adapters.langgraph.holdings import HOLDINGS
from dreamgym_kit.adapters.langgraph.hooks import NotHookable, hook, hook_of, of_library, under
from dreamgym_kit.adapters.langgraph.inventory import Inventory

_MAX_DEPTH = 10
Scope = Mapping[str, Any]


def hook_unreached(inventory: Inventory) -> None:
    """Put the gate, for the calls of episodes, into what acts beside what an inventory lists."""
    for function in unreached(inventory.scopes, [one for _, one, _ in inventory.acting]):
        with contextlib.suppress(NotHookable):  # an async generator: the guard is left
            hook(function, function.__name__).in_episodes = True


def unreached(scopes: Iterable[Scope], left_alone: Iterable[types.FunctionType]) -> list[types.FunctionType]:
    """The functions and methods that act and that no hook is in.

    Args:
        scopes: the global names of the functions that a graph is seen to run.
        left_alone: functions that are not to be hooked: nodes, of which nobody could answer.
    """
    offered: list[Any] = []
    framework: list[Any] = []
    for value in _values(scopes):
        (framework if _is_of_framework(value) else offered).append(value)
    used = {id(one) for one in left_alone} | _used_by(framework)
    found = {
        id(one.function): one.function
        for value in offered
        for one in _functions(value)
        if id(one.function) not in used and hook_of(one.function) is None and _acts(one)
    }
    return list(found.values())


def _acts(one: Reached) -> bool:
    return not HOLDINGS.is_body(one.function) and read(one.function, one.owner).acts is not None


def _values(scopes: Iterable[Scope]) -> Iterator[Any]:
    """What the names of these modules stand for, and those of the user's modules that they name."""
    waiting = list(scopes)
    seen = {id(scope) for scope in waiting}
    while waiting:
        for value in list(waiting.pop().values()):
            if not isinstance(value, types.ModuleType):
                yield value
            elif id(vars(value)) not in seen and not of_library(getattr(value, "__file__", None) or "<none>"):
                seen.add(id(vars(value)))
                waiting.append(vars(value))


def _is_of_framework(value: Any) -> bool:
    kind = value if isinstance(value, type) else type(value)
    return any(base.__module__.startswith(FRAMEWORKS) for base in kind.__mro__)


def _functions(value: Any) -> Iterator[Reached]:
    """The user's functions in a value: itself, or the methods and properties of its class."""
    if is_users(function := under(value)):
        yield Reached(function)
    elif is_users_object(value):
        for kind in (value if isinstance(value, type) else type(value)).__mro__:
            for entry in list(vars(kind).values()):
                for part in _parts(entry):
                    if is_users(part):
                        yield Reached(part, value)


def _parts(entry: Any) -> Iterator[Any]:
    """The functions in an entry of a class, also under a wrapper of the gate's own."""
    if isinstance(entry, property):
        held: tuple[Any, ...] = (entry.fget, entry.fset, entry.fdel)
    elif isinstance(entry, (staticmethod, classmethod)):
        held = (entry.__func__,)
    else:
        held = (getattr(entry, "func", entry),)  # of a cached_property
    yield from (unpacked(one)[0] for one in held)


def _used_by(values: Iterable[Any]) -> set[int]:
    """What the framework runs by calling the user's subclasses of its own classes."""
    used: set[int] = set()
    waiting = [
        (Reached(part, value), 0)
        for value in values
        for kind in (value if isinstance(value, type) else type(value)).__mro__
        if not kind.__module__.startswith(FRAMEWORKS)
        for entry in list(vars(kind).values())
        for part in _parts(entry)
        if is_users(part)
    ]
    while waiting:
        one, depth = waiting.pop()
        if id(one.function) not in used and depth < _MAX_DEPTH:
            used.add(id(one.function))
            waiting += [(further, depth + 1) for further in read(one.function, one.owner).reached]
    return used
