"""The canary suite on other ways to dry-run an agent: LangChain's LLMToolEmulator and StuntDouble.

Each is attached wherever its documentation offers a place for it, and each is told of every tool:

- LLMToolEmulator (langchain): a middleware of `create_agent` (and of deepagents, which passes it on), with
  a model double as its model, innermost, for all tools but those that a dream runs for real too.
- StuntDouble: `ToolNode(tools, awrap_tool_call=...)` with a mock for every tool and scenario metadata in the
  graph's config; in `create_agent` as a middleware around the tool call. It works in async runs only, so
  only those are counted for it.

A shape leaks when a real body ran, whatever the agent was told. Shapes without a place to attach to
(a script, a node, a plain function) are part of the suite: agents are built so. StuntDouble is installed
without its dependencies, which are there, into a folder of its own under the user's cache.
"""

import asyncio
import functools
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from langchain.agents.middleware import AgentMiddleware, LLMToolEmulator

sys.path.append(str(Path(__file__).parents[1]))  # `shapes` lies beside this folder
from shapes import agents, direct, foreign, middleware, nested
from shapes.canary import canary_in
from shapes.models import ScriptedModelDouble
from shapes.stage import Shape, dream

from dreamgym_kit.adapters.langgraph.intercept.install import install, uninstall
from dreamgym_kit.errors import EpisodeStop
from dreamgym_kit.routing.process import entered

STUNT_DOUBLE = "stuntdouble==2.0.1"
SCENARIO = {"configurable": {"scenario_metadata": {"scenario_id": "dry-run", "mode": "mock"}}}
NAMES = (
    "add", "aadd", "cls", "direct", "inj", "runtime_tool", "runtime_class", "caa", "set_city", "dynamic",
    "write_todos", "ask_user", "ask_expert", "refund", "mul", "ov", "write_file", "read_file", "task",
)  # fmt: skip
Attach = Callable[[ExitStack, Shape], None]


@dataclass(frozen=True, slots=True)
class Row:
    """What became of one shape under one product: "held", "leaks", or "-" where it has no such form."""

    shape: str
    dreamgym: str
    emulator: str
    stunt_double: str


def measure(seed: int) -> list[tuple[str, float, str]]:
    """Figures for the bench runner; a product that cannot be installed is left out, with the reason said."""
    rows = outcomes()
    figures = []
    for name, column in (("emulator", "emulator"), ("stuntdouble", "stunt_double")):
        seen = [getattr(row, column) for row in rows if getattr(row, column) != "-"]
        if seen:
            figures.append((f"{name}_leaks", float(seen.count("leaks")), f"shapes of {len(seen)}"))
        else:
            print(f"{name}: skipped, {STUNT_DOUBLE} could not be installed", file=sys.stderr)
    return figures


@functools.cache
def outcomes() -> list[Row]:
    """Shape by product, for the docs. The gate is put in for its own column alone."""
    stunt = stunt_double()
    with tempfile.TemporaryDirectory() as folder, canary_in(Path(folder)) as canary, _quiet():

        def tried(shape: Shape, attach: Attach | None, kinds: tuple[str, ...]) -> str:
            outcomes = []
            for kind in kinds if attach is not None else ():
                canary.clear()
                if _ran(shape, attach, kind):
                    leaked = [name for name in canary.written() if name not in shape.may_run]
                    outcomes.append("leaks" if leaked else "held")
            return "leaks" if "leaks" in outcomes else "held" if outcomes else "-"

        return [
            Row(
                shape=shape.name,
                dreamgym=tried(shape, _dreamgym, ("sync", "async")),
                emulator=tried(shape, _emulator, ("sync", "async")),
                stunt_double=tried(shape, stunt, ("async",)),
            )
            for shape in peer_shapes()
        ]


def peer_shapes() -> list[Shape]:
    """One of each family: ways of streaming and of calling by hand would only repeat a row."""
    few = ("@tool, invoke", "overridden invoke, invoke", ".func called by hand", "both fields called by hand")
    repeats = tuple(f"node calls tool, {way}" for way in ("batch", "stream", "with_retry", "run", "._run"))
    known = [shape for shape in direct.SHAPES if shape.name in few]
    for module in (agents, middleware, nested, foreign):
        known += [
            shape
            for shape in module.SHAPES
            if ", stream " not in shape.name
            and "events" not in shape.name
            and "rejects" not in shape.name
            and shape.name not in repeats
        ]
    return known


