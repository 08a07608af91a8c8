"""Whether a graph without anything to intercept provably does no more than ask a model.

Such a graph runs. In any other the reading of code may have missed what acts, so a person decides.
"""

import functools
import inspect
import itertools
from collections.abc import Iterator
from typing import Any

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import Runnable, RunnableLambda, RunnableSequence
from langgraph.pregel import Pregel
from langgraph.pregel.protocol import PregelProtocol
from langgraph.runtime import Runtime
from langgraph.types import Command, Send

from dreamgym_kit.adapters.langgraph.analysis import side_effects
from dreamgym_kit.adapters.langgraph.analysis.gc_objects import closure_of
from dreamgym_kit.adapters.langgraph.analysis.inventory import behind, beside_nodes
from dreamgym_kit.adapters.langgraph.analysis.nodes import is_framework, nodes_of, unwrapped
from dreamgym_kit.adapters.langgraph.analysis.side_effects import instructions_of, is_users
from dreamgym_kit.adapters.langgraph.intercept.functions import real_of
from dreamgym_kit.settings import advice
from dreamgym_kit.settings.schema import Settings

_PLAIN = (bool, bytes, dict, float, int, list, set, str, tuple)
_SAFE_TYPES = (*_PLAIN, AIMessage, ToolMessage, BaseChatModel, ChatPromptTemplate, Command, RunnableSequence)
_FIELDS = frozenset(
    itertools.chain(
        *map(dir, _SAFE_TYPES), AIMessage.model_fields, ToolMessage.model_fields, dir(Send), dir(Runtime)
    )
)
"""Attributes that code may use of values it was handed: they are those of data and models."""
_ASKS = frozenset({"invoke", "ainvoke", "stream", "astream", "batch", "abatch"})
_FIXED = (bool, bytes, float, int, str, BaseChatModel, ChatPromptTemplate)  # that a node's partial may give
_UNREAD = frozenset({"__import__", "eval", "exec", "import_module", "open"})  # they reach what is not named
_MAX_DEPTH = 10


def unproven(graph: Pregel[Any], settings: Settings) -> list[advice.Advice] | None:
    """What a person has to say of a graph before it may run, one line of dreamgym.toml for each node.

    None where nothing has to be said: each node is seen to compute and to ask a model, or a person named it.
    """
    reader = _Reader()
    lines: dict[str, advice.Advice] = {}
    named = False
    for path, bound in nodes_of(graph):
        name = path.rpartition("/")[2]
        if name in settings.nodes:
            named = True
        elif not reader.node(bound):
            lines[name] = advice.node_runs(name)
    for _, node, reached in beside_nodes(graph):
        if node not in settings.nodes and not (is_users(reached.function) and reader.computes(reached)):
            reference = f"{reached.function.__module__}:{reached.function.__qualname__}"
            lines[node or reference] = advice.node_runs(node) if node else advice.function_answered(reference)
    if not lines and not named and not reader.asks:  # it does nothing that a dream could try
        lines = {name: advice.node_runs(name) for name in graph.nodes if name != "__start__"}
    return list(lines.values()) or None


class _Reader:
    """Reads the code under nodes; `asks`: whether any of it asks a model."""

    def __init__(self) -> None:
        self.asks = False
        self._seen: dict[int, bool] = {}

    def node(self, bound: Any) -> bool:
        """Whether a node provably only computes and calls models."""
        functions = list(behind(bound))
        if not all(is_users(reached.function) for _, reached in functions):
            return False
        for inner in unwrapped(bound):
            self.asks |= isinstance(inner, BaseChatModel)
            opaque = not functions and (isinstance(inner, RunnableLambda) or hasattr(inner, "func"))
            if not (isinstance(inner, (BaseChatModel, Pregel)) or is_framework(type(inner).__module__)):
                return False
            elsewhere = isinstance(inner, PregelProtocol) and not isinstance(inner, Pregel)
            ran = getattr(inner, "func", None) or getattr(inner, "afunc", None)
            fixed = (*ran.args, *ran.keywords.values()) if isinstance(ran, functools.partial) else ()
            if opaque or elsewhere or not all(isinstance(value, _FIXED) for value in fixed):
                return False  # a builtin, code of a library, a graph elsewhere, or an object that is not read
        return all(self.computes(reached) for _, reached in functions)

    def computes(self, reached: side_effects.Reached, depth: int = 0) -> bool:
        """Whether a function provably only computes, or calls a model."""
        function = reached.function
        if id(function) in self._seen:
            return self._seen[id(function)]
        if depth > _MAX_DEPTH:
            return False
        self._seen[id(function)] = True  # while it is read: it may call itself
        reading = side_effects.read(function, reached.owner)
        values = [value for value in map(function.__globals__.get, reading.words) if value is not None]
        values += closure_of(function)
        methods = (method for value in values for method in _methods(value, reading.words))
        good = (
            reading.acts is None
            and reading.doubt is None
            and not (reading.forms or reading.graphs or reached.chosen or reading.words & _UNREAD)
            and all(name in _FIELDS or _stands_in(values, name) for name in _attributes(function))
            and all(self.computes(further, depth + 1) for further in (*reading.reached, *methods))
            and all(self.node(value) for value in values if isinstance(value, Runnable))
        )
        self.asks |= bool(reading.words & _ASKS)
        self._seen[id(function)] = good
        return good


def _methods(value: Any, words: frozenset[str]) -> Iterator[side_effects.Reached]:
    """What a user's class does of which code may hold an object, by an operator, too; of models: by name."""
    kind = value if isinstance(value, type) else type(value)
    for cls in itertools.filterfalse(side_effects.is_library_class, kind.__mro__):
        for name, entry in vars(cls).items():
            inner = getattr(entry, "fget", None) or getattr(entry, "__func__", entry)
            if is_users(inner) and (name in words or not issubclass(kind, BaseChatModel)):
                yield side_effects.Reached(inner)


def _attributes(function: Any) -> Iterator[str]:
    """The attributes that code reads, of whatever value."""
    for code in side_effects.codes_of(real_of(function).__code__):
        steps = [step for step in instructions_of(code) if step.opname not in ("CACHE", "PUSH_NULL")]
        for place, step in enumerate(steps):
            if step.opname in ("LOAD_ATTR", "LOAD_METHOD"):
                yield str(step.argval)
            elif step.argval == "getattr" and step.opname.startswith("LOAD_"):
                yield str([*side_effects.constants_given(steps[place + 1 : place + 40]), None, None][1])


def _stands_in(values: list[Any], name: str) -> bool:
    """Whether a global value of the code has the attribute: what it is was read already."""
    return any(inspect.getattr_static(value, name, None) is not None for value in values)
