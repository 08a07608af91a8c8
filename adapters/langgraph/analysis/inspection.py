"""What a graph holds, before anything runs: its tools and their effects, and what cannot be simulated.

Reads objects and code, calls nothing. A node that reaches for the network, a database, mail or other
programs by itself is named here, before the first episode; what reading cannot see, the guard meets
while the dream runs.
"""

import inspect
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from langchain_core.tools import BaseTool
from langgraph.prebuilt import ToolNode
from langgraph.pregel import Pregel

from dreamgym_kit.adapters.langgraph.analysis.gc_objects import Living
from dreamgym_kit.adapters.langgraph.analysis.inventory import Inventory, InventoryEntry, taken
from dreamgym_kit.adapters.langgraph.analysis.loading import open_graph
from dreamgym_kit.adapters.langgraph.analysis.locking import locked, of_project
from dreamgym_kit.adapters.langgraph.analysis.nodes import missing_context, nodes_of, unwrapped
from dreamgym_kit.adapters.langgraph.analysis.side_effects import OPENS
from dreamgym_kit.adapters.langgraph.analysis.tool_bodies import body_of, is_served, place_of
from dreamgym_kit.adapters.langgraph.intercept.bound_names import HOLDINGS, own_entry
from dreamgym_kit.adapters.langgraph.intercept.chat_models import AgentModel, host_of, served_models
from dreamgym_kit.adapters.langgraph.intercept.functions import NotHookable, hook, hooked_names
from dreamgym_kit.adapters.langgraph.intercept.install import install, watched_loading
from dreamgym_kit.adapters.langgraph.intercept.object_effects import (
    ObjectEffects,
    all_bearers,
    function_spec,
    power,
)
from dreamgym_kit.adapters.langgraph.intercept.provider_tools import bound_in, refusal
from dreamgym_kit.adapters.langgraph.intercept.registration import register_functions
from dreamgym_kit.dream.answer_schema import documented, read_document
from dreamgym_kit.errors import GraphNotLoaded, UnknownName
from dreamgym_kit.guard import egress
from dreamgym_kit.rollout.tool_lock import LockedTool
from dreamgym_kit.routing.effects import UNCLEAR, declared_effect
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.settings import advice
from dreamgym_kit.settings.load import check_match
from dreamgym_kit.settings.schema import Settings
from dreamgym_kit.types import Effect, ToolSpec

_MAX_TOUCHED = 5


@dataclass(slots=True)
class GraphInspection:
    """What was found in a graph."""

    tools: list[ToolSpec] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)  # refused before the first episode
    warnings: list[str] = field(default_factory=list)
    nodes: list[str] = field(default_factory=list)
    state: list[str] = field(default_factory=list)  # the fields that an input may have
    hosts: list[str] = field(default_factory=list)  # "host:port" of the chat models found
    served: list[AgentModel] = field(default_factory=list)  # that the agent asks
    touched: list[str] = field(default_factory=list)  # by loading it, where a dream would refuse that
    example: JsonValue = ""  # an input that a first task may have, of `inspect_graph`
    inventory: list[InventoryEntry] = field(default_factory=list)  # what acts beside the tools
    taken: Inventory | None = None  # the same, and what it was read from
    own: frozenset[str] = frozenset()  # names in the graph's tool nodes
    locked: list[LockedTool] = field(default_factory=list)  # the tools as dreamgym.lock has them
    namesakes: dict[str, list[ToolSpec]] = field(default_factory=dict)  # of names that differing tools bear
    judge: ObjectEffects | None = None  # of the tools themselves

    def specs(self) -> dict[str, ToolSpec]:
        """Tools by name."""
        return {spec.name: spec for spec in self.tools}

    def questions(self) -> list[tuple[str, str]]:
        """Return the questions that only a person can answer, each with its line of dreamgym.toml."""
        from dreamgym_kit.settings.render import render_effects  # a dry run writes no settings

        pairs = []
        for spec in self.tools:
            if spec.source == "guessed" and spec.reason == UNCLEAR and not spec.effect_when:
                line = render_effects([replace(spec, effect=Effect.READ, source="declared")])[0]
                pairs.append((f"Does {spec.name} only read? If so, in [tools]:", line))
        for entry in self.inventory:
            if not entry.confirmed:
                pairs.append((f"What does {entry.name} do ({entry.reached}: {entry.why})?", entry.line()))
        where = {entry.reached for entry in self.inventory}
        for node, deed in (self.taken.named if self.taken is not None else {}).items():
            if f"node '{node}'" not in where:
                question = f"Does node '{node}' act on the world itself? Its code names {deed}. If so:"
                pairs.append((question, f'[nodes.{node}] effect = "destructive"'))
        return pairs

    def every(self) -> list[ToolSpec]:
        """All tools for a person to look at: those that share a name each with its place."""
        return [namesake for spec in self.tools for namesake in self.namesakes.get(spec.name, [spec])]


