"""What the gate changes in other people's classes, modules and functions, and puts back exactly.

Uninstalling the gate must leave every class and module as it was, entry by entry; so each change is kept with
what stood there before (or that nothing did), and undone in reverse order.
"""

import functools
import inspect
import types
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


def reroute(
    function: Any,
    enter: str,
    number: int,
    register: Callable[[types.FunctionType, Callable[[], None]], None],
) -> None:
    """Have a function's calls arrive at another one, by whatever reference they are made.

    Its code object is replaced; identity, name, signature and kind stay.

    Args:
        function: of any kind but an async generator function.
        enter: what is given `number`, the arguments and the keyword arguments ("module:name"); of a coroutine
            function that is `name_async`, of a generator function `name_generator`.
        number: names the function there.
        register: is given the function as it was, and what gives it its own code back; before a call can
            arrive, for other threads may be in the function.
    """
    code, defaults, kwdefaults = function.__code__, function.__defaults__, function.__kwdefaults__
    own_signature = function.__dict__.get("__signature__")
    real = types.FunctionType(code, function.__globals__, function.__name__, defaults, function.__closure__)
    real.__kwdefaults__ = kwdefaults
    signature = inspect.signature(function)
    module, _, name = enter.partition(":")
    kind, answer = "def", "return"
    if inspect.iscoroutinefunction(function):
        kind, answer, name = "async def", "return await", f"{name}_async"
    elif inspect.isgeneratorfunction(function):
        answer, name = "return (yield from", f"{name}_generator"
    source = (  # the only free name is an import
        f"{kind} hooked(*args, **kwargs):\n"
        f"    from {module} import {name}\n"
        f"    {answer} {name}({number}, args, kwargs){')' * answer.count('(')}\n"
    )
    names: dict[str, Any] = {}
    exec(compile(source, f"<gate in {function.__module__}.{function.__qualname__}>", "exec"), names)  # noqa: S102
    trampoline: types.CodeType = names["hooked"].__code__

    def put_back() -> None:
        function.__code__, function.__defaults__, function.__kwdefaults__ = code, defaults, kwdefaults
        if own_signature is None:
            function.__dict__.pop("__signature__", None)
        else:
            function.__dict__["__signature__"] = own_signature

    register(real, put_back)
    function.__signature__ = signature
    function.__code__ = trampoline.replace(
        co_name=code.co_name, co_qualname=code.co_qualname, co_freevars=code.co_freevars
    )
    function.__defaults__ = function.__kwdefaults__ = None


def subclasses(root: type) -> list[type]:
    """Return `root` and every class below it, each once."""
    classes: dict[type, None] = {}
    todo = [root]
    while todo:
        owner = todo.pop()
        if owner not in classes:
            classes[owner] = None
            todo.extend(type.__subclasses__(owner))
    return list(classes)


def entry_of(owner: type, name: str, root: type) -> Any:
    """Return the entry `name` of `owner` or of a mixin of it; None if another class below `root` has it.

    A mixin is not below `root`, so a walk over subclasses misses it; yet its methods precede `root`'s own.
    """
    for base in owner.__mro__:
        if base is root:
            return None
        if name in base.__dict__:
            return base.__dict__[name] if base is owner or not issubclass(base, root) else None
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


def of_same_kind(
    real: Any, choose: Callable[[Any, Any, Any], tuple[Any, Any]], *, at_once: bool = False
) -> Any:
    """Wrap a method by its own kind: plain, coroutine, generator or async generator.

    Args:
        real: the method.
        choose: gives, for the instance and the arguments, what runs in its place and on which instance.
        at_once: for a generator, whether that is asked when it is called; else when it begins.
    """
    if inspect.isasyncgenfunction(real):

        @functools.wraps(real)
        async def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
            function, instance = choose(self, args, kwargs)
            async for item in function(instance, *args, **kwargs):
                yield item

    elif inspect.iscoroutinefunction(real):

        @functools.wraps(real)
        async def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
            function, instance = choose(self, args, kwargs)
            return await function(instance, *args, **kwargs)

    elif inspect.isgeneratorfunction(real) and not at_once:

        @functools.wraps(real)
        def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
            function, instance = choose(self, args, kwargs)
            yield from function(instance, *args, **kwargs)

    else:

        @functools.wraps(real)
        def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
            function, instance = choose(self, args, kwargs)
            return function(instance, *args, **kwargs)

    return plain_wrapper(wrapper, real)


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
