"""Faults by plan: the same seed, the same faults; told as what they are, and never a real call."""

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shapes.stage import ScriptedExperienceDouble

from dreamgym_kit.dream.faults import FaultKind, FaultPlan, Occurrences, fault_kind, faults_of, took_effect
from dreamgym_kit.errors import CallUnanswered
from dreamgym_kit.findings.writes import repeated_writes
from dreamgym_kit.interfaces import Situation
from dreamgym_kit.routing.router import CallRouter, Mode
from dreamgym_kit.routing.session import Session
from dreamgym_kit.settings.schema import FAULT_KINDS, FaultSettings
from dreamgym_kit.types import Answer, Call, Effect, Source, ToolSpec

PAY = Call("pay", {"id": "P1"})
READ = Call("look", {"id": "P1"})
SPECS = {"pay": ToolSpec("pay", Effect.DESTRUCTIVE), "look": ToolSpec("look", Effect.READ)}


def session(kind: str, experience: object = None, *, mode: Mode = Mode.DREAM, tool: str = "*") -> Session:
    plan = FaultPlan({tool: FaultSettings(1.0, (kind,), wait_s=0.01)}, seed=1)
    told = experience if experience is not None else ScriptedExperienceDouble('{"status": "paid"}')
    return Session(CallRouter(mode, SPECS), experience=told, episode="t.1", faults=plan)  # type: ignore[arg-type]


def ask(asked: Session, call: Call) -> Answer:
    _, place = asked.admit(call)
    return asked.drive(asked.flow(call, place))


rates = st.floats(0, 1)
rules = st.builds(
    FaultSettings, rate=rates, kinds=st.lists(st.sampled_from(FAULT_KINDS), min_size=1, max_size=4).map(tuple)
)
names = st.sampled_from(["pay", "look", "send", "cancel", "find", "charge"])


@given(st.dictionaries(names, rules, max_size=5), rules, st.integers(0, 99), names)
def test_adding_a_tool_leaves_other_tools_faults_as_they_were(
    planned: dict[str, FaultSettings], added: FaultSettings, seed: int, tool: str
) -> None:
    plan = FaultPlan(planned, seed)
    more = FaultPlan({"added": added, **planned}, seed)
    for occurrence in range(20):
        place = {"episode": "t.1", "occurrence": occurrence}
        call = Call(tool, {})
        assert plan.fault(call, Effect.WRITE, **place) == more.fault(call, Effect.WRITE, **place)


@given(rules, st.integers(0, 99), st.lists(st.sampled_from(["pay", "look"]), max_size=12))
def test_the_order_of_two_tools_calls_does_not_move_their_faults(
    rule: FaultSettings, seed: int, order: list[str]
) -> None:
    plan = FaultPlan({"*": rule}, seed)

    def drawn(tools: list[str]) -> list[object]:
        numbers = Occurrences()
        calls = [(Call(tool, {}), numbers.next(Call(tool, {}))) for tool in tools]
        found = [
            (call.tool, occurrence, plan.fault(call, Effect.WRITE, episode="t.1", occurrence=occurrence))
            for call, occurrence in calls
        ]
        return sorted(found, key=lambda item: item[:2])

    assert drawn(order) == drawn(sorted(order))


def test_the_share_of_faults_is_the_rate() -> None:
    plan = FaultPlan({"*": FaultSettings(0.2)}, seed=3)
    failed = sum(
        plan.fault(PAY, Effect.WRITE, episode=f"t.{number}", occurrence=0) is not None
        for number in range(5000)
    )
    assert 900 < failed < 1100


def test_an_outage_lasts_and_leaves_other_tools_working() -> None:
    plan = FaultPlan({"pay": FaultSettings(0.1, ("outage",), outage_calls=4)}, seed=2)
    down = [
        plan.fault(PAY, Effect.WRITE, episode="t.1", occurrence=number) is not None for number in range(200)
    ]
    runs = "".join("x" if one else "." for one in down).strip(".").split(".")
    assert min(len(run) for run in runs if run) >= 4
    assert not any(plan.fault(READ, Effect.READ, episode="t.1", occurrence=number) for number in range(200))