def _ran(shape: Shape, attach: Attach, kind: str) -> bool:
    """Build and run a shape with a product attached; False where it has no such form."""
    with ExitStack() as stack:
        attach(stack, shape)
        runs = shape.build()
        run = runs.sync if kind == "sync" else runs.anync
        if run is None:
            return False
        try:
            run() if kind == "sync" else asyncio.run(_awaited(run))
        except (Exception, EpisodeStop):  # a product may fail a shape; only what ran counts here
            return True
    return True


async def _awaited(run: Any) -> Any:
    return await run()


# Attaching ------------------------------------------------------------------------------------------


def _with_middleware(make: Callable[..., Any], shape: Shape, settings: dict[str, Any]) -> Callable[..., Any]:
    """A factory that gets one more middleware, innermost, in subagents too."""

    def made(*args: Any, **kwargs: Any) -> Any:
        extra = make(shape)
        kwargs["middleware"] = [*kwargs.get("middleware", ()), extra]
        for subagent in kwargs.get("subagents") or ():
            subagent["middleware"] = [make(shape)]
        graph = settings["real"](*args, **kwargs)
        return graph.with_config(settings["config"]) if settings.get("config") else graph

    return made


def _attach_middleware(stack: ExitStack, shape: Shape, make: Callable[..., Any], config: Any = None) -> None:
    for module in (agents, middleware):
        settings = {"real": module.create_agent, "config": config}
        stack.enter_context(patch.object(module, "create_agent", _with_middleware(make, shape, settings)))
    try:
        import deepagents
    except ImportError:
        return
    settings = {"real": deepagents.create_deep_agent, "config": config}
    stack.enter_context(
        patch.object(deepagents, "create_deep_agent", _with_middleware(make, shape, settings))
    )


def _dreamgym(stack: ExitStack, shape: Shape) -> None:
    install()
    stack.callback(uninstall)
    session = dream(control=shape.control)
    stack.enter_context(entered(session))


def _emulator(stack: ExitStack, shape: Shape) -> None:
    def make(shape: Shape) -> Any:
        names = [name for name in NAMES if name not in shape.control]
        return LLMToolEmulator(tools=names, model=ScriptedModelDouble(script=["42"]))

    _attach_middleware(stack, shape, make)


def stunt_double() -> Attach | None:
    """How StuntDouble is attached; None where it cannot be installed."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dreamgym-kit" / "peers"
    target = folder / STUNT_DOUBLE.replace("==", "-")
    if not (target / "stuntdouble").is_dir():
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(target)]
        if subprocess.run([*install, STUNT_DOUBLE], check=False, capture_output=True).returncode:
            return None
    if str(target) not in sys.path:
        sys.path.append(str(target))
    return _stunt_double


def _stunt_double(stack: ExitStack, shape: Shape) -> None:
    from stuntdouble import MockToolsRegistry, create_mockable_tool_wrapper  # type: ignore[import-not-found]

    registry = MockToolsRegistry()
    for name in NAMES:
        if name not in shape.control:
            registry.mock(name).returns("42")
    wrapper = create_mockable_tool_wrapper(registry, require_mock_when_scenario=not shape.control)

    class MockedCalls(AgentMiddleware):
        async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
            return await wrapper(request, handler)

    _attach_middleware(stack, shape, lambda _: MockedCalls(), SCENARIO)
    for module in (agents, middleware):
        real_node, real_graph = module.ToolNode, module.StateGraph

        def node(tools: Any, _real: Any = real_node, **settings: Any) -> Any:
            return _real(tools, awrap_tool_call=wrapper, **settings)

        class Graph(real_graph):  # type: ignore[misc,valid-type]
            def compile(self, *args: Any, **kwargs: Any) -> Any:
                return super().compile(*args, **kwargs).with_config(SCENARIO)

        stack.enter_context(patch.object(module, "ToolNode", node))
        stack.enter_context(patch.object(module, "StateGraph", Graph))
    react = agents.create_react_agent
    stack.enter_context(
        patch.object(
            agents,
            "create_react_agent",
            lambda model, tools, **kwargs: react(model, agents.ToolNode(tools), **kwargs).with_config(
                SCENARIO
            ),
        )
    )


@contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def table() -> str:
    """Shape by product, as Markdown for the docs."""
    lines = ["| shape | dreamgym-kit | LLMToolEmulator | StuntDouble |", "| --- | --- | --- | --- |"]
    lines += [f"| {row.shape} | {row.dreamgym} | {row.emulator} | {row.stunt_double} |" for row in outcomes()]
    return "\n".join(lines)
