"""What the very tool or function that is called does: by its own declaration, its code, and the settings.

A settings entry is by name, and says `pure` or `control` of one body only: the one that bears the name when
the graph is read. Whatever comes later under that name, or bears it too, was not meant.

What a tool says of its answers is read from its return annotation, or its MCP server's output schema; nothing
is called. What a tool returns is not always what the agent sees: a dictionary is shown as JSON, a pydantic
model or a dataclass as the text that Python makes of it. What cannot be told is left empty; recordings then
say what answers look like.
"""

import dataclasses
import gc
import inspect
import sys
import typing
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import replace
from types import UnionType
from typing import Annotated, Any, Union

from langchain_core.messages import BaseMessage
from langchain_core.tools import BaseTool, StructuredTool, Tool
from langgraph.types import Command
from pydantic import BaseModel, TypeAdapter

from dreamgym_kit.adapters.langgraph.analysis.gc_objects import closure_of
from dreamgym_kit.adapters.langgraph.analysis.locking import locked
from dreamgym_kit.adapters.langgraph.analysis.tool_bodies import (
    bodies_of,
    body_of,
    framework_control,
    is_served,
)
from dreamgym_kit.adapters.langgraph.intercept.bound_names import HOLDINGS
from dreamgym_kit.adapters.langgraph.intercept.functions import (
    hook_of,
    hooked_as,
    hooked_ids,
    is_empty,
    under,
)
from dreamgym_kit.argument_effects import guess_effect_when
from dreamgym_kit.rollout.tool_lock import LockedTool
from dreamgym_kit.routing.effects import declared_effect, guess_effect
from dreamgym_kit.serialization import JsonValue, to_json
from dreamgym_kit.settings.schema import Settings
from dreamgym_kit.types import Effect, ToolSpec

Statement = tuple[Effect, str, str]  # effect, source, reason
_POWER = {effect: power for power, effect in enumerate(Effect)}  # from harmless to irreversible


def power(effect: Effect) -> int:
    """How much harm there may be in it."""
    return _POWER[effect]


class ObjectEffects:
    """Judges called objects."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._meant: dict[str, frozenset[Hashable]] = {}
        self.met: dict[str, LockedTool] = {}  # tools that calls brought, as the lock would have them

    def mean(self, name: str, bearers: Iterable[object]) -> None:
        """Keep which objects bear a name now: whom its settings entry means."""
        self._meant[name] = frozenset(map(body_of, bearers))

    def __call__(self, called: object, spec: ToolSpec) -> ToolSpec:
        """Return `spec`, found by name, if it holds for the object itself; else the object's own."""
        stated = self._stated(called, spec.name)
        alike = stated[:2] == (spec.effect, spec.source) and len(self._meant.get(spec.name, ())) < 2
        if isinstance(called, BaseTool) and spec.name not in self.met and not self._meant.get(spec.name):
            described = self._described(called, spec.name, stated)  # made while the agent runs
            self.met[spec.name] = locked(described, [called])
        return spec if alike else self._described(called, spec.name, stated)

    def spec(self, called: object, name: str) -> ToolSpec:
        """One tool or function as the gate will treat it, and who said so."""
        return self._described(called, name, self._stated(called, name))

    def _described(self, called: object, name: str, stated: Statement) -> ToolSpec:
        """The tool with its view and its effects by argument: of settings, or guessed as its own is."""
        spec, entry = _described(called, name, stated), self._settings.tools.get(name)
        if entry is not None:
            return replace(spec, effect_when=entry.effect_when, view=entry.view)
        guessed = spec.source == "guessed" and spec.kind == "tool" and spec.effect.changes_environment
        when = guess_effect_when(name, spec.description, spec.args_schema) if guessed else {}
        return replace(spec, effect_when=when) if when else spec

    def _stated(self, called: object, name: str) -> Statement:
        """What settings, the author, the framework or a guess say of one object, in this order.

        `[tools]` is by name, `[functions]` by the function that was found under it.
        """
        settings, served = self._settings, is_served(called)

        def believed(effect: Effect) -> bool:
            return not (effect.runs_in_dream and served)

        entry = settings.tools.get(name)
        if (
            entry is not None
            and believed(entry.effect)
            and (not entry.effect.runs_in_dream or self._means(name, called))
        ):
            return _of_settings(name, settings)
        own = hook_of(called)
        registered = settings.functions.get(own.reference) if own is not None else None
        if registered is not None:
            return registered.effect, "declared", ""
        by_author, whole = _by_author(called)
        if by_author is not None and whole and believed(by_author):
            return by_author, "decorator", "@effect"
        if isinstance(called, BaseTool) and (reason := framework_control(called)) is not None:
            return Effect.CONTROL, "framework", reason
        hints = {field: getattr(called, field, None) for field in ("metadata", "extras")}
        guessed, reason = guess_effect(name, getattr(called, "description", None) or "", annotations=hints)
        if by_author is not None and power(by_author) > power(guessed):
            return by_author, "decorator", "@effect"
        return guessed, "guessed", reason

    def _means(self, name: str, called: object) -> bool:
        """Whether an entry that lets a name run in a dream means this object."""
        if name not in self._meant:
            self.mean(name, bearers_of(name))
        return self._meant[name] == {body_of(called)}