async def look_at_graph(spec: str, settings: Settings) -> GraphInspection:
    """Load and read a graph as `inspect_graph`, and note what loading it does that a dream refuses.

    Raises:
        UserError: as `inspect_graph`; one that says that loading failed also tells of these.
    """
    touched: list[str] = []
    try:
        with watched_loading(settings) as touched:
            facts = await inspect_graph(spec, settings)
    except GraphNotLoaded as error:
        listing = "".join(f"\n  {entry}" for entry in touched[:_MAX_TOUCHED])
        raise GraphNotLoaded(f"{error}{listing}", variables=error.variables) from None
    facts.touched = list(touched)
    return facts


async def inspect_graph(spec: str, settings: Settings) -> GraphInspection:
    """Load a graph and read it; nothing is run but the module's import and the graph's factory.

    Raises:
        UserError: see `loading.open_graph`; or settings name a tool or node that is not there.
    """
    install()
    async with open_graph(spec, folder=settings.folder) as graph:
        facts = inspect_compiled(graph, settings, living=register_functions(settings))
        facts.example = _example(graph)
        return facts


def inspect_compiled(
    graph: Pregel[Any], settings: Settings, *, own_model: bool = True, living: Living | None = None
) -> GraphInspection:
    """Read a compiled graph, and find the tools that are alive: a node may hold some in any form.

    `own_model`: the graph's own models answer, so what they are bound to is asked for. Who just looked gives
    `living`.
    """
    living = living or Living()
    HOLDINGS.scan(living.tools())
    facts = GraphInspection(
        state=[name for name in graph.channels if not name.startswith("__") and ":" not in name]
    )
    tools: dict[str, list[object]] = {}
    for path, bound in nodes_of(graph):
        facts.nodes.append(path)
        _read_node(path, bound, facts, tools)
    if missing := missing_context(graph, settings.context):
        schema_name = getattr(graph.context_schema, "__name__", graph.context_schema)
        facts.warnings.append(
            f"the runtime context ({schema_name}) needs {', '.join(missing)}: give it in dreamgym.toml under "
            "[context], or in each task's context; else an exception of the agent makes its episode an ERROR"
        )
    makes_tools = _take_inventory(graph, settings, facts)
    facts.own = frozenset(tools)
    others = {tool.name for tool in HOLDINGS.tools()} - HOLDINGS.structured
    tools |= all_bearers((others | hooked_names()) - facts.own)
    facts.judge = ObjectEffects(settings)
    specs = [_spec_of(name, tools[name], settings, facts) for name in sorted(tools)]
    facts.tools = documented(specs, [read_document(settings.resolve(path)) for path in settings.openapi])
    facts.locked = _locked(facts, tools, settings.folder)
    facts.hosts = sorted({host for model in living.models() if (host := host_of(model)) is not None})
    facts.served = served_models(living.models(), os.environ)
    egress.models_at(facts.hosts)
    if not (facts.tools or makes_tools or HOLDINGS.schemas or HOLDINGS.unhookable):
        _refuse_unless_harmless(graph, settings, facts)
    bound = bound_in(graph) if own_model else ()
    facts.problems += [refusal(name) for name in bound if name not in settings.leave_out]
    _check_bound(settings, facts)
    _check_settings(settings, facts)
    return facts


def _refuse_unless_harmless(graph: Pregel[Any], settings: Settings, facts: GraphInspection) -> None:
    """Nothing can be intercepted: the graph runs only if it is known to do no more than ask a model."""
    from dreamgym_kit.adapters.langgraph.analysis.model_only import unproven

    nothing = "nothing in this graph can be intercepted: it has no tool, and no function that acts was found"
    lines = unproven(graph, settings)
    if lines is None:
        facts.warnings.append(f"{nothing}. Its nodes compute and ask a model")
        return
    named = advice.format_lines(advice.function_answered(advice.SOME_FUNCTION))
    facts.problems.append(
        f"{nothing}. Name what acts; {named}. If nothing does, say so of each node; "
        f"add to dreamgym.toml: {'; and '.join(map(str, lines))}"
    )


