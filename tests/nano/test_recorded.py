"""Worked episodes as transitions: told as recording the real graph tells them."""

from pathlib import Path

import pytest

pytest.importorskip("langchain_mcp_adapters", reason="needs the extra: desk")

from dreamgym_kit.adapters.langgraph.api import record
from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.recipes.desk.graph import graph
from dreamgym_kit.recipes.desk.policy import Habits
from dreamgym_kit.recipes.desk.record import SETTINGS_FILE
from dreamgym_kit.recipes.desk.tasks import task_record
from dreamgym_kit.recipes.nano.episodes import work
from dreamgym_kit.recipes.nano.recorded import effects, transitions_of
from dreamgym_kit.rollout.tasks import task_from_record
from dreamgym_kit.settings.load import load_settings
from dreamgym_kit.vocabulary import Answer, Effect, Transition

TIMES_OUT, NOT_SENT = 1062, 1003  # a refund that the gateway does not answer; a parcel that was never sent


@pytest.mark.parametrize("seed", [TIMES_OUT, NOT_SENT])
def test_a_worked_episode_tells_what_recording_it_does_failures_too(tmp_path: Path, seed: int) -> None:
    settings = load_settings(file=SETTINGS_FILE, environ={}).with_overrides({"simulate.repeats": 1})
    task, store = task_from_record(task_record("one", seed), source="here"), MemoryStore()
    record(graph("scripted:fixed"), [task], settings=settings, store=store, directory=tmp_path / "run")
    recorded = [row for row in store.scan() if effects().get(row.call.tool) is not Effect.PURE]
    told = [row for row in transitions_of(work(seed, Habits())) if row.effect is not Effect.PURE]
    assert any(row.answer.error for row in told)
    assert said(told) == said(recorded)


def said(rows: list[Transition]) -> dict[str, list[Answer]]:
    """By call, its answers; calls that are made at once end in any order."""
    found: dict[str, list[Answer]] = {}
    for row in rows:
        found.setdefault(row.call.key, []).append(row.answer)
    return found
