import re

import pytest
from each_row import each_row

from dreamgym_kit.recipes.desk import cases
from dreamgym_kit.recipes.desk.cases import FAMILIES, HELD_OUT_SEEDS, TRAIN_SEEDS, make_case, split_of
from dreamgym_kit.types import Split

MANY = [
    *range(TRAIN_SEEDS.start, TRAIN_SEEDS.start + 200),
    *range(HELD_OUT_SEEDS.start, HELD_OUT_SEEDS.start + 200),
]


def test_the_same_seed_gives_the_same_desk_and_request() -> None:
    assert [make_case(seed) for seed in MANY] == [make_case(seed) for seed in MANY]


def test_a_known_seed_stays_what_it_was_recorded_as() -> None:
    # recordings are looked up by seed: a change of these rows makes every one of them wrong
    case = make_case(1008)
    assert (case.family, case.text) == ("double", "My name is Yara. I was charged twice for the kettle.")
    assert case.rows["customers"][0] == ("C43", "Yara", "Lyon", "gold")
    assert case.rows["payments"][-1] == ("P39", "O89", "52.60", "failed", "fast")
    assert case.rows["parcels"][-1] == ("O11", "north", "delivered")


def test_other_seeds_give_other_desks() -> None:
    desks = [str(make_case(seed).rows) for seed in MANY]
    assert len(set(desks)) == len(desks)


def test_train_and_held_out_seeds_share_no_seed() -> None:
    assert TRAIN_SEEDS.stop <= HELD_OUT_SEEDS.start
    assert {split_of(seed) for seed in TRAIN_SEEDS[:9]} == {Split.TRAIN}
    assert {split_of(seed) for seed in HELD_OUT_SEEDS[:9]} == {Split.HELD_OUT}


@each_row("seed", [0, 999, 1_000_000, -1])
def test_a_seed_of_neither_side_is_refused_by_number(seed: int) -> None:
    with pytest.raises(ValueError, match=re.escape(f"desk seed {seed} is outside 1000 to 999999")):
        make_case(seed)


def test_every_family_has_its_seeds() -> None:
    assert {make_case(seed).family for seed in MANY} == set(FAMILIES)


def test_all_words_of_all_desks_come_from_small_known_sets() -> None:
    ids = {*cases.CUSTOMER_IDS, *cases.ORDER_IDS, *cases.PAYMENT_IDS}
    words = {
        *cases.NAMES,
        *cases.CITIES,
        *cases.ITEMS,
        *cases.TIERS,
        *cases.STATUSES,
        *cases.AMOUNTS,
        *cases.DAYS,
    }
    states = {*cases.CARRIERS, "captured", "failed", "slow", "fast", "moving", "lost", "delivered"}
    found = {
        value for seed in MANY for rows in make_case(seed).rows.values() for row in rows for value in row
    }
    assert found <= ids | words | states
    assert len(ids | words | states) < 300


def test_numbered_words_have_one_width_and_none_is_the_start_of_another() -> None:
    for known in (cases.CUSTOMER_IDS, cases.ORDER_IDS, cases.PAYMENT_IDS, cases.AMOUNTS, cases.DAYS):
        assert len({len(word) for word in known}) == 1
        assert len(set(known)) == len(known)


def test_ids_and_names_are_unique_within_a_desk() -> None:
    for seed in MANY:
        rows = make_case(seed).rows
        for table in ("customers", "orders", "payments"):
            keys = [row[0] for row in rows[table]]
            assert len(set(keys)) == len(keys)
        names = [row[1] for row in rows["customers"]]
        assert len(set(names)) == len(names)


def test_the_customer_who_writes_is_on_the_desk_and_an_order_named_is_theirs_but_for_strangers() -> None:
    for seed in MANY:
        case = make_case(seed)
        owner = {row[0]: row[1] for row in case.rows["orders"]}
        assert case.customer_id in {row[0] for row in case.rows["customers"]}
        named = re.findall(r"O\d\d", case.text)
        assert all((owner[order] == case.customer_id) == (case.family != "stranger") for order in named)
