import pytest

pytest.importorskip("torch", reason="the extra train is not installed")

from dreamgym_kit.recipes.desk.cases import FAMILIES, TRAIN_SEEDS, make_case, split_of
from dreamgym_kit.recipes.desk.policy import Habits
from dreamgym_kit.recipes.nano.episodes import Worked, work
from dreamgym_kit.recipes.nano.score import Failure, Played, failure_of, held_out_worlds, summarise
from dreamgym_kit.recipes.nano.tokens import NanoTurn
from dreamgym_kit.types import Split


def played(worked: Worked, *, solved: bool | None = None, instead: dict[str, str] | None = None) -> Played:
    """What a colleague did, as if a model had; `instead` says other arguments of its last call."""
    turns = [
        (NanoTurn(tuple((use.tool, dict(use.args)) for use in each.turn.uses), each.turn.text), each.answers)
        for each in worked.exchanges
    ]
    if instead is not None:
        said, told = turns[-1]
        turns[-1] = (NanoTurn(((said.calls[-1][0], instead),), ""), told)
    row = Played(make_case(worked.seed), [1, 2], [False, True], [0.0, -0.5], turns, worked.last_word)
    row.solved = worked.solved if solved is None else solved
    return row


def world(family: str, *, junior_fails: bool = True) -> int:
    return next(
        seed
        for seed in TRAIN_SEEDS
        if make_case(seed).family == family and work(seed, Habits("junior")).solved is not junior_fails
    )


def test_held_out_worlds_are_held_out_and_every_family_is_in_them_alike() -> None:
    worlds = held_out_worlds(2)
    assert {split_of(seed) for seed in worlds} == {Split.HELD_OUT}
    assert sorted(make_case(seed).family for seed in worlds) == sorted([*FAMILIES, *FAMILIES])


def test_a_solved_episode_has_no_failure() -> None:
    assert failure_of(played(work(world("late"), Habits()))) is None


def test_who_skips_the_check_left_out_a_look() -> None:
    assert failure_of(played(work(world("late"), Habits("junior")))) is Failure.SKIPPED_LOOK


def test_who_decides_otherwise_after_all_looks_decided_otherwise() -> None:
    gold = world("complaint")
    assert failure_of(played(work(gold, Habits("junior")))) is Failure.DECISION


def test_an_id_that_nobody_told_is_invented() -> None:
    right = work(world("complaint", junior_fails=False), Habits())
    told = right.exchanges[0].answers[0].text
    invented = "C10" if "C10" not in told else "C11"
    row = played(right, solved=False, instead={"customer_id": invented, "topic": "complaint"})
    assert failure_of(row) is Failure.INVENTED


def test_right_tools_with_a_wrong_value_are_told_apart() -> None:
    right = work(world("address", junior_fails=False), Habits())
    assert failure_of(played(right, solved=False)) is Failure.ARGUMENTS


def test_an_episode_without_a_last_word_came_to_no_end() -> None:
    row = played(work(world("late"), Habits()), solved=False)
    row.last_word = None
    assert failure_of(row) is Failure.NO_END


def test_shares_are_of_all_episodes_and_families_of_their_own() -> None:
    gold, late = world("complaint"), world("late")
    rows = [played(work(gold, Habits("junior"))), played(work(gold, Habits())), played(work(late, Habits()))]
    score = summarise(rows, 1.5)
    assert (score.episodes, score.solved, score.by_family) == (3, 2 / 3, {"late": 1.0, "complaint": 0.5})
    assert score.failures[str(Failure.DECISION)] == 1 / 3
    assert sum(score.failures.values()) == pytest.approx(1 - score.solved)
