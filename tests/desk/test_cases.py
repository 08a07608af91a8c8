import re

import pytest
from each_row import each_row

from dreamgym_kit.recipes.desk.cases import HELD_OUT_SEEDS, TRAIN_SEEDS, make_case, split_of
from dreamgym_kit.types import Split

MANY = [
    *range(TRAIN_SEEDS.start, TRAIN_SEEDS.start + 200),
    *range(HELD_OUT_SEEDS.start, HELD_OUT_SEEDS.start + 200),
]


def test_a_known_seed_stays_what_it_was_recorded_as() -> None:
    # recordings are looked up by seed: a change of these rows makes every one of them wrong
    case = make_case(1008)
    assert (case.family, case.text) == ("double", "My name is Yara. I was charged twice for the kettle.")
    assert case.rows["customers"][0] == ("C43", "Yara", "Lyon", "gold")
    assert case.rows["payments"][-1] == ("P39", "O89", "52.60", "failed", "fast")
    assert case.rows["parcels"][-1] == ("O11", "north", "delivered")


def test_train_and_held_out_seeds_share_no_seed() -> None:
    assert TRAIN_SEEDS.stop <= HELD_OUT_SEEDS.start
    assert {split_of(seed) for seed in TRAIN_SEEDS[:9]} == {Split.TRAIN}
    assert {split_of(seed) for seed in HELD_OUT_SEEDS[:9]} == {Split.HELD_OUT}


@each_row("seed", [0, 999, 1_000_000, -1])
def test_a_seed_of_neither_side_is_refused_by_number(seed: int) -> None:
    with pytest.raises(ValueError, match=re.escape(f"desk seed {seed} is outside 1000 to 999999")):
        make_case(seed)


def test_the_customer_who_writes_is_on_the_desk_and_an_order_named_is_theirs_but_for_strangers() -> None:
    for seed in MANY:
        case = make_case(seed)
        owner = {row[0]: row[1] for row in case.rows["orders"]}
        assert case.customer_id in {row[0] for row in case.rows["customers"]}
        named = re.findall(r"O\d\d", case.text)
        assert all((owner[order] == case.customer_id) == (case.family != "stranger") for order in named)
