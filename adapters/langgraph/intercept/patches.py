"""What the gate changes in other people's classes, modules and functions, and puts back exactly.

Uninstalling the gate must leave every class and module as it was, entry by entry; so each change is kept with
what stood there before (or that nothing did), and undone in reverse order.
"""

import functools
import inspect
import weakref
from collections.abc import Callable
from typing import Any

_NOTHING = object()
OURS = "__dreamgym__"
"""Attribute that marks our wrappers."""


class PatchSet:
    """Replaced attributes, in the order they were replaced."""

    def __init__(self) -> None:
        self._done: list[tuple[weakref.ref[Any], str, object, object]] = []
        self._others: list[Callable[[], object]] = []

    def replace(self, owner: Any, name: str, value: object) -> None:
        """Set `owner.name`, past any metaclass (pydantic's refuses some names)."""
        self._done.append((weakref.ref(owner), name, owner.__dict__.get(name, _NOTHING), value))
        _setter(owner)(owner, name, value)

    def on_undo(self, act: Callable[[], object]) -> None:
        """Take back by `act` what was changed in another way."""
        self._others.append(act)

    def undo(self) -> None:
        """Put everything back; classes that are gone, and entries set by others since, are skipped."""
        while self._others:
            self._others.pop()()
        while self._done:
            reference, name, before, value = self._done.pop()
            owner = reference()
            if owner is None or owner.__dict__.get(name, _NOTHING) is not value:
                continue
            if before is _NOTHING:
                type.__delattr__(owner, name)
            else:
                _setter(owner)(owner, name, before)


def _setter(owner: Any) -> Callable[[Any, str, Any], None]:
    return type.__setattr__ if isinstance(owner, type) else setattr


def subclasses(root: type) -> list[type]:
    """`root` and every class below it, each once."""
    found: dict[type, None] = {}
    todo = [root]
    while todo:
        owner = todo.pop()
        if owner not in found:
            found[owner] = None
            todo.extend(type.__subclasses__(owner))
    return list(found)


def entry_of(owner: type, name: str, root: type) -> Any:
    """What stands under `name` in `owner` or in a mixin of it; None where another class below `root` has it.

    A mixin is no class below `root`, so no walk over those meets it, and yet its methods go before
    `root`'s own.
    """
    for one in owner.__mro__:
        if one is root:
            return None
        if name in one.__dict__:
            return one.__dict__[name] if one is owner or not issubclass(one, root) else None
    return None


def as_function(entry: Any, root: type) -> Any:
    """A class entry as a function that takes the instance first: static methods and other descriptors too."""
    if inspect.isfunction(entry):
        return entry
    inner = entry.__func__ if isinstance(entry, staticmethod) else entry

    def function(*args: Any, **kwargs: Any) -> Any:
        if isinstance(entry, staticmethod):
            return inner(*(args[1:] if args and isinstance(args[0], root) else args), **kwargs)
        bind = getattr(entry, "__get__", None)
        if bind is None or not args:
            return entry(*args, **kwargs)
        return bind(args[0], type(args[0]))(*args[1:], **kwargs)

    functools.update_wrapper(function, inner)
    function.__dict__.pop("__wrapped__", None)
    try:
        signature = inspect.signature(inner)
    except (TypeError, ValueError):
        return function
    if isinstance(entry, staticmethod):
        instance = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
        signature = signature.replace(parameters=[instance, *signature.parameters.values()])
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function


def guard_late_classes(patches: PatchSet, root: type, guard: Callable[[PatchSet, type], None]) -> None:
    """Classes made after installation are met when they are made."""
    own = root.__dict__.get("__init_subclass__")

    def __init_subclass__(cls: Any, /, **kwargs: Any) -> None:  # noqa: N807
        if own is not None:
            own.__get__(None, cls)(**kwargs)
        else:
            super(root, cls).__init_subclass__(**kwargs)  # type: ignore[arg-type]
        guard(patches, cls)

    patches.replace(root, "__init_subclass__", classmethod(__init_subclass__))


def plain_wrapper(wrapper: Any, real: Any) -> Callable[..., Any]:
    """Finish a `functools.wraps` wrapper: mark it, and let `inspect` look through it.

    `wraps` copies a cached `__signature__`, whose string annotations would then be resolved in the
    wrapper's module; without it, inspect follows `__wrapped__`.
    """
    wrapper.__dict__.pop("__signature__", None)
    setattr(wrapper, OURS, True)
    wrapper.__wrapped__ = real
    finished: Callable[..., Any] = wrapper
    return finished


def is_ours(candidate: object) -> bool:
    """Whether a function is one of our wrappers."""
    return getattr(candidate, OURS, False) is True