def _locked(facts: GraphInspection, tools: Mapping[str, list[object]], folder: Path) -> list[LockedTool]:
    """What dreamgym.lock has of a graph: not the frameworks' own tools, which are known by their code."""
    reached = facts.own | {entry.name for entry in facts.inventory}
    return [
        locked(spec, tools[spec.name])
        for spec in facts.tools
        if spec.source != "framework" and (spec.name in reached or of_project(tools[spec.name], folder))
    ]


_BLANKS: Mapping[str, JsonValue] = {
    "string": "...", "integer": 0, "number": 0, "boolean": False, "array": [], "object": {},
}  # fmt: skip


def _example(graph: Pregel[Any]) -> JsonValue:
    """What a first task may ask: a sentence for a graph that talks, else its state with blanks to fill."""
    try:
        fields = graph.get_input_jsonschema().get("properties", {})
    except Exception:  # noqa: BLE001  a state with foreign types has no JSON schema; the graph works without
        fields = {"messages": {}}
    if "messages" in fields or not fields:
        return "What can you do?"
    return {str(name): _BLANKS.get(str(schema.get("type")), "...") for name, schema in fields.items()}


def own_tools(graph: Pregel[Any]) -> dict[str, BaseTool]:
    """The tools in a graph's tool nodes, by name."""
    nodes = (inner for _, bound in nodes_of(graph) for inner in unwrapped(bound))
    return {
        name: tool
        for node in nodes
        if isinstance(node, ToolNode)
        for name, tool in node.tools_by_name.items()
    }


def _spec_of(name: str, bearers: list[object], settings: Settings, facts: GraphInspection) -> ToolSpec:
    """What is known of a name: of several tools that bear it the most that one of them can do."""
    judge = facts.judge
    if not bearers or judge is None:
        return function_spec(name, settings)
    judge.mean(name, bearers)
    specs = [(bearer, judge.spec(bearer, name)) for bearer in bearers]
    distinct = {(body_of(bearer), spec.effect): (bearer, spec) for bearer, spec in specs}
    facts.problems += filter(None, (_never_free(name, bearer, settings) for bearer, _ in distinct.values()))
    variants = [spec for _, spec in distinct.values()]
    worst = max(variants, key=lambda spec: power(spec.effect))
    if len(distinct) == 1:
        return worst
    placed = [f"{place_of(bearer)}({', '.join(_arguments(bearer))})" for bearer, _ in distinct.values()]
    facts.namesakes[name] = [
        replace(spec, name=f"{name} [{place}]") for spec, place in zip(variants, placed, strict=True)
    ]
    entry = settings.tools.get(name)
    if entry is not None and entry.effect.runs_in_dream:
        facts.problems.append(
            f"{settings.where('tools', name)} says '{entry.effect}' of {len(distinct)} different tools: "
            f"{' and '.join(placed)}. Give each a name of its own, or say what all of them do"
        )
    elif name in facts.own and len({spec.effect for spec in variants}) > 1:
        listing = " and ".join(
            f"{place} is {spec.effect} ({spec.source})" for spec, place in zip(variants, placed, strict=True)
        )
        facts.problems.append(
            f"'{name}' is the name of {len(distinct)} tools that do different things: {listing}. Give each a "
            f"name of its own, or say what all of them do: {_format_effect(name, worst.effect)}"
        )
    return replace(worst, description=f"{len(distinct)} different tools: {' and '.join(placed)}")


def _format_effect(name: str, effect: Effect) -> str:
    """How a person says one effect of several tools; settings let no two of them run in a dream."""
    if effect.runs_in_dream:
        return f'@effect("{effect}") on each'
    return advice.format_lines(advice.tool_answered(name, effect.value))


def _never_free(name: str, called: object, settings: Settings) -> str | None:
    """A server's tool that somebody says may run in a dream."""
    entry = settings.tools.get(name)
    effect = entry.effect if entry is not None else declared_effect(called)
    if effect is None or not effect.runs_in_dream or not is_served(called):
        return None
    where = settings.where("tools", name) if entry is not None else "@effect"
    return (
        f"'{name}' is answered by an MCP server, so it is never '{effect}' ({where}): what runs there cannot "
        "be seen. Say that it is a read, a write, or destructive; "
        f"{advice.format_lines(advice.tool_answered(name, 'destructive'))}"
    )


