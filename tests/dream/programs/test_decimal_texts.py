"""Amounts that are decimal texts are added, multiplied and compared as the tools' own code does."""

from typing import Any

import pytest

from dreamgym_kit.dream.programs import notation
from dreamgym_kit.dream.programs.conditions import InRange, Less
from dreamgym_kit.dream.programs.dreaming import ProgramEpisode
from dreamgym_kit.dream.programs.experience import Programs, learn
from dreamgym_kit.dream.programs.forms import Arithmetic, Decimals, Get, Program
from dreamgym_kit.dream.programs.scope import Scope
from dreamgym_kit.dream.programs.synthesis import explain
from dreamgym_kit.dream.programs.values import UNKNOWN, SeenStep
from tests.dream.programs.planted_ferry import WRITES, Ferry, recorded, specs, world
from tests.each_row import each_row

SURE = 0.5  # the threshold that runs have
NEW = range(60, 68)
"""Worlds that no recorded episode played in."""


@pytest.fixture(scope="module")
def programs() -> Programs:
    return learn(recorded(), specs())


class Asked:
    """An episode dreamed beside the real office; what nobody can tell, the office tells."""

    def __init__(self, programs: Programs, number: int, cargoes: int = 1) -> None:
        self.dream = ProgramEpisode(programs.model, world(number), programs.trust)
        self.ferry = Ferry(number, cargoes)

    def __call__(self, tool: str, **args: Any) -> tuple[Any, Any]:
        real = self.ferry.call(tool, args)
        told = self.dream.consider(tool, args)
        if told is None or told.confidence < SURE:
            self.dream.observe(
                SeenStep(tool, args, "error" not in real, real, tool in WRITES, lambda out: out)
            )
            return None, real
        seen = SeenStep(tool, args, told.ok, told.out, tool in WRITES, told.wrap)
        self.dream.observe(seen, told.confidence)
        return told.wrap(told.out), real


def test_amounts_that_are_texts_are_added_to_the_cent_in_worlds_that_were_never_recorded(programs):
    for number in NEW:
        ask, bill = Asked(programs, number), f"B{number}0"
        ask("list_bills", cargo_id=f"C{number}0")
        for amount in ("10.10", "3.07", "12.90"):
            told, real = ask("pay_bill", bill_id=bill, amount=amount)
            assert told == real


def test_an_amount_above_another_is_refused_by_its_number_and_not_by_its_letters(programs):
    for number in NEW:
        ask, bill = Asked(programs, number), f"B{number}0"
        ask("list_bills", cargo_id=f"C{number}0")
        told, real = ask("pay_bill", bill_id=bill, amount="150.00")
        assert "error" in real
        assert told == real


def test_a_rate_that_is_a_text_is_multiplied(programs):
    for number in NEW:
        ask, cargo = Asked(programs, number), f"C{number}0"
        ask("get_cargo", cargo_id=cargo)
        told = ask.dream.consider("quote", {"cargo_id": cargo, "crates": 17})  # at whatever confidence
        assert told is not None
        assert told.out == ask.ferry.quote(cargo, 17)


def test_a_list_is_not_the_one_of_another_argument_where_each_recorded_world_has_only_one(programs):
    for number in NEW:
        ask = Asked(programs, number, cargoes=2)
        ask("list_bills", cargo_id=f"C{number}0")
        told, real = ask("list_bills", cargo_id=f"C{number}1")
        assert len(real) == 1
        assert told in (None, real)


def examples(*rows: tuple[str | float, str | float, str | float]) -> list[tuple[Scope, Any]]:
    return [(Scope({"old": old, "args.amount": amount}), out) for old, amount, out in rows]


@each_row(
    "rows, asked, wanted",
    [
        ([("0.10", "0.20", "0.30"), ("5.05", "1.15", "6.20"), ("0.00", "9.99", "9.99")], ("1.1", "2.25"), "3.35"),  # noqa: E501
        ([(1.5, "0.25", 1.75), (2.5, "1.10", 3.6), (9.0, "3.30", 12.3)], (4.4, "0.11"), 4.51),
        ([("8.500", 0.25, "8.250"), ("2.500", 1.125, "1.375"), ("9.000", 3, "6.000")], ("7.001", 2), "5.001"),
        ([("-1.50", "4.00", "2.50"), ("-3.25", "1.00", "-2.25"), ("7.00", "-1.50", "5.50")], ("-1.00", "0.10"), "-0.90"),  # noqa: E501
    ],
)  # fmt: skip
def test_arithmetic_on_decimal_texts_is_exact_and_keeps_the_decimals(rows, asked, wanted):
    form = explain(examples(*rows))
    assert form is not None
    assert form(Scope({"old": asked[0], "args.amount": asked[1]})) == wanted
    assert notation.read(notation.write(form), Program) == form


@each_row("digits", [("04109", "10115", "14224"), ("1.2.3", "2.0.1", "3.2.4"), ("01.50", "02.25", "03.75")])
def test_codes_of_digits_are_no_numbers(digits):
    left, right, total = digits
    form = Arithmetic("+", Get(("old",)), Get(("args.amount",)))
    scope = Scope({"old": left, "args.amount": right})
    assert form(scope) is UNKNOWN
    assert Less("old", "args.amount")(scope) is UNKNOWN
    assert InRange("old", 0, 1e9)(scope) in (UNKNOWN, left.isdecimal())
    found = explain(examples((left, right, total), ("20000", "30000", "50000")))
    assert found is None or found(Scope({"old": "11111", "args.amount": "22222"})) != "33333"


def test_half_a_cent_goes_to_the_even_digit():
    form = Decimals(Arithmetic("*", Get(("rate",)), Get(("qty",))), 2)
    texts = [
        form(Scope({"rate": rate, "qty": qty})) for rate, qty in (("0.335", 1), ("0.345", 1), ("2.675", 1))
    ]
    assert texts == ["0.34", "0.34", "2.68"]
    assert form(Scope({"rate": float("inf"), "qty": 1})) is UNKNOWN
