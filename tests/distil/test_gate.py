"""What a model may stand in for: figures per tool, verdicts against a bound, and who obeys them."""

import asyncio
from pathlib import Path

import pytest
from deciding_double import ScriptedChatDouble
from each_row import each_row

from dreamgym_kit.dream.llm_experience import ReasonedExperience
from dreamgym_kit.errors import UserError
from dreamgym_kit.interfaces import Situation
from dreamgym_kit.trust.acceptance import (
    NEVER,
    TRUST,
    WATCH,
    Gate,
    HeldOutCall,
    ToolGate,
    exactness,
    gate_of,
    read_gate,
    write_gate,
)
from dreamgym_kit.types import Call, Effect, Environment, ToolSpec


def calls(right: int, wrong: int, *, tool: str = "get", confidence: float = 1.0, **more) -> list[HeldOutCall]:
    """Calls that only the model can answer."""
    one = {"tool": tool, "failed": False, "form": "template", "confidence": confidence, **more}
    told = [HeldOutCall(**one, model=True)] * right + [HeldOutCall(**one, model=False)] * wrong
    return told[::2] + told[1::2]


def verdict(found: list[HeldOutCall], threshold: float = 0.5, bound: float = 0.9) -> str:
    return gate_of(exactness(found, threshold=threshold), weights="w", bound=bound).tools["get"].verdict


@each_row(
    ("right", "wrong", "expected"),
    [
        (40, 0, TRUST),
        (18, 2, TRUST),
        (19, 0, WATCH),
        (17, 3, WATCH),
        (30, 30, NEVER),
        (1, 0, WATCH),
        (3, 7, NEVER),
    ],
)
def test_a_tool_is_trusted_at_the_bound_on_enough_calls(right: int, wrong: int, expected: str) -> None:
    assert verdict(calls(right, wrong), threshold=0.0) == expected


def test_a_model_that_takes_refusals_for_done_is_never_asked() -> None:
    refused = calls(0, 5, failed=True)
    assert verdict([*calls(95, 0), *refused], threshold=0.0) == NEVER
    seen = calls(5, 0, failed=True, model_failed=True)
    assert verdict([*calls(95, 0), *seen], threshold=0.0) == TRUST


def test_what_it_is_not_sure_of_does_not_count_against_it() -> None:
    unsure = calls(0, 200, confidence=0.1)
    assert verdict([*calls(60, 0), *unsure]) == TRUST
    assert verdict([*calls(60, 0), *unsure], threshold=0.0) == NEVER


def test_calls_that_code_answers_are_none_of_the_models() -> None:
    known = [HeldOutCall("get", False, composed=True, model=False, form="template", confidence=1.0)] * 50
    found = exactness([*known, *calls(30, 0)], threshold=0.0)
    assert gate_of(found, weights="w").tools["get"].tried == 30
    assert found.share("layered") == 1.0
    assert found.share("composed") == pytest.approx(50 / 80)
    assert found.share("model") == pytest.approx(30 / 80)


def test_support_is_learned_from_the_calls_that_are_left_to_the_model() -> None:
    known = [HeldOutCall("get", False, composed=True, model=True, form="template", confidence=1.0)] * 50
    found = exactness([*known, *calls(0, 30)], threshold=0.0)
    assert {trial.exact for trial in found.trials} == {False}
    assert found.calibration is not None


def test_a_wrong_answer_of_code_is_not_mended_by_the_model() -> None:
    found = exactness([HeldOutCall("get", False, composed=False, model=True, confidence=1.0)], threshold=0.0)
    assert found.share("layered") == 0.0


def test_calibration_is_no_error_where_support_is_the_share_of_right_answers() -> None:
    honest = exactness([*calls(90, 10, confidence=0.95), *calls(20, 80, confidence=0.3)], threshold=0.5)
    assert honest.calibration < 0.06
    assert exactness([HeldOutCall("get", False)], threshold=0.5).calibration is None


def test_a_calls_support_is_learned_from_the_other_half_alone() -> None:
    one = {"tool": "get", "failed": False, "form": "template", "confidence": 1.0}
    found = exactness(
        [HeldOutCall(**one, model=right) for _ in range(40) for right in (True, False)], threshold=0.5
    )
    assert (found.tools[0].open, found.tools[0].open_right) == (
        40,
        0,
    )  # each half believes what the other was


def test_a_gate_is_read_as_it_was_written_and_only_for_its_weights(tmp_path: Path) -> None:
    gate = gate_of(exactness(calls(40, 1), threshold=0.5), weights="abc")
    write_gate(tmp_path / "acceptance.json", gate, {})
    assert read_gate(tmp_path / "acceptance.json", weights="abc") == gate
    with pytest.raises(
        UserError, match="is of other weights than those that lie beside it; try the model again"
    ):
        read_gate(tmp_path / "acceptance.json", weights="abd")


@each_row("text", ["", "{}", "[]", '{"weights": "", "bound": 1, "tools": {"a": 1}, "trials": []}'])
def test_a_file_that_is_no_gate_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "acceptance.json").write_text(text)
    with pytest.raises(UserError, match=r"acceptance.json: is no gate"):
        read_gate(tmp_path / "acceptance.json")
    with pytest.raises(UserError, match="there is no such gate"):
        read_gate(tmp_path / "none.json")


GATE = Gate("w", 0.9, {name: ToolGate(name, 0, 0, f"it is {name}") for name in (TRUST, WATCH, NEVER)})


@each_row(
    ("tool", "dry", "training"),
    [(TRUST, True, True), (WATCH, True, False), (NEVER, False, False), ("new", True, False)],
)
def test_dry_runs_ask_what_is_watched_and_trainings_only_what_is_trusted(
    tool: str, dry: bool, training: bool
) -> None:
    assert GATE.may_answer(tool, training=False) is dry
    assert GATE.may_answer(tool, training=True) is training


def test_a_tool_that_did_not_pass_is_not_asked_about() -> None:
    chat = ScriptedChatDouble("{}")
    model = ReasonedExperience(
        chat, allows=lambda tool: None if GATE.may_answer(tool, training=True) else "no"
    )
    tool = ToolSpec(NEVER, Effect.READ)
    answer = asyncio.run(model.answer(Call(NEVER, {}), Situation(Environment(), "t", "e", (), "", tool)))
    assert (answer.unanswered, chat.requests) == (True, [])
    assert answer.why == "the dream's model may not answer never: no"
