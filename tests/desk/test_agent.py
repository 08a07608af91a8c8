import asyncio
import importlib.util
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from each_row import each_row
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from dreamgym_kit import errors
from dreamgym_kit.errors import MissingExtra, UserError
from dreamgym_kit.interfaces import Outcome
from dreamgym_kit.recipes.desk.agent import ScriptedDeskModel, choose_model, read_conversation
from dreamgym_kit.recipes.desk.cases import make_case
from dreamgym_kit.recipes.desk.checkers import check, goal, request_text
from dreamgym_kit.recipes.desk.graph import graph, simple_graph
from dreamgym_kit.recipes.desk.tasks import desk_tasks
from dreamgym_kit.rollout.tasks import task_from_record
from dreamgym_kit.types import Task, Verdict

TASKS = [task_from_record(record, source="desk") for record in desk_tasks()]
Play = Callable[..., Awaitable[Any]]
SUCCESS = Verdict.PASSED


def slow_tasks() -> set[str]:
    """Tasks whose right work refunds a payment that the gateway is slow for."""
    found = set()
    for task in TASKS:
        gateway = {row[0]: row[4] for row in make_case(task.environment.variant).rows["payments"]}
        right = goal(task.environment.variant, request_text(task.input))
        if any(gateway[payment] == "slow" for payment, refund in right.payments.items() if refund.times):
            found.add(task.id)
    return found


async def play_all(model: ScriptedDeskModel, play: Play, factory: Any = None) -> dict[str, Verdict]:
    """Every task on the real tools; also holds that the would-be writes alone are judged the same."""
    verdicts: dict[str, Verdict] = {}

    async def one(desk: Any, task: Task) -> None:
        def judge(real: Outcome) -> None:
            judged = check(real)
            dreamt = check(Outcome(task, real.transitions, (), None, False))
            assert (judged.verdict, judged.reason, judged.reward) == (
                dreamt.verdict,
                dreamt.reason,
                dreamt.reward,
            )
            verdicts[task.id] = judged.verdict

        await play(desk, task, judge)

    if factory is not None:
        async with factory(model) as desk:
            await asyncio.gather(*(one(desk, task) for task in TASKS))
    else:
        desk = simple_graph(model)
        await asyncio.gather(*(one(desk, task) for task in TASKS))
    return verdicts


async def test_the_right_colleague_solves_every_task_on_the_real_tools_mcp_included(play: Play) -> None:
    verdicts = await play_all(ScriptedDeskModel(fixed=True), play, graph)
    assert len(verdicts) == len(TASKS)
    assert set(verdicts.values()) == {SUCCESS}


async def test_the_planted_bug_fails_on_slow_payments_and_nowhere_else(play: Play) -> None:
    verdicts = await play_all(ScriptedDeskModel(), play)
    assert {task for task, verdict in verdicts.items() if verdict is not SUCCESS} == slow_tasks()
    assert 8 <= len(slow_tasks()) <= 14


async def test_a_second_request_in_the_same_thread_is_worked_by_itself() -> None:
    model = ScriptedDeskModel(fixed=True)
    history = [
        HumanMessage("Ana here. Your service is bad."),
        AIMessage("", tool_calls=[{"name": "find_customer", "args": {"name": "Ana"}, "id": "call_01"}]),
        ToolMessage('{"customer_id": "C10", "tier": "basic"}', tool_call_id="call_01"),
        AIMessage("I am sorry. We will look into it."),
        HumanMessage("Ana here. My bike arrived broken."),
    ]
    assert read_conversation(history) == ("Ana here. My bike arrived broken.", [])
    reply = await model.ainvoke(history)
    assert reply.tool_calls[0]["name"] == "find_customer"
    assert reply.tool_calls[0]["id"] == "call_02"


def test_the_model_is_chosen_by_name_or_by_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DESK_MODEL", raising=False)
    assert choose_model() == ScriptedDeskModel()
    assert choose_model("scripted:fixed") == ScriptedDeskModel(fixed=True)
    monkeypatch.setenv("DESK_MODEL", "scripted:junior")
    assert choose_model() == ScriptedDeskModel(variant="junior")
    assert choose_model("scripted") == ScriptedDeskModel()


@each_row(
    ("name", "said"),
    [
        ("scripted:best", "DESK_MODEL: there is no script 'best'; known: fixed, junior, slip, mixed."),
        ("nobody:model", "DESK_MODEL: 'nobody:model' cannot be used ("),
    ],
)
def test_a_model_that_is_not_there_is_one_line(name: str, said: str) -> None:
    with pytest.raises(UserError) as refused:
        choose_model(name)
    assert str(refused.value).startswith(said)
    assert "\n" not in str(refused.value)


async def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(errors, "find_spec", lambda name: None if name == "mcp" else real(name))
    with pytest.raises(MissingExtra, match=r"pip install 'dreamgym-kit\[demo\]'"):
        simple_graph()
    with pytest.raises(MissingExtra):
        async with graph():
            pass
