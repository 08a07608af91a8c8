"""Class attributes replaced, and put back exactly.

Uninstalling the gate must leave every class as it was, entry by entry; so each change is kept with
what stood there before (or that nothing did), and undone in reverse order.
"""

import weakref
from collections.abc import Callable
from typing import Any

_NOTHING = object()


class PatchSet:
    """Replaced class attributes, in the order they were replaced."""

    def __init__(self) -> None:
        self._done: list[tuple[weakref.ref[type], str, object]] = []

    def replace(self, owner: type, name: str, value: object) -> None:
        """Set `owner.name`, past any metaclass (pydantic's refuses some names)."""
        self._done.append((weakref.ref(owner), name, owner.__dict__.get(name, _NOTHING)))
        type.__setattr__(owner, name, value)

    def undo(self) -> None:
        """Put everything back; classes that are gone are skipped."""
        while self._done:
            reference, name, before = self._done.pop()
            owner = reference()
            if owner is None:
                continue
            if before is _NOTHING:
                type.__delattr__(owner, name)
            else:
                type.__setattr__(owner, name, before)


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


def plain_wrapper(wrapper: Any, real: Any) -> Callable[..., Any]:
    """Finish a `functools.wraps` wrapper: mark it, and let `inspect` look through it.

    `wraps` copies a cached `__signature__`, whose string annotations would then be resolved in the
    wrapper's module; without it, inspect follows `__wrapped__`.
    """
    wrapper.__dict__.pop("__signature__", None)
    wrapper.__dreamgym__ = True
    wrapper.__wrapped__ = real
    finished: Callable[..., Any] = wrapper
    return finished


def is_ours(candidate: object) -> bool:
    """Whether a function is one of our wrappers."""
    return getattr(candidate, "__dreamgym__", False) is True
