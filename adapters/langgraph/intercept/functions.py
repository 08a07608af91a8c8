"""The gate inside plain functions: every reference to a hooked function meets it.

A function's code object is replaced by a small trampoline. So an alias imported elsewhere, a closure,
a `@task`, a node, or a tool's function captured before the tool existed all come here. Identity, name,
signature and kind (coroutine, generator) stay; undoing restores the function exactly.
"""

import contextlib
import dis
import functools
import inspect
import itertools
import os
import sys
import sysconfig
import threading
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from langchain_core.tools import BaseTool

from dreamgym_kit.adapters.langgraph.analysis.gc_objects import LRU_CACHE, Living, closure_of, instances_of
from dreamgym_kit.adapters.langgraph.intercept.call_context import (
    bare_arguments,
    config_here,
    function_arguments,
    metadata_here,
    running,
    session_key,
    typed_signature,
    without_injected,
)
from dreamgym_kit.adapters.langgraph.intercept.patches import reroute, subclasses
from dreamgym_kit.adapters.langgraph.intercept.real_calls import GatedCall
from dreamgym_kit.adapters.langgraph.intercept.tools import answered
from dreamgym_kit.guard import thread_owners
from dreamgym_kit.routing.process import PROCESS, find, is_outside
from dreamgym_kit.routing.router import Route
from dreamgym_kit.routing.session import Session
from dreamgym_kit.routing.supervision import Flow
from dreamgym_kit.settings import advice
from dreamgym_kit.supervision.session import effect_of
from dreamgym_kit.types import Call, Effect

_HOOKS: dict[int, "Hook"] = {}
_OF: dict[int, "Hook"] = {}  # by id of the hooked function, which its hook keeps
_NUMBERS = itertools.count(1)
_HOOKING = threading.RLock()


class NotHookable(Exception):
    """A callable without Python code of its own; the text says what it is."""


@dataclass(slots=True, eq=False)
class Hook:
    """One hooked function: the name its calls go by, and what it takes to undo it."""

    name: str
    function: types.FunctionType
    real: types.FunctionType
    signature: inspect.Signature
    number: int
    put_back: Callable[[], None]
    tool: BaseTool | None = None
    leaf: bool = False  # the body of a tool class: its first argument is the tool
    also: list[tuple[str, BaseTool | None]] = field(default_factory=list)  # other tools over the same body
    caches: list[Any] = field(default_factory=list)  # `lru_cache`s before it, which keep what it answered
    reference: str = ""  # as `[functions]` names it
    in_episodes: bool = False  # only what a graph's run calls is met
    acts: Callable[..., bool] | None = None  # asked of each of these calls
    unsure: bool = False  # no reading says that it acts: what it is given may
    around: "Hook | None" = None  # what was made around this one: its running body may call it unasked
    given: bool = False  # under a partial or an object of its tool's: not all arguments are the model's

    def undo(self) -> None:
        """Give the function its own code back."""
        self.put_back()
        _HOOKS.pop(self.number, None)
        _OF.pop(id(self.function), None)
        for cache in self.caches:
            cache.cache_clear()


def hook(target: Callable[..., Any], name: str, *, tool: BaseTool | None = None, leaf: bool = False) -> Hook:
    """Put the gate into a function, coroutine function, generator function or method.

    Args:
        target: the callable; of a bound method or an `lru_cache` the function under it.
        name: the tool name its calls go by.
        tool: the tool whose body this is: its arguments are filtered as that tool's.
        leaf: the body of a tool class (`_run`): calls go by the name of the tool they are made on.

    Raises:
        NotHookable: a builtin, a C function, a partial, a callable object or an async generator.
    """
    function = under(target)
    if not isinstance(function, types.FunctionType):
        raise NotHookable(f"{type(target).__name__} objects hold no Python code that could be replaced")
    if inspect.isasyncgenfunction(function):
        raise NotHookable("async generator functions cannot be answered in place of")
    with _HOOKING:  # two threads that hook one function at once would hook the hook
        hooked = _OF.get(id(function))
        if hooked is None:
            hooked = _install(function, name, tool, leaf=leaf)
        elif name not in {hooked.name, *(other for other, _ in hooked.also)}:
            hooked.also.append((name, tool))
        hooked.in_episodes, hooked.acts, hooked.unsure = hooked.in_episodes and not hooked.unsure, None, False
    if isinstance(target, LRU_CACHE) and not any(target is cache for cache in hooked.caches):
        hooked.caches.append(target)
        hooked.caches[-1].cache_clear()
    return hooked


