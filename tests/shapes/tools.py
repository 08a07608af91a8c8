"""Tools of every class, each with a body that leaves a canary's trace."""

import copy
import warnings
from typing import Any

from langchain_core.documents import Document
from langchain_core.messages import ToolMessage
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langchain_core.tools import BaseTool, StructuredTool, Tool, create_retriever_tool, tool
from shapes.canary import touch

DICT_SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


def add_tool() -> StructuredTool:
    @tool
    def add(a: int, b: int = 5) -> int:
        """Add two numbers."""
        touch("add")
        return a + b

    return add


def async_tool() -> StructuredTool:
    @tool
    async def aadd(a: int, b: int = 5) -> int:
        """Add two numbers, later."""
        touch("aadd")
        return a + b

    return aadd


def both_tool() -> StructuredTool:
    def both(a: int) -> int:
        touch("both")
        return a

    async def aboth(a: int) -> int:
        touch("aboth")
        return a

    return StructuredTool.from_function(both, coroutine=aboth, name="both", description="both kinds")


def dict_schema_tool() -> StructuredTool:
    def plain(a: int) -> int:
        touch("plain")
        return a

    return StructuredTool.from_function(plain, name="plain", description="d", args_schema=DICT_SCHEMA)


class ClassTool(BaseTool):
    name: str = "cls"
    description: str = "a class"

    def _run(self, a: int) -> str:
        touch("cls")
        return f"real {a}"


class AsyncClassTool(ClassTool):
    name: str = "acls"

    async def _arun(self, a: int) -> str:
        touch("acls")
        return f"real {a}"


class ChainedTool(ClassTool):
    name: str = "chained"

    def _run(self, a: int) -> str:
        touch("chained")
        return super()._run(a) + "!"


class StructuredSubclass(StructuredTool):
    """A StructuredTool with a leaf of its own that goes on to the framework's."""

    def _run(self, *args: Any, config: RunnableConfig, run_manager: Any = None, **kwargs: Any) -> Any:
        touch("substructured")
        return super()._run(*args, config=config, run_manager=run_manager, **kwargs)


def structured_subclass() -> StructuredTool:
    def substructured(a: int) -> int:
        touch("substructured-func")
        return a

    return StructuredSubclass.from_function(substructured, name="substructured", description="d")


def single_tool() -> Tool:
    def simple(query: str) -> str:
        touch("simple")
        return query

    return Tool(name="simple", func=simple, description="one string")


def lambda_tool() -> StructuredTool:
    return StructuredTool.from_function(lambda a: touch("lamb") or a, name="lamb", description="a lambda")


def deep_copied() -> StructuredTool:
    return copy.deepcopy(add_tool())


def model_copied() -> StructuredTool:
    return add_tool().model_copy()


def late_class() -> BaseTool:
    class LateTool(BaseTool):
        name: str = "late"
        description: str = "made after the gate was put in"

        def _run(self, a: int) -> int:
            touch("late")
            return a

    return LateTool()


def patched_class() -> BaseTool:
    class PatchedTool(BaseTool):
        name: str = "patched"
        description: str = "its _run is replaced after the class was made"

        def _run(self, a: int) -> int:
            touch("patched")
            return a

    def other(self: Any, a: int) -> int:
        touch("patched-other")
        return a

    PatchedTool._run = other  # type: ignore[method-assign]
    return PatchedTool()


class _LeafMixin:
    """No tool class itself: a walk over tool classes does not meet it."""

    def _run(self, a: int) -> int:
        touch("mixed-run")
        return a


class _EntryMixin:
    def invoke(self, given: Any, config: Any = None, **kwargs: Any) -> Any:
        touch("mixed-invoke")
        return "real"

    async def ainvoke(self, given: Any, config: Any = None, **kwargs: Any) -> Any:
        touch("mixed-ainvoke")
        return "real"


class MixedLeafTool(_LeafMixin, BaseTool):  # type: ignore[misc]
    name: str = "mixed_leaf"
    description: str = "its leaf comes from a mixin"


