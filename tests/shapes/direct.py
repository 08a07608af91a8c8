"""Tools called without any agent: from a script, a closure, a node."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from langchain_core.tools import BaseTool, StructuredTool, Tool
from shapes.models import asks
from shapes.stage import DREAMT, Catalogue, Runs, Shape
from shapes.tools import KINDS, add_tool, async_tool, both_tool, retriever_tool

CATALOGUE = Catalogue()


async def _collect(stream: Any) -> list[Any]:
    return [item async for item in stream]


def _leaf_input(tool: BaseTool, given: Any) -> tuple[list[Any], dict[str, Any]]:
    if isinstance(given, str):
        return [given], {"config": {}}
    return [], {**given, "config": {}} if isinstance(tool, (StructuredTool, Tool)) else dict(given)


def _sync_leaf(tool: BaseTool, given: Any) -> Any:
    args, kwargs = _leaf_input(tool, given)
    return tool._run(*args, **kwargs)


async def _async_leaf(tool: BaseTool, given: Any) -> Any:
    args, kwargs = _leaf_input(tool, given)
    return await tool._arun(*args, **kwargs)


Way = tuple[Callable[[BaseTool, Any], Any], Callable[[BaseTool, Any], Awaitable[Any]], int]

WAYS: dict[str, Way] = {
    "invoke": (lambda tool, given: tool.invoke(given), lambda tool, given: tool.ainvoke(given), 1),
    "invoke with a call": (
        lambda tool, given: tool.invoke(asks(tool.name, _as_args(tool, given))),
        lambda tool, given: tool.ainvoke(asks(tool.name, _as_args(tool, given))),
        1,
    ),
    "batch": (
        lambda tool, given: tool.batch([given, given]),
        lambda tool, given: tool.abatch([given, given]),
        2,
    ),
    "stream": (
        lambda tool, given: list(tool.stream(given)),
        lambda tool, given: _collect(tool.astream(given)),
        1,
    ),
    "run": (lambda tool, given: tool.run(given), lambda tool, given: tool.arun(given), 1),
    "with_retry": (
        lambda tool, given: tool.with_retry().invoke(given),
        lambda tool, given: tool.with_retry().ainvoke(given),
        1,
    ),
    "with_fallbacks": (
        lambda tool, given: tool.with_fallbacks([tool]).invoke(given),
        lambda tool, given: tool.with_fallbacks([tool]).ainvoke(given),
        1,
    ),
    "to_thread": (
        lambda tool, given: asyncio.run(asyncio.to_thread(tool.invoke, given)),
        lambda tool, given: asyncio.to_thread(tool.invoke, given),
        1,
    ),
    "the leaf itself": (_sync_leaf, _async_leaf, 1),
}


def _as_args(tool: BaseTool, given: Any) -> dict[str, Any]:
    return {next(iter(tool.args)): given} if isinstance(given, str) else dict(given)


def _is_dreamt(result: Any) -> bool:
    if isinstance(result, list):
        return bool(result) and all(_is_dreamt(one) for one in result)
    if isinstance(result, tuple):
        return _is_dreamt(result[0])
    return getattr(result, "content", result) == DREAMT


def _row(kind: str, way: str) -> Shape:
    maker, given = KINDS[kind]
    sync, anync, calls = WAYS[way]

    def build() -> Runs:
        tool = maker()
        runs_sync = kind != "@tool async"
        runs_async = not (way == "to_thread" and kind == "@tool async")
        return Runs(
            sync=(lambda: sync(tool, given)) if runs_sync else None,
            anync=(lambda: anync(tool, given)) if runs_async else None,
            looks=_is_dreamt,
        )

    replaced = kind == "_run replaced later" and way == "the leaf itself"
    return Shape(f"{kind}, {way}", build, calls, captured=replaced)


ROWS = [_row(kind, way) for kind in KINDS for way in WAYS]


@CATALOGUE.add(".func called by hand")
def _func() -> Runs:
    tool = add_tool()
    return Runs(sync=lambda: tool.func(1, 2), looks=_is_dreamt)


@CATALOGUE.add(".coroutine called by hand")
def _coroutine() -> Runs:
    tool = async_tool()
    return Runs(anync=lambda: tool.coroutine(1, 2), looks=_is_dreamt)


@CATALOGUE.add("both fields called by hand")
def _both_fields() -> Runs:
    tool = both_tool()
    return Runs(sync=lambda: tool.func(1), anync=lambda: tool.coroutine(1), looks=_is_dreamt)


@CATALOGUE.add("field under a partial")
def _partial_field() -> Runs:
    tool = both_tool()
    return Runs(
        sync=lambda: partial(tool.func, 1)(), anync=lambda: partial(tool.coroutine, 1)(), looks=_is_dreamt
    )


@CATALOGUE.add("bind")
def _bound() -> Runs:
    tool = add_tool()
    return Runs(
        sync=lambda: tool.bind(a=1).invoke({"a": 1}),
        anync=lambda: tool.bind(a=1).ainvoke({"a": 1}),
        looks=_is_dreamt,
    )


@CATALOGUE.add("bound leaf taken earlier")
def _bound_leaf() -> Runs:
    run, arun = add_tool()._run, async_tool()._arun
    return Runs(sync=lambda: run(a=1, config={}), anync=lambda: arun(a=1, config={}), looks=_is_dreamt)


@CATALOGUE.add("class attribute leaf")
def _unbound_leaf() -> Runs:
    tool = add_tool()
    return Runs(sync=lambda: StructuredTool._run(tool, a=1, config={}), looks=_is_dreamt)


@CATALOGUE.add("retriever, content and artifact")
def _retriever() -> Runs:
    tool = retriever_tool("content_and_artifact")
    given = asks("retr", {"query": "q"})
    return Runs(sync=lambda: tool.invoke(given), anync=lambda: tool.ainvoke(given), looks=_is_dreamt)


@CATALOGUE.add("function captured before the tool was gated", captured=True)
def _captured() -> Runs:
    tools = both_tool(), async_tool()
    func, coroutine = tools[0].__dict__["func"], tools[1].__dict__["coroutine"]
    return Runs(sync=lambda _=tools: func(1), anync=lambda _=tools: coroutine(1), looks=_is_dreamt)


SHAPES = [*ROWS, *CATALOGUE.shapes]