def under(target: Any) -> Any:
    """The function that a bound method or an `lru_cache` runs; else the target itself."""
    while isinstance(target, (types.MethodType, LRU_CACHE)):
        target = target.__func__ if isinstance(target, types.MethodType) else target.__wrapped__
    return target


def layers(target: Any) -> list[types.FunctionType]:
    """Return the functions that a call of `target` runs, outermost first: under partials and decorators."""
    functions: list[types.FunctionType] = []
    while True:
        inner = under(target.func if isinstance(target, functools.partial) else target)
        if isinstance(inner, types.FunctionType):
            if inner in functions:
                return functions
            functions.append(inner)
        elif not isinstance(inner, functools.partial):
            call = under(inspect.getattr_static(type(inner), "__call__", None))
            functions += [call] if isinstance(call, types.FunctionType) and not of_library(call) else []
        wraps = inspect.getattr_static(inner, "__wrapped__", None)
        target = inner if isinstance(inner, functools.partial) else wraps
        if not callable(target):
            return functions


def hook_layers(target: Any, name: str, tool: BaseTool) -> None:
    """Hook a tool's body and the functions under it: other code can hold one of them and call it directly.

    Tools may share a function under partials or objects: `_meant` finds the tool that a direct call is for.

    Raises:
        NotHookable: there is no function in it.
    """
    outer: Hook | None = None
    given = not isinstance(under(target), types.FunctionType)
    for function in layers(target) or [target]:
        if outer is not None and (of_library(function) or of_python(function)):
            continue
        earlier = _OF.get(id(function))
        made = hook(target if outer is None and not given else function, name, tool=tool)
        if earlier is None:
            made.around, made.given = outer, given
        outer = made


def forget_cached() -> None:
    """Empty the `lru_cache`s before hooked functions: what a model asks for anew has to meet the gate."""
    for hooked in list(_HOOKS.values()):
        for cache in hooked.caches:
            cache.cache_clear()


def hook_twins(living: Living | None = None) -> None:
    """Hook every living function of the same origin as a hooked one.

    A module that is imported under two names, or loaded again, has each of its functions twice; a subclass
    has a method of its own under the name of a hooked one. `living`: objects that the caller just collected.
    """
    _REMADE.clear()
    hooks = list(_HOOKS.values())
    if not hooks:
        return
    alike: dict[types.CodeType, list[Hook]] = {}
    for hooked in hooks:
        alike.setdefault(hooked.real.__code__, []).append(hooked)
    hooks_by_origin: dict[Any, Hook] = {}  # only hooks whose code another function shares
    real, lines = {id(hooked.real) for hooked in hooks}, {code.co_firstlineno for code in alike}
    functions = instances_of(types.FunctionType, LRU_CACHE) if living is None else living.functions()
    # nearly all are neither: this is asked of each function in the process
    suspects = [
        function
        for function in functions
        if type(function) is not types.FunctionType or function.__code__.co_firstlineno in lines
    ]
    for function in suspects:
        inner = under(function)
        if not isinstance(inner, types.FunctionType) or id(inner) in real:
            continue
        twin = _OF.get(id(inner)) or _twin(inner, alike, hooks_by_origin)
        if twin is not None and not (twin.function is inner and function is inner):
            asked = twin.in_episodes, twin.acts, twin.unsure
            made = hook(function, twin.name, tool=twin.tool, leaf=twin.leaf)
            made.in_episodes, made.acts, made.unsure = asked
            if twin.reference and not made.reference and same_definition(twin.real, made.real):
                made.reference = twin.reference  # a person named one copy, and means both
    for hooked in hooks:
        for override in (
            _overrides(hooked.function)
            if hooked.tool is None and not (hooked.leaf or hooked.in_episodes)
            else ()
        ):
            hook(override, hooked.name)


