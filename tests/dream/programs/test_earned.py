"""What a dream may say only where recordings have earned it: absence, refusals, one thing in two roles.

Asked through the chain, as a run asks.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from dreamgym_kit.dream.chain import ChainedExperience, chain_over
from dreamgym_kit.dream.programs.collections import Fact, RecordedCalls
from dreamgym_kit.dream.programs.records import Base
from dreamgym_kit.dream.programs.values import value_key
from dreamgym_kit.interfaces import Situation
from dreamgym_kit.types import Answer, Call, Effect, Environment, ToolSpec, Transition, history_digest

EFFECTS = {
    "show_loan": Effect.READ,
    "list_loans": Effect.READ,
    "balance": Effect.READ,
    "renew_loan": Effect.WRITE,
    "transfer": Effect.WRITE,
}
Step = tuple[str, Mapping[str, Any], Any]


def episode(name: str, world: str, steps: Sequence[Step]) -> list[Transition]:
    rows: list[Transition] = []
    writes: list[str] = []
    for number, (tool, args, said) in enumerate(steps, start=1):
        call, after, effect = Call(tool, dict(args)), history_digest(writes), EFFECTS[tool]
        answer = said if isinstance(said, Answer) else Answer(said)
        rows.append(Transition(call, answer, effect, name, number, Environment(world), after=after))
        writes += [call.key] if effect is Effect.WRITE else []
    return rows


def ask(chain: ChainedExperience, world: str, tool: str, **args: Any) -> Answer:
    return after(chain, world, (), tool, **args)


def lending(world: int, *, whole_list: bool, denied: int) -> list[Transition]:
    """A loan is shown, renewed and shown; some loans are denied; all are listed, or none."""
    mine, rest = f"LOAN-{world}1", [f"LOAN-{world}{number}" for number in (2, 3)]
    loans = [{"loan_id": loan, "due": world + at, "open": True} for at, loan in enumerate((mine, *rest))]
    show: Step = ("show_loan", {"loan_id": mine}, loans[0])
    renew: Step = ("renew_loan", {"loan_id": mine}, {"loan_id": mine, "renewed": True})
    later: Step = ("show_loan", {"loan_id": mine}, {**loans[0], "due": 21})
    rows = episode(f"a{world}", f"w{world}", [show, renew, later])
    for number in range(denied):
        gone = f"LOAN-{world}9{number}"
        step: Step = ("show_loan", {"loan_id": gone}, {"error": f"there is no loan {gone}"})
        rows += episode(f"d{world}-{number}", f"w{world}", [step])
    if whole_list:
        rows += episode(f"l{world}", f"w{world}", [("list_loans", {}, loans)])
        shown: list[Step] = [("show_loan", {"loan_id": loan["loan_id"]}, loan) for loan in loans]
        rows += episode(f"s{world}", f"w{world}", shown)
    return rows


def lending_desk(**kind: Any) -> ChainedExperience:
    return chain_over([row for world in range(8) for row in lending(world, **kind)], threshold=0.5)


def test_what_was_only_never_seen_is_not_said_to_be_absent() -> None:
    chain = lending_desk(whole_list=False, denied=0)
    assert ask(chain, "w3", "show_loan", loan_id="LOAN-377").unanswered


def test_what_is_not_in_a_list_that_was_read_whole_is_absent() -> None:
    chain = lending_desk(whole_list=True, denied=3)
    assert ask(chain, "w3", "show_loan", loan_id="LOAN-377").content == {"error": "there is no loan LOAN-377"}
    assert ask(chain, "w3", "show_loan", loan_id="LOAN-32").content["due"] == 4


def test_a_world_that_nobody_recorded_is_not_told_by_another_one() -> None:
    chain = lending_desk(whole_list=True, denied=3)
    answer = ask(chain, "nobody's", "show_loan", loan_id="LOAN-31")
    assert answer.unanswered
    assert answer.content is None


def test_a_write_on_a_thing_that_is_known_goes_as_recorded_ones_went() -> None:
    chain = lending_desk(whole_list=True, denied=3)
    renewed = ask(chain, "w3", "renew_loan", loan_id="LOAN-32")
    assert renewed.content == {"loan_id": "LOAN-32", "renewed": True}


def bank(*, to_oneself: Any) -> ChainedExperience:
    rows: list[Transition] = []
    for world in range(8):
        one, two = f"ACC-{world}1", f"ACC-{world}2"
        reads: list[Step] = [
            ("balance", {"account": name}, {"account": name, "sum": 100 + world}) for name in (one, two)
        ]
        for amount in (5, 6, 8):
            sent = {"source": one, "target": two, "amount": amount + world}
            moved: Step = ("transfer", sent, {"moved": amount + world})
            rows += episode(f"a{world}-{amount}", f"w{world}", [*reads, moved])
        if to_oneself is not None:
            own = {"source": one, "target": one, "amount": 5}
            rows += episode(f"o{world}", f"w{world}", [reads[0], ("transfer", own, to_oneself)])
    return chain_over(rows, threshold=0.5)


def test_one_thing_in_two_roles_goes_as_recordings_say() -> None:
    chain = bank(to_oneself={"error": "from and to are one"})
    same = ask(chain, "w3", "transfer", source="ACC-31", target="ACC-31", amount=5)
    other = ask(chain, "w3", "transfer", source="ACC-31", target="ACC-32", amount=5)
    assert same.content == {"error": "from and to are one"}
    assert other.content == {"moved": 5}


def test_a_transfer_goes_well_where_all_recorded_ones_did() -> None:
    chain = bank(to_oneself=None)
    assert ask(chain, "w3", "transfer", source="ACC-31", target="ACC-32", amount=9).content == {"moved": 9}


def after(chain: ChainedExperience, world: str, done: Sequence[Step], tool: str, **args: Any) -> Answer:
    """Ask after calls that were answered for real."""
    history = episode("now", world, done)
    writes = history_digest([one.call.key for one in history if one.effect is Effect.WRITE])
    situation = Situation(Environment(world), "t", "now", history, writes, ToolSpec(tool, EFFECTS[tool]))
    return asyncio.run(chain.answer(Call(tool, args), situation))


@pytest.mark.parametrize("error", ["TimeoutError: after 30 s", "502 Bad Gateway", "connection reset"])
def test_after_a_write_that_nobody_saw_end_its_record_is_not_told_as_it_was(error: str) -> None:
    chain, late = lending_desk(whole_list=True, denied=3), Answer(error=error, error_type="ToolException")
    done: Step = ("renew_loan", {"loan_id": "LOAN-32"}, late)
    assert after(chain, "w3", [done], "show_loan", loan_id="LOAN-32").unanswered
    assert after(chain, "w3", [done], "list_loans").unanswered
    shown: Step = ("show_loan", {"loan_id": "LOAN-32"}, {"loan_id": "LOAN-32", "due": 30, "open": True})
    assert after(chain, "w3", [done, shown], "show_loan", loan_id="LOAN-32").content == shown[2]


def test_a_count_is_unknown_after_a_write_that_timed_out() -> None:
    rows: list[Transition] = []
    for name in (f"{world}{number}" for world in range(8) for number in range(6)):
        loan = {"loan_id": f"LOAN-{name}"}
        before: list[Step] = [("show_loan", loan, loan), ("balance", {}, {"renewed": 0})]
        done: list[Step] = [("renew_loan", loan, loan), ("balance", {}, {"renewed": 1})]
        rows += episode(f"a{name}", f"w{name[0]}", before)
        rows += episode(f"b{name}", f"w{name[0]}", before + done) if name != "35" else []
    chain, loan = chain_over(rows, threshold=0.5), {"loan_id": "LOAN-35"}
    late = Answer(error="TimeoutError: after 30 s", error_type="ToolException")
    assert after(chain, "w3", [("renew_loan", loan, loan)], "balance").content == {"renewed": 1}
    assert after(chain, "w3", [("renew_loan", loan, late)], "balance").unanswered


def kennels() -> ChainedExperience:
    """Dogs are walked in 8 worlds, half of them after they were shown; a gate refuses every key."""
    rows: list[Transition] = []
    for world in range(8):
        for number in range(6):
            name = f"Rex{'abcdefgh'[world]}{'uvwxyz'[number]}"
            show: Step = ("show_loan", {"loan_id": name}, {"loan_id": name, "due": world})
            walk: Step = ("renew_loan", {"loan_id": name}, "walked")
            gate: Step = ("transfer", {"key": 900 + 6 * world + number}, {"error": "wrong key"})
            rows += episode(f"a{world}{number}", f"w{world}", [show, walk] if number % 2 else [walk])
            rows += episode(f"g{world}{number}", f"w{world}", [gate])
    return chain_over(rows, threshold=0.5)


def test_what_no_recording_opposes_or_shows_is_told_of_no_other_world() -> None:
    chain = kennels()
    there: Step = ("show_loan", {"loan_id": "Rexiz"}, {"loan_id": "Rexiz", "due": 9})
    denied: Step = ("show_loan", {"loan_id": "Bobby"}, {"error": "no dog called Bobby"})
    assert ask(chain, "nobody's", "transfer", key=921).unanswered
    assert after(chain, "w3", [denied], "transfer", key=921).content == {"error": "wrong key"}
    assert ask(chain, "nobody's", "renew_loan", loan_id="Bobby").unanswered
    assert after(chain, "w3", [denied], "renew_loan", loan_id="Bobby").unanswered
    assert after(chain, "nobody's", [there], "renew_loan", loan_id="Rexiz").content == "walked"


@pytest.mark.parametrize(("said", "contested"), [("ABAB", True), ("AABB", False), ("AAAA", False)])
def test_recordings_contradict_unless_a_change_at_one_time_explains_them(said: str, contested: bool) -> None:
    base, row = Base(), ("loan", value_key("L1"))
    for at, due in enumerate(said):
        shown = Fact.of("loan", "L1", {"due": due}, whole=True)
        base.add(RecordedCalls(f"e{at}", "w", (), at), [shown], lambda out: out, is_first=True)
    assert base.is_contested("w", row) is contested


def test_a_write_that_went_well_in_some_recordings_of_one_state_is_unanswered() -> None:
    rows = [
        row
        for number, said in enumerate(["done", {"error": "not permitted"}] * 2)
        for row in episode(f"e{number}", "w1", [("renew_loan", {"loan_id": "L-1"}, said)])
    ]
    assert ask(chain_over(rows, threshold=0.5), "w1", "renew_loan", loan_id="L-1").unanswered
