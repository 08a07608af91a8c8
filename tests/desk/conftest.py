"""Runs desk tasks on the real tools, without the gate, and keeps what happened."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, ToolMessage

from dreamgym_kit.interfaces import Outcome
from dreamgym_kit.recipes.desk.database import Books
from dreamgym_kit.recipes.desk.environment import TENANT, DeskEnvironment, open_desk
from dreamgym_kit.recipes.desk.tasks import TASKS_FILE
from dreamgym_kit.settings.load import load_settings
from dreamgym_kit.types import Answer, Call, Effect, Task, Transition


@dataclass
class Played:
    """One task, really run."""

    task: Task
    messages: list[Any]
    final: dict[str, Any]
    transitions: list[Transition]
    books: Books  # the desk at the end


Play = Callable[..., Awaitable[Played]]


@pytest.fixture(scope="session")
def effects() -> dict[str, Effect]:
    settings = load_settings(file=TASKS_FILE.parents[1] / "dreamgym.toml", environ={})
    return {name: tool.effect for name, tool in settings.tools.items()}


@pytest.fixture
def play(tmp_path: Path, effects: dict[str, Effect]) -> Play:
    world = DeskEnvironment(tmp_path)

    async def run(graph: Any, task: Task, judge: Callable[[Outcome], Any] = lambda outcome: None) -> Played:
        episode = f"{task.id}.1"
        await world.reset(task.environment, episode)
        configurable = world.configurable(task.environment, episode)
        final = await graph.ainvoke(
            dict(task.input), {"configurable": dict(configurable), "recursion_limit": 60}
        )
        transitions = transitions_of(final["messages"], task, episode, effects)
        with open_desk(configurable[TENANT]) as desk:
            books = desk.books()
        judge(Outcome(task, transitions, (), None, True, configurable))
        await world.close(episode)
        return Played(task, final["messages"], final, transitions, books)

    return run


def transitions_of(
    messages: list[Any], task: Task, episode: str, effects: dict[str, Effect]
) -> list[Transition]:
    """Every call of a transcript with its answer; enough for a checker, no recording."""
    told = {message.tool_call_id: message for message in messages if isinstance(message, ToolMessage)}
    calls = [call for message in messages if isinstance(message, AIMessage) for call in message.tool_calls]
    return [
        Transition(
            Call(call["name"], call["args"], call["id"]),
            Answer(
                content=told[call["id"]].content,
                error=told[call["id"]].content if told[call["id"]].status == "error" else None,
            ),
            effects[call["name"]],
            episode,
            step,
            task.environment,
            task.id,
        )
        for step, call in enumerate(calls, start=1)
    ]
