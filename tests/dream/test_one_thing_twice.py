"""One thing in two roles of a call: not sure, unless such calls were recorded."""

import pytest

from dreamgym_kit.dream.state.dreaming import Knowledge, Told, consider
from dreamgym_kit.dream.state.history import HistoryStep, RecordedEpisode
from dreamgym_kit.dream.state.mining import mine, pooled, renamed
from dreamgym_kit.dream.state.observed import failed
from dreamgym_kit.dream.state.values import spell
from dreamgym_kit.dream.state.worlds import start


def step(tool, seen, **args):
    return HistoryStep(tool, args, spell(args), seen, tool == "transfer", failed(seen))


def transfer(source, target, amount=5, parts=1):
    return step("transfer", {"moved": amount}, source=source, target=target, amount=amount, parts=parts)


def known(oneself: dict[str, object] | None = None) -> Knowledge:
    """Money goes from one account to another, eight worlds over; to oneself too if that is said."""
    episodes = []
    for world in range(8):
        one, two = f"a{world}", f"z{world}"
        reads = [step("balance", {"account": name, "sum": 100 + world}, account=name) for name in (one, two)]
        steps = [*reads, transfer(one, two, 5 + world, 2), *reads, transfer(two, one, 3, 1 + world)]
        for name in (one, two) if oneself is not None else ():
            steps.append(step("transfer", oneself, source=name, target=name, amount=5, parts=1))
        episodes.append(RecordedEpisode(f"e{world}", f"w{world}", tuple(steps)))
    models = mine(episodes)
    return Knowledge(models, pooled([renamed(one, models) for one in episodes], models))


def best(bank: Knowledge, source: str, target: str, amount: int = 5, parts: int = 1) -> Told:
    args = {"source": source, "target": target, "amount": amount, "parts": parts}
    return consider(bank, start(bank.pool, bank.models, "w3"), "w3", "transfer", args)[0][0]


@pytest.fixture(scope="module")
def bank() -> Knowledge:
    return known()


def test_a_transfer_to_oneself_is_not_told_where_nobody_recorded_one(bank: Knowledge) -> None:
    told = best(bank, "a3", "a3")
    assert told.support < 0.5
    assert "of calls with such a source nothing is known" in told.why


def test_a_transfer_to_another_is_told(bank: Knowledge) -> None:
    assert best(bank, "a3", "z3").support >= 0.5


def test_two_numbers_that_happen_to_be_equal_are_no_thing(bank: Knowledge) -> None:
    assert best(bank, "a3", "z3", 4, 4).support >= 0.5


@pytest.mark.parametrize("said", [{"moved": 5}, {"error": "from and to are one"}], ids=["well", "badly"])
def test_where_such_calls_were_recorded_they_are_told(said: dict[str, object]) -> None:
    told = best(known(said), "a3", "a3")
    assert (told.seen, told.support >= 0.5) == (said, True)
