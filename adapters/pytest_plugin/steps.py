"""One tool call of an episode as a test meets it, and how it is written in a failure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from dreamgym_kit.adapters.pytest_plugin.differences import shown, shown_call
from dreamgym_kit.dream.faults import took_effect
from dreamgym_kit.plain import JsonValue
from dreamgym_kit.report.clean import clean
from dreamgym_kit.vocabulary import Effect, ToolSpec, Transition


@dataclass(frozen=True, slots=True)
class Step:
    """A tool call of the agent, with its answer."""

    number: int  # 1-based place among the episode's calls
    tool: str
    args: Mapping[str, JsonValue]
    answer: JsonValue
    error: str | None
    effect: Effect
    provenance: str  # recorded, scripted, real, ...
    took_effect: bool  # it would have changed the world; a write that failed may have, too

    def __str__(self) -> str:
        said = f"error: {clean(self.error)}" if self.error is not None else shown(self.answer)
        return f"{self.number} {self.call} -> {said}  [{self.effect.value}, {self.provenance}]"

    @property
    def call(self) -> str:
        """The call as one would write it."""
        return shown_call(self.tool, self.args)


@dataclass(frozen=True, slots=True)
class Expected:
    """A call that a test speaks of: a tool or pattern, and those arguments that matter."""

    tool: str
    args: Mapping[str, Any]

    def __str__(self) -> str:
        return shown_call(self.tool, self.args) if self.args else clean(self.tool)

    def names(self, step: Step) -> bool:
        """Whether a call is of this tool."""
        return fnmatchcase(step.tool, self.tool)

    def fits(self, step: Step) -> bool:
        """Whether a call is of this tool and has these arguments; others do not matter."""
        return self.names(step) and not self.unlike(step)

    def unlike(self, step: Step) -> list[str]:
        """Where a call's arguments are others."""
        return [
            f"{name} is {shown(step.args[name])}, expected {shown(value)}"
            if name in step.args
            else f"{name} was not given, expected {shown(value)}"
            for name, value in self.args.items()
            if name not in step.args or not bool(value == step.args[name])
        ]


def call(tool: str, /, **args: Any) -> Expected:
    """A call to speak of in `order` and `exactly`: `call("refund_payment", payment="p1")`."""
    return Expected(tool, args)


def step_of(entry: Transition) -> Step:
    """A transition as a test meets it."""
    return Step(
        number=entry.step,
        tool=entry.call.tool,
        args=entry.call.args,
        answer=entry.answer.content,
        error=entry.answer.error,
        effect=entry.effect,
        provenance=entry.answer.provenance.value,
        took_effect=entry.effect.changes_world and took_effect(entry.answer),
    )


def arguments_of(tools: Iterable[ToolSpec]) -> dict[str, list[str]]:
    """What each tool takes; tools that may take more than they say are left out."""
    schemas = {tool.name: tool.args_schema for tool in tools}
    return {
        name: list(properties)
        for name, schema in schemas.items()
        if isinstance(properties := schema.get("properties"), Mapping)
        and not schema.get("additionalProperties")
    }
