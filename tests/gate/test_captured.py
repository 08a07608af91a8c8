"""Bodies captured before the gate was there, or shared by several tools, still meet it."""

from typing import Any

import pytest
from langchain_core.tools import BaseTool, StructuredTool

import dreamgym_kit
from dreamgym_kit.adapters.langgraph.intercept.install import install, uninstall
from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.settings.load import parse_settings

RAN: list[str] = []


class Payment(BaseTool):
    name: str = "pay"
    description: str = "Pay."

    def _run(self, amount: int) -> str:
        RAN.append("pay")
        return f"paid {amount}"


class Api:
    def call(self, what: str) -> str:
        RAN.append(what)
        return what


@pytest.fixture(autouse=True)
def fresh() -> Any:
    RAN.clear()
    install()
    yield
    uninstall()


def test_a_bound_run_taken_before_the_gate_is_answered_in_a_dream_and_kept_in_a_recording() -> None:
    uninstall()
    captured = Payment()._run
    install()
    store = MemoryStore()
    with dreamgym_kit.recording(store) as session:
        assert captured(amount=3) == "paid 3"
    assert [(entry.call.tool, dict(entry.call.args)) for entry in session.ledger.transitions()] == [
        ("pay", {"amount": 3})
    ]
    with dreamgym_kit.dreaming(buffer=store):
        assert captured(amount=3) == "paid 3"
    assert RAN == ["pay"]


def test_a_class_tool_is_recorded_once_however_it_is_called() -> None:
    with dreamgym_kit.recording(MemoryStore()) as session:
        Payment().invoke({"amount": 1})
        Payment()._run(amount=2)
    assert [dict(entry.call.args) for entry in session.ledger.transitions()] == [{"amount": 1}, {"amount": 2}]


def test_a_body_shared_by_a_pure_and_a_writing_tool_is_dreamt() -> None:
    api = Api()
    kept = [
        StructuredTool.from_function(api.call, name="calc", description="Calculate."),
        StructuredTool.from_function(api.call, name="refund", description="Refund."),
    ]
    settings = parse_settings('[tools.calc]\neffect = "pure"\n[tools.refund]\neffect = "destructive"\n')
    with pytest.raises(BaseException, match="no experience"), dreamgym_kit.dreaming(settings=settings):
        api.call("x")
    assert RAN == []
    assert len(kept) == 2