def _twin(
    function: types.FunctionType, alike: dict[types.CodeType, list[Hook]], hooks_by_origin: dict[Any, Hook]
) -> Hook | None:
    """Return the hook in another function of the same origin. Only hooks of the same code are compared."""
    code = function.__code__
    if code not in alike:
        return None
    hooks_by_origin.update(
        (_origin(hooked.function, hooked.real.__code__), hooked) for hooked in alike[code]
    )  # of any file
    alike[code] = []
    return hooks_by_origin.get(_origin(function, code))


def hook_made_around(name: str) -> None:
    """Hook the functions that hooked ones of a name wrap (`functools.wraps`), if they have that name too."""
    outer = hooked_as(name)
    for hooked in outer:
        for value in closure_of(hooked.real):
            inner = under(value)
            if isinstance(inner, types.FunctionType) and inner.__name__ == name and not is_hooked(inner):
                made = hook(inner, name)
                made.around = hooked
                outer.append(made)


def same_definition(first: object, second: object, depth: int = 3) -> bool:
    """Whether two functions come from the same lines of one file, loaded twice, and hold the same values."""
    if first is second:
        return True
    if type(first) is not type(second):
        return False
    if type(first) in (list, tuple, dict):
        parts, others = _entries(first), _entries(second)
        alike = (same_definition(a, b, depth - 1) for a, b in zip(parts, others, strict=False))
        return depth > 0 and len(parts) == len(others) and all(alike)
    if not isinstance(first, types.FunctionType) or not isinstance(second, types.FunctionType):
        return type(first) in _CONSTANT and first == second
    if not depth or not _of_own_file(first) or not _of_own_file(second):
        return False
    values = [*_closure_and_defaults(first), *_named(first)]
    other_values = [*_closure_and_defaults(second), *_named(second)]
    return (
        _origin(first, real_of(first).__code__) == _origin(second, real_of(second).__code__)
        and len(values) == len(other_values)
        and all(same_definition(a, b, depth - 1) for a, b in zip(values, other_values, strict=True))
    )


def _entries(table: Any) -> list[object]:
    return [*table, *table.values()] if isinstance(table, dict) else list(table)


_CONSTANT = (str, int, float, bool, bytes)


def _of_own_file(function: types.FunctionType) -> bool:
    """Whether a function's global names are those of the file that its code stands in: not so with `exec`."""
    file, own = function.__globals__.get("__file__"), real_of(function).__code__.co_filename
    return isinstance(file, str) and os.path.realpath(file) == os.path.realpath(own)


def _named(function: types.FunctionType) -> Iterator[object]:
    """What the global names in a function's code stand for, but for modules and classes."""
    names = function.__globals__
    values = (names.get(name) for name in sorted(real_of(function).__code__.co_names))
    return (value for value in values if not isinstance(value, (types.ModuleType, type)))


def _closure_and_defaults(function: types.FunctionType) -> Iterator[object]:
    """Yield the values in a function's closure and defaults."""
    function = real_of(function)
    yield from closure_of(function)
    yield from function.__defaults__ or ()
    yield from (value for _, value in sorted((function.__kwdefaults__ or {}).items()))


_REMADE: list[str] = []
"""Files of hooked functions that were loaded anew, while no session was open."""


def met_again(file: str | None) -> None:
    """A module's code has run: where functions of that file are hooked, those that it made are hooked too.

    At once where a session is open, else before the next one opens: a look at all functions takes long.
    """
    if file is not None and any(hooked.real.__code__.co_filename == file for hooked in list(_HOOKS.values())):
        _REMADE.append(file)
        if PROCESS.sessions:
            hook_remade()


def hook_remade() -> None:
    """Hook what modules that were loaded anew have made, unless that was done since."""
    if _REMADE:
        hook_twins()