def _arguments(called: object) -> list[str]:
    if isinstance(called, BaseTool):
        try:
            return list(called.args)
        except Exception:  # noqa: BLE001  a schema with foreign types
            return []
    return list(inspect.signature(called).parameters) if callable(called) else []


def _read_node(path: str, bound: Any, facts: GraphInspection, tools: dict[str, list[object]]) -> None:
    for inner in unwrapped(bound):
        if isinstance(inner, ToolNode):
            for name, tool in inner.tools_by_name.items():
                tools.setdefault(name, []).append(tool)
                HOLDINGS.add_tool(tool)
                if (own := own_entry(tool)) is not None:
                    facts.problems.append(
                        f"'{tool.name}' in node '{path}' is {own}: not to be simulated. Put it into its class"
                    )
        if type(inner).__name__ == "RemoteGraph":
            facts.problems.append(
                f"node '{path}' is a remote graph: its tools run on another machine and cannot be simulated. "
                "Simulate that graph where it runs, and leave this node out"
            )


def _take_inventory(graph: Pregel[Any], settings: Settings, facts: GraphInspection) -> bool:
    """Hook what acts beside the tools; gives whether the graph makes tools while it runs."""
    inventory = taken(graph, settings)
    facts.inventory, facts.taken = inventory.entries, inventory
    for entry in inventory.entries:
        try:
            hook(entry.function, entry.name)
        except NotHookable as reason:
            facts.problems.append(
                f"'{entry.reference}' ({entry.reached}: {entry.why}) cannot be hooked: {reason}"
            )
    guessed = [entry for entry in inventory.entries if not entry.confirmed]
    if guessed:
        listed = "; ".join(f"{entry.reference} ({entry.reached}: {entry.why})" for entry in guessed)
        facts.warnings.append(
            f"intercepted beside the tools, by a guess, until [functions] names it: {listed}"
        )
    for where, function, acting in inventory.acting:
        if acting == OPENS:  # a dream's guard tells files of the run's own from others
            facts.warnings.append(
                f"{where} opens a file for writing by itself ({function.__module__}.{function.__qualname__}"
                "): a dream refuses that outside of [guard] allow_paths, and a recording has no call of it"
            )
            continue
        named = f"{function.__module__}:{function.__qualname__}"
        node = where.rpartition("node '")[2].rstrip("'").rpartition("/")[2] if "node '" in where else ""
        lines = [advice.function_answered(named), *([advice.node_runs(node)] if node else [])]
        facts.problems.append(
            f"{where} acts on the world by itself ({function.__module__}.{function.__qualname__} "
            f"uses {acting}). Put what acts into a function of its own, or have this one answered; "
            f"{advice.format_lines(*lines)}"
        )
    return inventory.makes_tools


def _check_bound(settings: Settings, facts: GraphInspection) -> None:
    tool_names = {spec.name for spec in facts.tools}
    named = {entry.name for entry in settings.functions.values()} | set(settings.structured_outputs)
    for name, why in sorted(HOLDINGS.unhookable.items()):
        if name not in tool_names and name not in named:
            facts.problems.append(
                f"'{name}' is bound to the model but is a callable that cannot be hooked ({why}). "
                f"Bind a plain function or a tool, or name the function under it; "
                f"{advice.format_lines(advice.function_answered(f'package.module:{name}'))}"
            )
    for name in sorted(HOLDINGS.schemas - tool_names - named):
        facts.warnings.append(
            f"'{name}' is bound to the model by its schema alone; if the model calls it, the episode is "
            "refused unless dreamgym.toml names the function that runs it or says "
            f'structured_outputs = ["{name}"]'
        )


def _check_settings(settings: Settings, facts: GraphInspection) -> None:
    tools, nodes = set(facts.specs()), {path.rpartition("/")[2] for path in facts.nodes}
    names = [("tool", "tools", name, tools, name in tools) for name in settings.tools]
    for pattern in settings.faults:
        matched = any(fnmatchcase(name, pattern) for name in tools)
        names.append(("tool", "faults", pattern, tools, matched))
    names += [("node", "nodes", name, nodes, name in nodes) for name in settings.nodes]
    for kind, section, name, valid_names, exists in names:
        if not exists:
            source = settings.where(section, name)
            raise UnknownName(kind, name, known=valid_names, source=source, where="the graph")
    check_match(settings, facts.specs())