def bearers_of(name: str) -> list[object]:
    """All living tools and hooked functions of a name."""
    return all_bearers([name])[name]


def all_bearers(names: Iterable[str]) -> dict[str, list[object]]:
    """Return the bearers of each name; if they differ and may be garbage, collect it and search again."""
    names = list(names)
    bearers_by_name = _bearers(names)
    lasting_ids = hooked_ids()
    if any(
        len(set(map(body_of, bearers))) > 1
        and not all(id(bearer) in lasting_ids or _in_module(bearer) for bearer in bearers)
        for bearers in bearers_by_name.values()
    ):
        del bearers_by_name
        gc.collect()
        bearers_by_name = _bearers(names)
    return bearers_by_name


def _in_module(bearer: object) -> bool:
    """Whether an imported module has it under its own name."""
    body = under(next(iter(bodies_of(bearer)), None)) if isinstance(bearer, BaseTool) else bearer
    module, name = getattr(body, "__module__", None), getattr(body, "__name__", None)
    namespace = getattr(sys.modules.get(module), "__dict__", {}) if isinstance(module, str) else {}
    return isinstance(name, str) and namespace.get(name) is bearer


def _bearers(names: Iterable[str]) -> dict[str, list[object]]:
    """Stubs, which a model is only told of, are left out where something else bears the name."""
    bearers_by_name: dict[str, list[tuple[object, list[Any]]]] = {name: [] for name in names}
    for tool in HOLDINGS.tools():
        if tool.name in bearers_by_name:
            bearers_by_name[tool.name].append((tool, bodies_of(tool)))
    for name, bearers in bearers_by_name.items():
        bearers += [(hook.function, [hook.function]) for hook in hooked_as(name)]
    return {name: _acting(bearers) for name, bearers in bearers_by_name.items()}


def _acting(bearers: list[tuple[object, list[Any]]]) -> list[object]:
    acting = [bearer for bearer, bodies in bearers if not all(map(is_empty, bodies))]
    return acting or [bearer for bearer, _ in bearers]


def _by_author(called: object) -> tuple[Effect | None, bool]:
    """Return the effect that `@effect` declares, and whether it covers every body that may run."""
    stated = declared_effect(called)
    if stated is not None or type(called) not in (StructuredTool, Tool):
        return stated, True
    marks = [declared_effect(body) for body in bodies_of(called)]  # type: ignore[arg-type]
    effects = [mark for mark in marks if mark is not None]
    return max(effects, key=power, default=None), len(effects) == len(marks)


def _of_settings(name: str, settings: Settings) -> Statement:
    """What a person wrote, or `init` whom nobody has confirmed."""
    entry = settings.tools[name]
    return entry.effect, "guessed" if entry.guessed else "declared", settings.where("tools", name)


def function_spec(name: str, settings: Settings) -> ToolSpec:
    """A name under which no tool is known, as the gate will treat it: a function's, or nobody's."""
    by_name = {
        entry.name or reference.rpartition(":")[2].rpartition(".")[2]: entry
        for reference, entry in settings.functions.items()
    }
    if name in settings.tools:
        effect, source, reason = _of_settings(name, settings)
    elif name in by_name:
        effect, source, reason = by_name[name].effect, "declared", ""
    else:
        effect, reason = guess_effect(name)
        source = "guessed"
    return ToolSpec(name, effect, source=source, reason=reason, kind="function")