def _origin(function: types.FunctionType, code: types.CodeType, depth: int = 2) -> Any:
    """Where a function was written; of one that a decorator made, also what it was made around."""
    around = closure_of(function) if depth else ()
    inner = tuple(
        _origin(inside, real_of(inside).__code__, depth - 1)
        for inside in around
        if isinstance(inside, types.FunctionType)
    )
    return os.path.realpath(code.co_filename), function.__qualname__, code, inner


def _overrides(function: types.FunctionType) -> list[types.FunctionType]:
    """A method's overrides in classes below its own."""
    owner: Any = sys.modules.get(function.__module__)
    for name in function.__qualname__.split(".")[:-1]:
        owner = getattr(owner, name, None)
    if not isinstance(owner, type):
        return []
    overrides = (under(vars(below).get(function.__name__)) for below in subclasses(owner)[1:])
    return [override for override in overrides if isinstance(override, types.FunctionType)]


def of_python(target: Callable[..., Any]) -> bool:
    """Whether a function is Python's own library's: hooked, every call of it in the process would be met."""
    function = under(target)
    name = function.__code__.co_filename if isinstance(function, types.FunctionType) else ""
    return name.startswith(("<frozen ", *_PYTHON)) and not name.startswith(_PACKAGES)


def of_library(made: types.FunctionType | str) -> bool:
    """Whether a function, or a file, is of an installed package, of Python, or of no file at all."""
    file = made if isinstance(made, str) else real_of(made).__code__.co_filename
    return file.startswith(("<", *_PYTHON, *_PACKAGES)) and not file.startswith("<ipython")


def real_of(function: types.FunctionType) -> types.FunctionType:
    """The function itself, or what a hook took out of it."""
    return _OF[id(function)].real if id(function) in _OF else function


def is_empty(target: Callable[..., Any]) -> bool:
    """Whether a function only gives back a constant or says that it is not implemented: a stub."""
    function = under(target)
    if not isinstance(function, types.FunctionType):
        return False
    return _does_nothing(real_of(function).__code__)


@functools.lru_cache(maxsize=4096)
def _does_nothing(code: types.CodeType) -> bool:
    """Asked of every tool that a model is bound with, before each of its answers."""
    idle = _IDLE | _SAYS if "NotImplementedError" in code.co_names else _IDLE
    return set(code.co_names) <= {"NotImplementedError"} and all(
        instruction.opname in idle for instruction in dis.get_instructions(code)
    )


_IDLE = frozenset(
    {
        "RESUME", "NOP", "CACHE", "LOAD_CONST", "LOAD_SMALL_INT", "POP_TOP", "RETURN_VALUE", "RETURN_CONST",
        "RETURN_GENERATOR", "LOAD_GLOBAL", "PUSH_NULL", "PRECALL", "CALL", "RAISE_VARARGS",
        "CALL_INTRINSIC_1", "RERAISE",
    }
)  # fmt: skip


_SAYS = frozenset(
    {"LOAD_FAST", "LOAD_FAST_BORROW", "FORMAT_VALUE", "FORMAT_SIMPLE", "CONVERT_VALUE", "BUILD_STRING"}
)  # what of its arguments a stub puts into its complaint
_PYTHON = tuple({sysconfig.get_paths()[name] + os.sep for name in ("stdlib", "platstdlib")})
_PACKAGES = tuple({sysconfig.get_paths()[name] + os.sep for name in ("purelib", "platlib")})


def hooked_names() -> set[str]:
    """The names that hooked functions go by."""
    return {
        name
        for hooked in _HOOKS.values()
        if not hooked.leaf and not hooked.in_episodes
        for name in (hooked.name, *(name for name, _ in hooked.also))
    }


def registered(name: str) -> bool:
    """Whether a function that does something was hooked for its own sake under that name, not for a tool."""
    hooks = (hooked for hooked in hooked_as(name) if hooked.name == name and hooked.tool is None)
    return any(not is_empty(hooked.real) for hooked in hooks)


