"""What a dream may say only where recordings have earned it: absence, refusals, one thing in two roles.

Asked through the chain, as a run asks.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from dreamgym_kit.dream.chain import ChainedExperience, chain_over
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
    spec = ToolSpec(tool, EFFECTS[tool])
    situation = Situation(Environment(world), "t", "now", (), history_digest(()), spec)
    return asyncio.run(chain.answer(Call(tool, args), situation))


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


def test_after_a_write_that_timed_out_for_real_its_record_is_not_told_as_it_was() -> None:
    chain = lending_desk(whole_list=True, denied=3)
    late = Answer(error="TimeoutError: no answer after 30 s", error_type="TimeoutError")
    history = episode("now", "w3", [("renew_loan", {"loan_id": "LOAN-32"}, late)])
    writes = history_digest([history[0].call.key])
    spec = ToolSpec("show_loan", Effect.READ)
    situation = Situation(Environment("w3"), "t", "now", history, writes, spec)
    assert asyncio.run(chain.answer(Call("show_loan", {"loan_id": "LOAN-32"}), situation)).unanswered
