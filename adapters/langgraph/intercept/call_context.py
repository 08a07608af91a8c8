"""What one tool call looks like where the gate stands: its arguments, its id, its place in the graph.

`BaseTool.run` knows the call id and the config, `_run` knows the validated arguments: the frame set by the
first is read by the second. The model must not see what the framework injected (state, store, call id,
runtime, config), nor may a key depend on it.

A place in the graph is the same in every run, however fast things are: it is the way from the outermost graph
in, at each level the step, the node, which of its parallel runs, and the how-manieth graph it runs there by
hand. Steps of one graph follow each other, so that places in their order are in the order of what happened;
what ran side by side stands by name.
"""

import functools
import inspect
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

from langchain_core.messages import BaseMessage
from langchain_core.runnables.config import RunnableConfig, var_child_runnable_config
from langchain_core.tools import BaseTool
from langchain_core.tools.base import FILTERED_ARGS, get_all_basemodel_annotations
from langgraph._internal._constants import CONFIG_KEY_SCRATCHPAD
from langgraph.store.base import BaseStore

from dreamgym_kit.replay.masking import Masker
from dreamgym_kit.routing.process import CONFIG_KEY, current
from dreamgym_kit.routing.session import Identity, Session
from dreamgym_kit.serialization import to_json
from dreamgym_kit.types import Call


class ToolCallContext(NamedTuple):
    """One tool being run by the framework."""

    tool: BaseTool
    call_id: str | None
    config: Mapping[str, Any] | None
    reached: list[BaseTool]  # the tool, once its leaf was reached


frame: ContextVar[ToolCallContext | None] = ContextVar("dreamgym_frame", default=None)


@contextmanager
def called(
    tool: BaseTool, call_id: str | None, config: Mapping[str, Any] | None
) -> Iterator[ToolCallContext]:
    """In the block a tool is called; its leaf finds the call id and the config.

    An override shares `reached` with the method it goes on to.
    """
    outer = frame.get()
    reached = outer.reached if outer is not None and outer.tool is tool else []
    token = frame.set(around := ToolCallContext(tool, call_id, config, reached))
    try:
        yield around
    finally:
        if not around.reached and (session := current.get()) is not None:
            # one that ended before its leaf (bad arguments) ran nothing, whatever a node answers for it
            session.record_intercepted(tool.name, call_id)
            around.reached.append(tool)
        frame.reset(token)


class PassThrough:
    """A tool or function whose real body is running: it is not asked a second time.

    Tasks that the body leaves behind copy its context; once the body has ended they are asked like any other.
    """

    __slots__ = ("around", "live", "owner")

    def __init__(self, owner: object) -> None:
        self.owner = owner
        self.around = frame.get()
        self.live = True


let_through: ContextVar[PassThrough | None] = ContextVar("dreamgym_let_through", default=None)


def running() -> object:
    """The tool or function whose real body is running in this context."""
    through = let_through.get()
    return through.owner if through is not None and through.live else None


def goes_on(tool: BaseTool) -> bool:
    """Whether a tool's leaf is reached from its own running body, and so was asked about already.

    Where real calls are overseen, a body that has the framework run its own tool makes another call.
    """
    through = let_through.get()
    if through is None or not through.live or through.owner is not tool:
        return False
    session = current.get()
    overseen = session is not None and session.overseer is not None
    return not overseen or through.around is frame.get()


@contextmanager
def letting_through(owner: object) -> Iterator[None]:
    """Run the real body of `owner` in the block."""
    through = PassThrough(owner)
    token = let_through.set(through)
    try:
        yield
    finally:
        through.live = False
        let_through.reset(token)


_PLUMBING = ("run_manager", "callbacks", "config")


def config_here(tool: object | None = None) -> Mapping[str, Any]:
    """The runnable config that reaches this point; empty where there is none."""
    around = frame.get()
    if around is not None and around.tool is tool and around.config:
        return around.config
    return var_child_runnable_config.get() or {}


def session_key(config: Mapping[str, Any]) -> str | None:
    """The second key of the session, where the config carries one."""
    configurable = config.get("configurable")
    key = configurable.get(CONFIG_KEY) if configurable else None
    return key if isinstance(key, str) else None


def metadata_here() -> Mapping[str, Any]:
    """LangGraph's own facts about the running node."""
    return (var_child_runnable_config.get() or {}).get("metadata") or {}


