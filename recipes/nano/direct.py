"""The desk's tools called directly: what the agent is told, without LangGraph in between.

Decides nothing about the desk. It gives the text of each answer as it stands in the agent's conversation,
so that thousands of episodes can be worked in seconds. A call that no tool takes is answered in the words
of LangGraph's tool node, shortened: a graph also quotes the validator there.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from dreamgym_kit.plain import JsonValue
from dreamgym_kit.recipes.desk.database import OPERATIONS, Desk, DeskError
from dreamgym_kit.recipes.desk.money import refund_share

_COMPUTED = {"refund_quote": ("amount", "days"), "summarise_case": ()}
TOOL_ARGS: Mapping[str, tuple[str, ...]] = {
    **{tool: names for tool, (_, names) in OPERATIONS.items()},
    **_COMPUTED,
}
"""All tools of the desk's agent, with the names of their arguments in order."""


@dataclass(frozen=True, slots=True)
class Told:
    """What the agent is told about one call."""

    text: str
    failed: bool = False


class DirectTools:
    """The tools over one open desk, for one episode."""

    def __init__(self, desk: Desk) -> None:
        self.calls = 0
        self._desk = desk
        self._failed = 0
        self._escalated: list[str] = []
        self._seen = (0, 0)  # calls and failures that the conversation held when this turn began

    def begin_turn(self) -> None:
        """The calls that follow are made at once: none of them sees another's answer."""
        self._seen = (self.calls, self._failed)

    def call(self, tool: str, args: Mapping[str, JsonValue]) -> Told:
        """Make one call, for real on this desk."""
        told = self._told(tool, args)
        self.calls += 1
        self._failed += told.failed
        return told

    def _told(self, tool: str, args: Mapping[str, JsonValue]) -> Told:
        names = TOOL_ARGS.get(tool)
        if names is None:
            return Told(
                f"Error: {tool} is not a valid tool, try one of [{', '.join(TOOL_ARGS)}].", failed=True
            )
        texts = {name: value for name in names if isinstance(value := args.get(name), str)}
        if len(texts) < len(names):
            wanted = next(name for name in names if name not in texts)
            return Told(
                f"Error invoking tool '{tool}' with kwargs {dict(args)} with error:\n {wanted}: "
                "Input should be a valid string\n Please fix the error and try again.",
                failed=True,
            )
        try:
            return Told(json.dumps(self._do(tool, texts), ensure_ascii=False))
        except (DeskError, ValueError) as refusal:
            return Told(str(refusal), failed=True)

    def _do(self, tool: str, args: Mapping[str, str]) -> JsonValue:
        if tool == "refund_quote":
            return dict(refund_share(**args))
        if tool == "summarise_case":
            calls, failed = self._seen
            return {"calls": str(calls), "failed": str(failed), "escalated": " ".join(self._escalated)}
        done = self._desk.call(tool, args)
        if tool == "escalate":
            self._escalated.append(args["target_id"])
        return done
