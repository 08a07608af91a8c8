"""What a graph holds, before anything runs: its tools and their effects, and what cannot be simulated.

Reads objects and code, calls nothing. A node that reaches for the network, a database, mail or other
programs by itself is named here, before the first episode; what reading cannot see, the guard meets
while the dream runs.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.tools import BaseTool
from langgraph.prebuilt import ToolNode
from langgraph.pregel import Pregel

from dreamgym_kit.adapters.langgraph.acting import acts_by_itself
from dreamgym_kit.adapters.langgraph.alive import alive
from dreamgym_kit.adapters.langgraph.guarding import watched_loading
from dreamgym_kit.adapters.langgraph.holdings import HOLDINGS, own_entry
from dreamgym_kit.adapters.langgraph.hooks import hooked_names
from dreamgym_kit.adapters.langgraph.install import install
from dreamgym_kit.adapters.langgraph.loading import open_graph
from dreamgym_kit.adapters.langgraph.nodes import functions_of, nodes_of, unwrapped
from dreamgym_kit.adapters.langgraph.output_schemas import declared_answer
from dreamgym_kit.adapters.langgraph.provider_tools import bound_in, refusal
from dreamgym_kit.adapters.langgraph.registering import register_functions
from dreamgym_kit.errors import GraphNotLoaded, UnknownName
from dreamgym_kit.gate.effects import declared_effect, guess_effect
from dreamgym_kit.plain import JsonValue, to_plain
from dreamgym_kit.settings.load import check_models
from dreamgym_kit.settings.model import Settings
from dreamgym_kit.vocabulary import Effect, ToolSpec

_HANDOFF_KEYS = ("__handoff_destination",)  # langgraph-supervisor and -swarm mark their tools with it
_MOST_TOUCHED = 5
_FRAMEWORK_CONTROL = frozenset({"write_todos"})


@dataclass(slots=True)
class GraphFacts:
    """What was found in a graph."""

    tools: list[ToolSpec] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)  # refused before the first episode
    warnings: list[str] = field(default_factory=list)
    nodes: list[str] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)  # "host:port" of the chat models found
    touched: list[str] = field(default_factory=list)  # by loading it, where a dream would refuse that
    example: JsonValue = ""  # an input that a first task may have
    own: frozenset[str] = frozenset()  # names in the graph's tool nodes

    def specs(self) -> dict[str, ToolSpec]:
        """Tools by name."""
        return {spec.name: spec for spec in self.tools}


async def look_at_graph(spec: str, settings: Settings) -> GraphFacts:
    """Load and read a graph as `inspect_graph`, and note what loading it does that a dream refuses.

    Raises:
        UserError: as `inspect_graph`; one that says that loading failed also tells of these.
    """
    touched: list[str] = []
    try:
        with watched_loading(settings) as touched:
            facts = await inspect_graph(spec, settings)
    except GraphNotLoaded as error:
        told = "".join(f"\n  {one}" for one in touched[:_MOST_TOUCHED])
        raise GraphNotLoaded(f"{error}{told}", variables=error.variables) from None
    facts.touched = list(touched)
    return facts


async def inspect_graph(spec: str, settings: Settings, *, folder: Path | None = None) -> GraphFacts:
    """Load a graph and read it; nothing is run but the module's import and the graph's factory.

    Raises:
        UserError: see `loading.open_graph`; or settings name a tool or node that is not there.
    """
    install()
    async with open_graph(spec, folder=folder or settings.folder) as graph:
        register_functions(settings)
        return inspect_compiled(graph, settings)


def inspect_compiled(graph: Pregel[Any], settings: Settings, *, own_model: bool = True) -> GraphFacts:
    """Read a compiled graph, and find the tools that are alive: a node may hold some in any form.

    `own_model`: the graph's own models answer, so what they are bound to is asked for.
    """
    living = alive(BaseTool, BaseChatModel)  # one look at all objects for both
    HOLDINGS.scan(one for one in living if issubclass(type(one), BaseTool))
    facts = GraphFacts()
    tools: dict[str, BaseTool] = {}
    for path, bound in nodes_of(graph):
        facts.nodes.append(path)
        _read_node(path, bound, settings, facts, tools)
    facts.own = frozenset(tools)
    for tool in HOLDINGS.tools():
        if tool.name not in HOLDINGS.structured:
            tools.setdefault(tool.name, tool)
    facts.tools = [spec_of(tool, settings) for tool in tools.values()]
    facts.tools += [function_spec(name, settings) for name in sorted(hooked_names() - set(tools))]
    facts.tools.sort(key=lambda spec: spec.name)
    facts.hosts = sorted(_model_hosts(one for one in living if issubclass(type(one), BaseChatModel)))
    facts.example = _example(graph)
    bound = bound_in(graph) if own_model else ()
    facts.problems += [refusal(name) for name in bound if name not in settings.leave_out]
    _check_bound(settings, facts)
    _check_settings(settings, facts)
    return facts


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


def spec_of(tool: BaseTool, settings: Settings) -> ToolSpec:
    """A tool as the gate will treat it, and who said so."""
    effect, source, reason = _effect_of(tool, settings)
    answer_schema, answer_form = declared_answer(tool)
    return ToolSpec(
        name=tool.name,
        effect=effect,
        description=(tool.description or "").strip(),
        args_schema=_schema(tool),
        source=source,
        reason=reason,
        answer_schema=answer_schema,
        answer_form=answer_form,
    )


def _effect_of(tool: BaseTool, settings: Settings) -> tuple[Effect, str, str]:
    said = settings.tools.get(tool.name)
    if said is not None:
        return said.effect, *_who_said(settings, tool.name)
    for holder in (tool, tool.__dict__.get("func"), tool.__dict__.get("coroutine")):
        by_author = declared_effect(holder) if holder is not None else None
        if by_author is not None:
            return by_author, "decorator", "@effect"
    metadata = tool.metadata or {}
    if any(key in metadata for key in _HANDOFF_KEYS):
        return Effect.CONTROL, "framework", "hands over to another agent"
    body = tool.__dict__.get("func") or tool.__dict__.get("coroutine")
    if tool.name in _FRAMEWORK_CONTROL and (getattr(body, "__module__", "") or "").startswith("langchain."):
        return Effect.CONTROL, "framework", "the agent's own to-do list"
    hints = metadata.get("annotations") or metadata
    guessed, reason = guess_effect(tool.name, tool.description or "", annotations=hints)
    return guessed, "guessed", reason


def _who_said(settings: Settings, name: str) -> tuple[str, str]:
    """The source and the reason of an effect in settings: a person, or `init` whom nobody has confirmed."""
    where = settings.where("tools", name)
    if settings.tools[name].guessed:
        return "guessed", where
    return "declared", where


def function_spec(name: str, settings: Settings) -> ToolSpec:
    """A hooked function as the gate will treat it."""
    said = settings.tools.get(name)
    by_name = {
        entry.name or reference.rpartition(":")[2].rpartition(".")[2]: entry
        for reference, entry in settings.functions.items()
    }
    registered = by_name.get(name)
    if said is not None or registered is not None:
        effect = said.effect if said is not None else registered.effect  # type: ignore[union-attr]
        source, reason = _who_said(settings, name) if said is not None else ("declared", "")
        return ToolSpec(name, effect, source=source, reason=reason, kind="function")
    if name in HOLDINGS.declared:
        return ToolSpec(name, HOLDINGS.declared[name], source="decorator", kind="function")
    guessed, reason = guess_effect(name)
    return ToolSpec(name, guessed, source="guessed", reason=reason, kind="function")


def _schema(tool: BaseTool) -> Mapping[str, Any]:
    try:
        schema = tool.tool_call_schema
        plain = schema if isinstance(schema, dict) else _model_schema(schema)
    except Exception:  # noqa: BLE001  a schema with foreign types has no JSON form; the tool works without it
        return {}
    return dict(to_plain(plain))


def _read_node(
    path: str, bound: Any, settings: Settings, facts: GraphFacts, tools: dict[str, BaseTool]
) -> None:
    name = path.rpartition("/")[2]
    for inner in unwrapped(bound):
        if isinstance(inner, ToolNode):
            tools.update(inner.tools_by_name)
            for tool in inner.tools_by_name.values():
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
    if name in settings.nodes:
        return
    for function in functions_of(bound):
        acting = acts_by_itself(function)
        if acting:
            facts.problems.append(
                f"node '{path}' acts on the world by itself ({function.__module__}.{function.__qualname__} "
                f"uses {acting}). Register the function that acts: "
                f'[functions."{function.__module__}:{function.__qualname__}"] effect = "write", '
                f'or say that the node is harmless: [nodes.{name}] effect = "pure"'
            )


def _model_schema(model: Any) -> Any:
    """The JSON schema of a pydantic model class, of version 1 or 2."""
    return model.model_json_schema() if hasattr(model, "model_json_schema") else model.schema()


def _model_hosts(living: Iterable[BaseChatModel]) -> set[str]:
    """Where the chat models that are alive send their requests."""
    hosts = set()
    for model in living:
        client = getattr(model, "root_client", None) or getattr(model, "_client", None)
        base = getattr(client, "base_url", None) or getattr(model, "openai_api_base", None)
        parts = urlsplit(str(base)) if base else None
        if parts is not None and parts.hostname:
            hosts.add(f"{parts.hostname}:{parts.port or (443 if parts.scheme == 'https' else 80)}")
    return hosts


def _check_bound(settings: Settings, facts: GraphFacts) -> None:
    known = {spec.name for spec in facts.tools}
    named = {entry.name for entry in settings.functions.values()} | set(settings.structured_outputs)
    for name, why in sorted(HOLDINGS.unhookable.items()):
        if name not in known and name not in named:
            facts.problems.append(
                f"'{name}' is bound to the model but is a callable that cannot be hooked ({why}). "
                f"Bind a plain function or a tool, or register the function under it: "
                f'[functions."package.module:{name}"]'
            )
    for name in sorted(HOLDINGS.schemas - known - named):
        facts.warnings.append(
            f"'{name}' is bound to the model by its schema alone; if the model calls it, the episode is "
            "refused unless dreamgym.toml names the function that runs it or says "
            f'structured_outputs = ["{name}"]'
        )


def _check_settings(settings: Settings, facts: GraphFacts) -> None:
    known = {spec.name for spec in facts.tools}
    for name in settings.tools:
        if name not in known:
            raise UnknownName(
                "tool", name, known=known, source=settings.where("tools", name), where="the graph"
            )
    for pattern in settings.faults:
        if not any(fnmatchcase(name, pattern) for name in known):
            raise UnknownName(
                "tool", pattern, known=known, source=settings.where("faults", pattern), where="the graph"
            )
    check_models(settings, facts.specs())
    nodes = {path.rpartition("/")[2] for path in facts.nodes}
    for name in settings.nodes:
        if name not in nodes:
            raise UnknownName(
                "node", name, known=nodes, source=settings.where("nodes", name), where="the graph"
            )