class MixedEntryTool(_EntryMixin, BaseTool):  # type: ignore[misc]
    name: str = "mixed_entry"
    description: str = "its entry points come from a mixin"

    def _run(self, a: int) -> int:
        touch("mixed-entry-run")
        return a


class StaticLeafTool(BaseTool):
    name: str = "static"
    description: str = "its leaf is a static method"

    @staticmethod
    def _run(a: int) -> int:  # type: ignore[override]
        touch("static")
        return a


class OverridesInvoke(BaseTool):
    name: str = "ov"
    description: str = "the work is done before the leaf"

    def _run(self, a: int) -> int:
        touch("ov-run")
        return a

    def invoke(self, given: Any, config: Any = None, **kwargs: Any) -> Any:
        touch("ov-invoke")
        return super().invoke(given, config, **kwargs)

    async def ainvoke(self, given: Any, config: Any = None, **kwargs: Any) -> Any:
        touch("ov-ainvoke")
        return await super().ainvoke(given, config, **kwargs)


class OverridesRun(BaseTool):
    name: str = "ovrun"
    description: str = "the work is done in run, the leaf is never reached"

    def _run(self, a: int) -> int:
        raise NotImplementedError

    def run(self, tool_input: Any, *args: Any, **kwargs: Any) -> Any:
        touch("ovrun")
        return ToolMessage("real", tool_call_id=kwargs.get("tool_call_id") or "x")

    async def arun(self, tool_input: Any, *args: Any, **kwargs: Any) -> Any:
        return self.run(tool_input, *args, **kwargs)


class OverridesStream(BaseTool):
    name: str = "ovstream"
    description: str = "the work is done in a generator"

    def _run(self, a: int) -> int:
        touch("ovstream-run")
        return a

    def stream(self, given: Any, config: Any = None, **kwargs: Any) -> Any:
        touch("ovstream")
        yield "real"

    async def astream(self, given: Any, config: Any = None, **kwargs: Any) -> Any:
        touch("ovstream-async")
        yield "real"


def runnable_as_tool() -> BaseTool:
    def body(given: dict[str, Any]) -> Any:
        touch("astool")
        return given["a"]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # still called beta
        return RunnableLambda(body).as_tool(name="astool", description="d", arg_types={"a": int})


class RetrieverDouble(BaseRetriever):
    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        touch("retriever")
        return [Document("real")]


def retriever_tool(response_format: Any = "content") -> BaseTool:
    return create_retriever_tool(RetrieverDouble(), "retr", "d", response_format=response_format)


KINDS: dict[str, Any] = {
    "@tool": (add_tool, {"a": 1}),
    "@tool async": (async_tool, {"a": 1}),
    "func and coroutine": (both_tool, {"a": 1}),
    "dict schema": (dict_schema_tool, {"a": 1}),
    "BaseTool class": (ClassTool, {"a": 1}),
    "class with _arun": (AsyncClassTool, {"a": 1}),
    "super()._run chain": (ChainedTool, {"a": 1}),
    "StructuredTool subclass": (structured_subclass, {"a": 1}),
    "Tool": (single_tool, "q"),
    "lambda": (lambda_tool, {"a": 1}),
    "deepcopy": (deep_copied, {"a": 1}),
    "model_copy": (model_copied, {"a": 1}),
    "late class": (late_class, {"a": 1}),
    "_run replaced later": (patched_class, {"a": 1}),
    "leaf from a mixin": (MixedLeafTool, {"a": 1}),
    "entry from a mixin": (MixedEntryTool, {"a": 1}),
    "static leaf": (StaticLeafTool, {"a": 1}),
    "overridden invoke": (OverridesInvoke, {"a": 1}),
    "overridden run": (OverridesRun, {"a": 1}),
    "overridden stream": (OverridesStream, {"a": 1}),
    "Runnable.as_tool": (runnable_as_tool, {"a": 1}),
    "retriever": (retriever_tool, {"query": "q"}),
}
"""Name -> (maker, input)."""