def is_hooked(function: types.FunctionType) -> bool:
    """Whether calls of this very function meet the gate, or it is the real one that only the gate calls."""
    sure = (hooked for hooked in _HOOKS.values() if not hooked.unsure)
    return any(function is hooked.function or function is hooked.real for hooked in sure)


def hooked_as(name: str) -> list[Hook]:
    """The functions that were hooked for their own sake under a name."""
    return [
        hooked
        for hooked in list(_HOOKS.values())
        if not (hooked.leaf or hooked.in_episodes)
        and (name, None) in [(hooked.name, hooked.tool), *hooked.also]
    ]


def hook_of(function: object) -> Hook | None:
    """The hook in a function."""
    return _OF.get(id(function))  # the hook keeps its function: no other has that id


def hooked_ids() -> set[int]:
    """Return the ids of the functions and tools that hooks keep alive."""
    return {
        id(object_)
        for hooked in list(_HOOKS.values())
        for object_ in (hooked.function, hooked.real, hooked.tool, *(tool for _, tool in hooked.also))
        if object_ is not None
    }


def unhook_all() -> None:
    """Undo every hook."""
    for hooked in list(_HOOKS.values()):
        hooked.undo()


def _install(function: types.FunctionType, name: str, tool: BaseTool | None, *, leaf: bool) -> Hook:
    number, signature = next(_NUMBERS), typed_signature(function)

    def register(real: types.FunctionType, put_back: Callable[[], None]) -> None:
        made = Hook(name, function, real, signature, number, put_back, tool)
        made.leaf = leaf
        _HOOKS[number] = _OF[id(function)] = made

    reroute(function, f"{__name__}:enter", number, register)
    return _HOOKS[number]


