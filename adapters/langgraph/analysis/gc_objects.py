"""Every living object of some classes: tools and models that nobody told us of may be called all the same."""

import functools
import gc
import sys
import types
import weakref
from collections.abc import Iterable
from itertools import compress
from typing import Any

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.runnables import RunnableBinding
from langchain_core.tools import BaseTool

LRU_CACHE: Any = type(functools.lru_cache(lambda: None))


def instances_of(*kinds: type) -> list[Any]:
    """Return all objects of these kinds that the garbage collector tracks, including half-built ones.

    By `type()`, not `isinstance`: foreign proxies run code in `__class__`. A process has some hundred
    thousand objects of some thousand types, so each type is checked once, and each object is read once.
    """
    gc.unfreeze()  # a run freezes earlier objects (rollout.loop); they count too
    objects: list[Any] = gc.get_objects()
    wanted = _Wanted(kinds)
    try:
        return list(compress(objects, map(wanted.__getitem__, map(type, objects))))
    except Exception:  # noqa: BLE001  a class whose own class raises from `__hash__`; by id it takes longer
        wanted_types: dict[int, bool] = {}
        for cls in map(type, objects):
            if id(cls) not in wanted_types:
                wanted_types[id(cls)] = _is_of(cls, kinds)
        return [object_ for object_ in objects if wanted_types[id(type(object_))]]


class _Wanted(dict[type, bool]):
    """Whether a type is of some kinds."""

    def __init__(self, kinds: tuple[type, ...]) -> None:
        super().__init__()
        self._kinds = kinds

    def __missing__(self, cls: type) -> bool:
        self[cls] = wanted = _is_of(cls, self._kinds)
        return wanted


def _is_of(cls: type, kinds: tuple[type, ...]) -> bool:
    """Whether one of these kinds is a base: by identity, since `issubclass` may run code of a metaclass."""
    bases: tuple[type, ...] = type.__dict__["__mro__"].__get__(cls)
    return any(base is kind for base in bases for kind in kinds)


class Living:
    """What one look at all objects found: the steps of a start share it, since a look takes long.

    It holds everything weakly, so that the garbage collector can take what nobody else holds.
    """

    def __init__(self) -> None:
        self._modules = len(sys.modules)
        collects = gc.isenabled()
        gc.disable()  # a hundred thousand new references would set it off, over all objects
        try:
            self._look()
        finally:
            if collects:
                gc.enable()

    def _look(self) -> None:
        objects = instances_of(BaseTool, BaseChatModel, RunnableBinding, types.FunctionType, LRU_CACHE)
        code = (types.FunctionType, LRU_CACHE)
        self._functions = [weakref.ref(function) for function in objects if type(function) in code]
        others = [item for item in objects if type(item) not in code]
        self._tools = [weakref.ref(other) for other in others if issubclass(type(other), BaseTool)]
        self._bindings = [weakref.ref(other) for other in others if issubclass(type(other), RunnableBinding)]
        self._models = [weakref.ref(model) for model in others if issubclass(type(model), BaseChatModel)]

    def tools(self) -> list[BaseTool]:
        """The tools, half-built ones too."""
        return _still(self._tools)

    def models(self) -> list[BaseChatModel]:
        """The chat models."""
        return _still(self._models)

    def bindings(self) -> list[Any]:
        """The runnables that bind arguments to another, such as tools to a model."""
        return _still(self._bindings)

    def functions(self) -> list[Any]:
        """The functions and `lru_cache`s; found anew if a module was imported since: its code made some."""
        if len(sys.modules) != self._modules:
            return instances_of(types.FunctionType, LRU_CACHE)
        return _still(self._functions)


def closure_of(function: Any) -> list[Any]:
    """What a function's closure holds, by cell; None for a cell that is not filled yet."""
    return [_content(cell) for cell in getattr(function, "__closure__", None) or ()]


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _still(refs: Iterable[weakref.ref[Any]]) -> list[Any]:
    return [target for ref in refs if (target := ref()) is not None]