def call_of(tool: BaseTool, args: tuple[Any, ...], kwargs: Mapping[str, Any], masker: Masker) -> Call:
    """The call as the agent made it, from what arrived at the leaf; from here on it is masked."""
    around = frame.get()
    call_id = None
    if around is not None and around.tool is tool:
        call_id = around.call_id
        around.reached.append(tool)
    arguments = masker.plain(bare_arguments(tool, args, kwargs))
    return Call(tool.name, arguments, call_id, metadata_here().get("langgraph_node"))


def bare_arguments(tool: BaseTool, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return validated arguments as JSON data, without those that the framework injected.

    Keys and passwords are not masked: never store or show the result.
    """
    passed = {**positional_names(tool, args), **kwargs} if args else kwargs
    own_names = _own_names(tool, passed)
    bare = {}
    for name, value in passed.items():
        if name in own_names and not (isinstance(value, dict) and _is_config(value)):
            bare[name] = to_json(value)
    return bare


def _own_names(tool: BaseTool, passed: Mapping[str, Any]) -> frozenset[str]:
    """Return the names that the framework does not inject; cached per tool and set of names."""
    cached = _NAMES_OF_TOOLS.get(id(tool))
    if cached is None or cached[0]() is not tool or cached[1] is not tool.args_schema:
        gone = functools.partial(_NAMES_OF_TOOLS.pop, id(tool))
        cached = _NAMES_OF_TOOLS[id(tool)] = (weakref.ref(tool, lambda _: gone(None)), tool.args_schema, {})
    names = tuple(passed)
    own_names = cached[2].get(names)
    if own_names is None:
        if len(cached[2]) >= _MAX_NAMES:
            cached[2].clear()
        own_names = cached[2][names] = frozenset(without_injected(tool, dict(passed))).difference(_PLUMBING)
    return own_names


_NAMES_OF_TOOLS: dict[int, tuple[weakref.ref[BaseTool], Any, dict[tuple[str, ...], frozenset[str]]]] = {}
_MAX_NAMES = 64  # a tool that takes any keyword could bring ever new ones


def positional_names(tool: BaseTool, args: tuple[Any, ...]) -> dict[str, Any]:
    """Name positional arguments as the tool's own schema does."""
    try:
        names = list(tool.args)
    except (AttributeError, KeyError, TypeError, ValueError):
        names = []
    return {
        names[position] if position < len(names) else f"arg{position + 1}": value
        for position, value in enumerate(args)
    }


def identity_of(session: Session, call: Call) -> Identity | None:
    """Name this request, the same in a node that LangGraph runs again.

    The checkpoint namespace is the same when a task is run again after an interrupt, and another one
    in every other step; without it (no graph) or without a call id nothing can be told apart.
    """
    config = var_child_runnable_config.get() or {}
    namespace = (config.get("metadata") or {}).get("langgraph_checkpoint_ns")
    if not namespace or call.call_id is None:
        return None
    node_run = (config.get("configurable") or {}).get(CONFIG_KEY_SCRATCHPAD)
    request = (f"{namespace}|{call.call_id}", call.key)
    return request if node_run is None else session.numbered(request, node_run)


def _is_config(value: object) -> bool:
    """A RunnableConfig parameter may have any name."""
    return isinstance(value, dict) and bool(value) and set(value) <= _CONFIG_KEYS and "configurable" in value


_CONFIG_KEYS = frozenset(RunnableConfig.__annotations__)


def typed_signature(function: Callable[..., Any]) -> inspect.Signature:
    """A function's signature, its annotations as types where they can be evaluated."""
    try:
        return inspect.signature(function, eval_str=True)
    except Exception:  # noqa: BLE001  a name that only a type checker sees
        return inspect.signature(function)


def function_arguments(
    signature: inspect.Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Arguments of a plain function by name, defaults filled in, as JSON data.

    Raises:
        TypeError: the call does not fit the signature, as the function itself would say.
    """
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    named = dict(bound.arguments)
    for name, parameter in signature.parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            named.update(named.pop(name, {}))
    return {
        name: to_json(_without_message_ids(value))
        for name, value in named.items()
        if name not in ("self", *_PLUMBING) and not _is_config(value) and not _is_injected(value)
        if name not in signature.parameters or not _injects(signature.parameters[name].annotation)
    }


def _injects(annotation: Any) -> bool:
    """Whether a parameter is the framework's to fill in, which no model sees."""
    if annotation is inspect.Parameter.empty or isinstance(annotation, str) or _is_injected_arg_type is None:
        return False
    return bool(_is_injected_arg_type(annotation))


_MAX_DEPTH = 8  # of objects and lists in which messages are looked for


def _without_message_ids(value: Any, depth: int = 0) -> Any:
    """Replace messages by their content: LangGraph draws an id for each message, and models for each call."""
    if isinstance(value, BaseMessage):
        record = {"type": value.type, "content": value.content, "name": value.name}
        calls = [[call["name"], call["args"]] for call in getattr(value, "tool_calls", ())]
        return {name: part for name, part in (*record.items(), ("tool_calls", calls)) if part}
    if depth < _MAX_DEPTH and type(value) is dict:
        return {name: _without_message_ids(item, depth + 1) for name, item in value.items()}
    if depth < _MAX_DEPTH and type(value) in (list, tuple):
        return [_without_message_ids(item, depth + 1) for item in value]
    return value


def _is_injected(value: object) -> bool:
    module = type(value).__module__
    return isinstance(value, BaseStore) or module.startswith(("langgraph.", "langchain_core.callbacks"))


try:
    from langchain_core.tools.base import _is_injected_arg_type
except ImportError:  # then the framework's own filter is there
    _is_injected_arg_type = None  # type: ignore[assignment]


def without_injected(tool: BaseTool, passed: dict[str, Any]) -> Mapping[str, Any]:
    """Return the arguments that the model gave, without those that the framework injected.

    Newer langchain-core has a function for this (`_filter_injected_args`, which its own callbacks use); for
    1.0 and 1.1 the same rule is read from the schema's annotations.
    """
    own = getattr(type(tool), "_filter_injected_args", None)
    if own is not None:
        filtered: Mapping[str, Any] = own(tool, passed)
        return filtered
    hidden = _injected_names(tool)
    return {
        name: value
        for name, value in passed.items()
        if name not in hidden and not type(value).__module__.startswith("langgraph.")
    }


def _injected_names(tool: BaseTool) -> set[str]:
    names = set(FILTERED_ARGS)
    schema = tool.args_schema
    if schema is None or isinstance(schema, dict) or _is_injected_arg_type is None:
        return names
    return names | {
        name for name, kind in get_all_basemodel_annotations(schema).items() if _is_injected_arg_type(kind)
    }


SEPARATOR = "|"


class Level(NamedTuple):
    """One graph on the way to a place."""

    step: int
    node: str
    run: tuple[int, ...]  # which of several parallel runs of the node in this step
    graph: int  # how many graphs the node had run by hand before the one that leads on


CallSite = tuple[Level, ...]


class CallSites:
    """What one episode shows of its graphs: the node runs that other graphs run in. Thread-safe."""

    def __init__(self) -> None:
        self._runs: dict[str, Level] = {}  # by checkpoint namespace
        self._lock = threading.Lock()

    def enter(self, metadata: Mapping[str, Any]) -> None:
        """A graph is about to run inside of the node run that `metadata` tells of."""
        namespace = metadata.get("langgraph_checkpoint_ns")
        if namespace:
            with self._lock:
                self._runs[str(namespace)] = _level(metadata)

    def place(self, metadata: Mapping[str, Any]) -> CallSite:
        """Where a call is made."""
        namespace = str(metadata.get("langgraph_checkpoint_ns") or "")
        segments = namespace.split(SEPARATOR) if namespace else []
        levels: list[Level] = []
        for end in range(1, len(segments)):
            segment = segments[end - 1]
            if segment.isdigit():
                if levels:
                    levels[-1] = levels[-1]._replace(graph=int(segment))
                continue
            outer = self._runs.get(SEPARATOR.join(segments[:end]))
            levels.append(outer or Level(0, segment.partition(":")[0], (), 0))
        return (*levels, _level(metadata))


def path_of(place: CallSite) -> str:
    """The place's node as `inspect` names it: "agent", or "team/agent" inside of a graph in a node."""
    return "/".join(level.node for level in place if level.node)


def _level(metadata: Mapping[str, Any]) -> Level:
    return Level(
        int(metadata.get("langgraph_step") or 0),
        str(metadata.get("langgraph_node") or ""),
        tuple(_numbers(metadata.get("langgraph_path"))),
        0,
    )


def _numbers(path: Any) -> list[int]:
    """The places of a run among those sent out with it, at any depth of the path."""
    if isinstance(path, bool):
        return []
    if isinstance(path, int):
        return [path]
    return [number for part in path for number in _numbers(part)] if isinstance(path, (tuple, list)) else []