def enter(number: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Where a hooked function's calls arrive."""
    hooked, session = _met(number, args, kwargs)
    if session is None:
        return hooked.real(*args, **kwargs)
    return session.drive(_way(hooked, session, hooked.real, args, kwargs))()


async def enter_async(number: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Where a hooked coroutine function's calls arrive."""
    hooked, session = _met(number, args, kwargs)
    if session is None:
        return await hooked.real(*args, **kwargs)
    return (await session.drive_async(_way(hooked, session, hooked.real, args, kwargs)))()


def enter_generator(number: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Where a hooked generator function's calls arrive; the answer's items are what it yields."""
    hooked, session = _met(number, args, kwargs)
    if session is None:
        return (yield from hooked.real(*args, **kwargs))

    def listed(*given: Any, **named: Any) -> list[Any]:
        return list(hooked.real(*given, **named))

    items = session.drive(_way(hooked, session, listed, args, kwargs))()
    yield from items if isinstance(items, list) else [items]
    return None


def _met(number: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Hook, Session | None]:
    """The hook that was met, and the session to ask; None where the real body may run unasked."""
    hooked = _HOOKS.get(number)
    if hooked is None:
        raise RuntimeError("a hooked function was called while its hook was being removed")
    session = _session(hooked, args, kwargs)
    return hooked, None if session is not None and _unnamed(hooked, session, args, kwargs) else session


def _session(hooked: Hook, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Session | None:
    """The session to ask; None where the real body may run unasked."""
    if is_outside():
        return None
    if hooked.in_episodes and not config_here() and not thread_owners.owner():
        return None
    if hooked.acts is not None and not hooked.acts(args, kwargs):
        return None
    body = running()
    if body is hooked or (isinstance(body, BaseTool) and _is_body_of(hooked.function, body)):
        return None
    around = hooked.around
    while around is not None:
        if body is around:
            return None
        around = around.around
    if hooked.leaf and args and body is args[0]:
        return None
    return find(session_key(config_here()), _name(hooked, args))


def _name(hooked: Hook, args: tuple[Any, ...]) -> str:
    if hooked.leaf and args and isinstance(args[0], BaseTool):
        return args[0].name
    return hooked.name


def _is_body_of(function: types.FunctionType, tool: BaseTool) -> bool:
    if any(function in layers(tool.__dict__.get(holder)) for holder in ("func", "coroutine")):
        return True
    method = functools.partial(getattr, type(tool))
    return any(getattr(method(name, None), "__wrapped__", None) is function for name in ("_run", "_arun"))


def _way(
    hooked: Hook, session: Session, real: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Flow[Callable[[], Any]]:
    """The way of a call that reached a hooked function."""
    name, tool = _called(hooked, session, args, kwargs)
    arguments = functools.partial(_arguments, hooked, tool)
    node = metadata_here().get("langgraph_node")
    return answered(
        GatedCall(
            session=session,
            call=Call(name, session.masker.plain(arguments(args, kwargs)), None, node),
            called=hooked.function if tool is None else tool,
            tool=tool,
            owner=hooked,
            real=real,
            args=args,
            kwargs=kwargs,
            own=kwargs,
            arguments=arguments,
            identity=lambda _: None,
        )
    )


def _called(
    hooked: Hook, session: Session, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[str, BaseTool | None]:
    """The name that a call goes by, and the tool whose body this is.

    Of several tools over one body the one that is dreamt, or, where none is, the one that can do most.
    """
    if hooked.leaf and args and isinstance(args[0], BaseTool):
        return args[0].name, args[0]
    policy = session.policy
    objects = [
        (name, tool, hooked.function if tool is None else tool) for name, tool in _meant(hooked, args, kwargs)
    ]
    dreamt = (each for each in objects if policy.route(each[0], each[2]) is Route.DREAM)
    worst = max(objects, key=lambda each: _POWER[effect_of(policy.spec(each[0], each[2]))])
    name, tool, _ = next(dreamt, worst)
    return name, tool


def _meant(hooked: Hook, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[str, BaseTool | None]]:
    """Return the tools that a call may be for: of partials and objects, those that pass its arguments."""
    candidates = [(hooked.name, hooked.tool), *hooked.also]
    if not hooked.given:
        return candidates
    try:
        given = hooked.signature.bind(*args, **kwargs).arguments
    except TypeError:
        return []
    of_tools = [each for each in candidates if each[1] is not None and _gives(each[1], hooked, given)]
    return of_tools or [each for each in candidates if each[1] is None]


def _gives(tool: BaseTool, hooked: Hook, given: dict[str, Any]) -> bool:
    """Whether a tool's partial or object hands a function these arguments."""
    for body in filter(None, (tool.__dict__.get(holder) for holder in ("func", "coroutine"))):
        args, kwargs = (body.args, body.keywords) if isinstance(body, functools.partial) else ((body,), {})
        with contextlib.suppress(Exception):  # a comparison may be the user's code, and a partial may not fit
            fixed = hooked.signature.bind_partial(*args, **kwargs).arguments.items()
            if all(name in given and (given[name] is value or given[name] == value) for name, value in fixed):
                return True
    return False


def _unnamed(hooked: Hook, session: Session, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a call of a shared body is for none of its tools, and may run: if none of them acts."""
    if (hooked.leaf and args and isinstance(args[0], BaseTool)) or _meant(hooked, args, kwargs):
        return False
    names = [(hooked.name, hooked.tool), *hooked.also]
    real = all(session.policy.route(*each) is Route.REAL for each in names)
    if not session.mode.bare and not real:
        reference = f"{hooked.real.__module__}:{hooked.real.__qualname__}"
        session.refuse(
            f"{reference}, which tools run ({', '.join(name for name, _ in names)}), was called past "
            f"them; it did not run; {advice.format_lines(advice.function_answered(reference))}"
        )
    return True


_POWER = {effect: power for power, effect in enumerate(Effect)}  # from harmless to irreversible


def _arguments(
    hooked: Hook, tool: BaseTool | None, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    """A function's arguments by name, with secrets in them."""
    if hooked.leaf and args and isinstance(args[0], BaseTool):
        return bare_arguments(args[0], args[1:], kwargs)
    arguments = function_arguments(hooked.signature, args, kwargs)
    if tool is not None and hooked.given:
        arguments = {name: value for name, value in arguments.items() if name in tool.args}
    return arguments if tool is None else dict(without_injected(tool, arguments))