@pytest.mark.parametrize("kind", ["error", "timeout", "rate_limit", "outage"])
def test_a_plain_fault_fails_without_asking_the_dream_and_changes_nothing(kind: str) -> None:
    told = ScriptedExperienceDouble()
    dream = session(kind, told)
    answer = ask(dream, PAY)
    assert (answer.source, fault_kind(answer), told.asked) == (Source.FAULT, FaultKind(kind), [])
    assert answer.error is not None
    assert not took_effect(answer)
    assert dream.ledger.after(dream.ledger.place(READ)) == ""


def test_a_timeout_may_have_taken_effect_and_the_agent_cannot_tell() -> None:
    lost, applied = session("timeout"), session("timeout_applied")
    answers = [ask(lost, PAY), ask(applied, PAY)]
    assert answers[0].error == answers[1].error == "pay: timed out, no answer"
    assert lost.ledger.after(lost.ledger.place(READ)) == ""
    assert applied.ledger.after(applied.ledger.place(READ)) != ""


def test_a_refused_write_under_a_timeout_took_no_effect() -> None:
    refusing = ScriptedExperienceDouble(
        lambda call: Answer(source=Source.RECORDED, error="already paid", error_type="ValueError")
    )
    assert fault_kind(ask(session("timeout_applied", refusing), PAY)) is FaultKind.TIMEOUT


def test_a_repeat_after_a_timeout_is_found() -> None:
    dream = session("timeout_applied")
    ask(dream, PAY)
    ask(dream, PAY)
    assert [one.text for one in repeated_writes(dream.ledger.transitions())] == [
        "pay P1 called twice, after a time-out"
    ]


def test_a_malformed_answer_no_longer_parses() -> None:
    answer = ask(session("malformed"), READ)
    assert '{"status": "paid"}'.startswith(str(answer.content))
    with pytest.raises(json.JSONDecodeError):
        json.loads(str(answer.content))


def test_a_stale_read_tells_what_was_true_before_the_writes() -> None:
    class BeforeAndAfterDouble:
        waits = False

        async def answer(self, call: Call, situation: Situation) -> Answer:
            return Answer("after" if situation.after else "before", Source.RECORDED)

    dream = session("stale_read", BeforeAndAfterDouble())
    assert ask(dream, READ).source is Source.RECORDED  # nothing was written yet: not stale
    ask(dream, PAY)
    stale = ask(dream, READ)
    assert (stale.content, stale.source) == ("before", Source.FAULT)


def test_a_slow_answer_is_right_and_late_for_sync_and_async_tools() -> None:
    dream = session("slow")
    dream._faults = FaultPlan({"*": FaultSettings(1.0, ("slow",), wait_s=0.05)})
    assert ask(dream, READ).content == '{"status": "paid"}'
    _, place = dream.admit(READ)
    asyncio.run(dream.drive_async(dream.flow(READ, place)))
    assert [entry.elapsed_s >= 0.04 for entry in dream.ledger.transitions()] == [True, True]


def test_an_abstention_stays_one_under_a_fault() -> None:
    unsure = ScriptedExperienceDouble(lambda call: Answer(source=Source.UNANSWERED, confidence=0.0))
    with pytest.raises(CallUnanswered):
        ask(session("malformed", unsure), READ)


def test_real_calls_are_never_faulted() -> None:
    recording = session("error", mode=Mode.RECORD)
    assert recording.real_fault(PAY, recording.ledger.place(PAY), "") is None


def test_parallel_calls_keep_their_faults_whichever_is_faster() -> None:
    first, second = Occurrences(), Occurrences()
    for numbers in (first, second):
        numbers.reserve({"a": "pay", "b": "pay", "c": "look"})
    one, other = Call("pay", {}, "a"), Call("pay", {}, "b")
    assert (first.next(one), first.next(other)) == (0, 1)
    assert (second.next(other), second.next(one)) == (1, 0)
    assert second.next(one) == 2  # a retry is a call of its own


def test_faults_are_counted_by_kind() -> None:
    dream = session("error", tool="look")
    ask(dream, READ)
    ask(dream, PAY)
    assert faults_of(dream.ledger.transitions()) == {"error": 1}


def test_the_kinds_of_settings_are_the_kinds_of_the_plan() -> None:
    assert set(FAULT_KINDS) == {str(kind) for kind in FaultKind}