def _described(called: object, name: str, stated: Statement) -> ToolSpec:
    effect, source, reason = stated
    if not isinstance(called, BaseTool):
        return ToolSpec(name, effect, source=source, reason=reason, kind="function")
    answer_schema, answer_form = declared_answer(called)
    return ToolSpec(
        name=name,
        effect=effect,
        description=(called.description or "").strip(),
        args_schema=_schema(called),
        source=source,
        reason=reason,
        answer_schema=answer_schema,
        answer_form=answer_form,
    )


def _schema(tool: BaseTool) -> Mapping[str, Any]:
    try:
        schema = tool.tool_call_schema
        plain = schema if isinstance(schema, dict) else _model_schema(schema)
    except Exception:  # noqa: BLE001  a schema with foreign types has no JSON form; the tool works without it
        return {}
    return dict(to_json(plain))


def _model_schema(model: Any) -> Any:
    """The JSON schema of a pydantic model class, of version 1 or 2."""
    return model.model_json_schema() if hasattr(model, "model_json_schema") else model.schema()


Declared = tuple[Mapping[str, JsonValue], str]
"""JSON schema and form, as `ToolSpec.answer_schema` and `answer_form` have them."""

NOTHING: Declared = ({}, "value")


def declared_answer(tool: BaseTool) -> Declared:
    """What a tool declares of its successful answers; nothing where it declares nothing that holds."""
    body = tool.__dict__.get("func") or tool.__dict__.get("coroutine")
    if body is None:
        body = type(tool)._run if "_run" in vars(type(tool)) else getattr(type(tool), "_arun", None)
    by_server = _of_server(body)
    if by_server is not None:
        return dict(to_json(by_server)), "structured"
    try:
        return _of_annotation(body, pair=tool.response_format == "content_and_artifact")
    except Exception:  # noqa: BLE001  annotations are the user's: names that are not there, foreign types
        return NOTHING


def _of_server(body: Any) -> Mapping[str, Any] | None:
    """Return the output schema of the MCP tool in the closure of the adapter's function."""
    for value in closure_of(body):
        for name in _OUTPUT_SCHEMAS & set(getattr(type(value), "model_fields", ())):
            schema = getattr(value, name)
            if isinstance(schema, Mapping):
                return schema
    return None


_OUTPUT_SCHEMAS = {"outputSchema", "output_schema"}  # of the MCP SDK 1.x, of 2.x


def _of_annotation(body: Callable[..., Any] | None, *, pair: bool) -> Declared:
    if body is None:
        return NOTHING
    annotation = typing.get_type_hints(inspect.unwrap(body), include_extras=True).get("return", Any)
    if pair:
        parts = typing.get_args(annotation)
        annotation = parts[0] if typing.get_origin(annotation) is tuple and len(parts) == 2 else Any
    kinds = list(_kinds(annotation))
    if annotation in (Any, None, type(None), object) or any(_is_the_frameworks(kind) for kind in kinds):
        return NOTHING
    schema = to_json(_annotation_schema(annotation))
    if not isinstance(schema, dict) or not schema:
        return NOTHING
    return schema, "text" if any(_is_shown_as_text(kind) for kind in kinds) else "value"


def _annotation_schema(annotation: Any) -> Any:
    """A JSON schema; pydantic reads `typing.TypedDict` from Python 3.12 on only."""
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return _annotation_schema(parts[0])
    if typing.is_typeddict(annotation):
        fields = typing.get_type_hints(annotation)
        required = [name for name in fields if name in annotation.__required_keys__]
        properties = {name: _annotation_schema(kind) for name, kind in fields.items()}
        return {"type": "object", "properties": properties, "required": required}
    if origin is list and parts:
        return {"type": "array", "items": _annotation_schema(parts[0])}
    if origin in (Union, UnionType):
        return {"anyOf": [_annotation_schema(part) for part in parts]}
    return TypeAdapter(annotation).json_schema(mode="serialization")


def _kinds(annotation: Any) -> Iterator[Any]:
    yield annotation
    for part in typing.get_args(annotation):
        yield from _kinds(part)


def _is_the_frameworks(kind: Any) -> bool:
    origin = typing.get_origin(kind) or kind
    return isinstance(origin, type) and issubclass(origin, (BaseMessage, Command))


def _is_shown_as_text(kind: Any) -> bool:
    return isinstance(kind, type) and (issubclass(kind, BaseModel) or dataclasses.is_dataclass(kind))
