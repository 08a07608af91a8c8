"""Worked episodes are answered as recording the real graph has them answered."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("langchain_mcp_adapters", reason="needs the extra: demo")

from dreamgym_kit.adapters.langgraph.run.api import record
from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.recipes.desk.graph import graph
from dreamgym_kit.recipes.desk.policy import Habits
from dreamgym_kit.recipes.desk.record import SETTINGS_FILE
from dreamgym_kit.recipes.desk.tasks import task_record
from dreamgym_kit.recipes.nano.episodes import Worked, work
from dreamgym_kit.rollout.tasks import task_from_record
from dreamgym_kit.settings.load import load_settings
from dreamgym_kit.types import Answer, Call, Effect

TIMES_OUT, NOT_SENT = 1062, 1003  # a refund that the gateway does not answer; a parcel that was never sent


@pytest.mark.parametrize("seed", [TIMES_OUT, NOT_SENT])
def test_a_worked_episode_tells_what_recording_it_does_failures_too(tmp_path: Path, seed: int) -> None:
    settings = load_settings(file=SETTINGS_FILE, environ={}).with_overrides({"simulate.repeats": 1})
    task, store = task_from_record(task_record("one", seed), source="here"), MemoryStore()
    record(graph("scripted:fixed"), [task], settings=settings, buffer=store, run_dir=tmp_path / "run")
    pure = {name for name, tool in settings.tools.items() if Effect(tool.effect) is Effect.PURE}
    recorded = [(row.call, row.answer) for row in store.scan() if row.call.tool not in pure]
    told = [(call, answer) for call, answer in answered(work(seed, Habits())) if call.tool not in pure]
    assert any(answer.error for _, answer in told)
    assert said(told) == said(recorded)


def answered(worked: Worked) -> Iterator[tuple[Call, Answer]]:
    """The calls of an episode, each with the answer that the graph records of it."""
    for exchange in worked.exchanges:
        for use, told in zip(exchange.turn.uses, exchange.answers, strict=True):
            content = None if told.failed else json.loads(told.text)  # a tool that raises says nothing else
            artifact = None
            if use.tool == "track_parcel":  # comes from an MCP server: its answers are blocks of text
                artifact = None if told.failed else {"structured_content": content}
                content = [{"type": "text", "text": told.text}]
            error, kind = (told.text, "ToolException") if told.failed else (None, None)
            answer = Answer(content, artifact=artifact, error=error, error_type=kind)
            yield Call(use.tool, dict(use.args)), answer


def said(rows: list[tuple[Call, Answer]]) -> dict[str, list[Answer]]:
    """By call, its answers; calls that are made at once end in any order."""
    found: dict[str, list[Answer]] = {}
    for call, answer in rows:
        found.setdefault(call.key, []).append(answer)
    return found
