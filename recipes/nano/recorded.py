"""Worked episodes as the transitions that recording them would give, and the reads of a whole desk.

For lessons and trials that need thousands of them: the desk's own tools, without LangGraph in between.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from dreamgym_kit.jsonread import read_json
from dreamgym_kit.plain import JsonValue
from dreamgym_kit.recipes.desk.cases import split_of
from dreamgym_kit.recipes.desk.database import Desk, DeskError
from dreamgym_kit.recipes.desk.record import SETTINGS_FILE
from dreamgym_kit.recipes.nano.direct import Told
from dreamgym_kit.recipes.nano.episodes import Worked
from dreamgym_kit.settings.load import load_settings
from dreamgym_kit.vocabulary import Answer, Call, Effect, Transition, World, history_digest

CARRIER = "track_parcel"
"""The tool that comes from an MCP server: its answers are blocks of text."""

_REFUSED = "ToolException"


@cache
def effects() -> Mapping[str, Effect]:
    """What each of the desk's tools does, as its settings say."""
    said = load_settings(file=SETTINGS_FILE, environ={}).tools
    return {name: Effect(tool.effect) for name, tool in said.items()}


def transitions_of(worked: Worked, *, number: int = 1) -> list[Transition]:
    """One episode as recorded; `number` tells the episodes of one world apart."""
    kept = _Kept(f"{worked.family}-{worked.seed}", f"{worked.family}-{worked.seed}.{number}", worked.seed)
    for exchange in worked.exchanges:
        for use, told in zip(exchange.turn.uses, exchange.told, strict=True):
            kept.add(use.tool, use.args, _answer(use.tool, told))
    return kept.rows


class _Kept:
    """The rows of one episode, in their order."""

    def __init__(self, task: str, episode: str, seed: int) -> None:
        self.rows: list[Transition] = []
        self._task, self._episode, self._seed = task, episode, seed
        self._writes: list[str] = []

    def add(self, tool: str, args: Mapping[str, str], answer: Answer) -> None:
        effect, call = effects().get(tool, Effect.PURE), Call(tool, dict(args))
        self.rows.append(
            Transition(
                call,
                answer,
                effect,
                self._episode,
                len(self.rows) + 1,
                World("desk", self._seed),
                self._task,
                after=history_digest(self._writes),
                split=split_of(self._seed),
            )
        )
        if effect.changes_world:
            self._writes.append(call.key)


def _asked(desk: Desk, tool: str, **args: str) -> Answer:
    try:
        return _answer(tool, Told(json.dumps(desk.call(tool, args), ensure_ascii=False)))
    except DeskError as refusal:
        return _answer(tool, Told(str(refusal), failed=True))


def _answer(tool: str, told: Told) -> Answer:
    content: JsonValue = None if told.failed else read_json(told.text)  # a tool that raises says nothing else
    if tool == CARRIER:
        structured = None if told.failed else {"structured_content": content}
        answer = Answer([{"type": "text", "text": told.text}], artifact=structured)
    else:
        answer = Answer(content)
    return replace(answer, error=told.text, error_type=_REFUSED) if told.failed else answer
