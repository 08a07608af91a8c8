"""What counts as evidence: each rule is planted with recordings that mislead whoever leaves the rule out."""

from typing import Any

from dreamgym_kit.dream.programs.dreaming import ProgramEpisode
from dreamgym_kit.dream.programs.experience import Programs, learn
from dreamgym_kit.dream.programs.trust import FEW, Trust
from dreamgym_kit.dream.recorded_episodes import RecordedEpisode
from dreamgym_kit.types import Effect, ToolSpec
from tests.dream.programs import planted_shop
from tests.dream.programs.planted_shop import PRICE, WORLD, Shop, recorded, specs

SURE = 0.5  # the threshold that runs have
UNREAD = ["o-0030", "o-0031", "o-0032"]
"""Orders that no recorded episode names."""


class TradingShop(Shop):
    """A shop that gives prices in any currency; each recorded call asked for euros."""

    def list_prices(self, currency: str, status: str | None = None) -> Any:
        rate = {"EUR": 1, "USD": 2}[currency]
        return [
            {
                "order_id": one["order_id"],
                "currency": currency,
                "status": one["status"],
                "price": PRICE * rate,
            }
            for one in self.orders.values()
            if status in (None, one["status"])
        ]


def answer(programs: Programs, tool: str, **args: Any) -> Any:
    """What a dream says at the beginning of an episode; None below the threshold."""
    told = ProgramEpisode(programs.model, WORLD, programs.trust).consider(tool, args)
    return None if told is None or told.confidence < SURE else told.wrap(told.out)


def episodes(shop: type[Shop], calls: list[list[tuple[str, dict[str, Any]]]]) -> list[RecordedEpisode]:
    plain, planted_shop.Shop = planted_shop.Shop, shop
    try:
        return [planted_shop.episode(f"planted{number}", each) for number, each in enumerate(calls)]
    finally:
        planted_shop.Shop = plain


def test_a_filter_that_rejected_no_record_is_no_evidence():
    euros = {"currency": "EUR"}
    states = [
        *["open", "shipped"] * 4,
        *(f"lost {n}" for n in range(12)),
    ]  # empty lists were recorded: believed
    asked = [[("list_prices", {**euros, "status": state})] for state in states]
    tools = specs() | {
        "list_prices": ToolSpec(
            "list_prices",
            Effect.READ,
            args_schema={"properties": {"currency": {}, "status": {"default": None}}},
        )
    }
    programs = learn([*recorded(), *episodes(TradingShop, asked)], tools)
    assert answer(programs, "list_prices", currency="EUR", status="open") == TradingShop().list_prices(
        "EUR", "open"
    )
    assert answer(programs, "list_prices", currency="USD", status="open") is None
    assert answer(programs, "list_prices", currency="USD") is None


def test_what_held_in_every_success_is_a_condition_of_success():
    only_open = [
        one
        for one in recorded()
        if not any(step.tool == "cancel_order" and isinstance(step.seen, dict) for step in one.steps)
    ]
    programs = learn([*only_open, planted_shop.crawl()], specs())
    shop, told = Shop(), {}
    for key in (f"o-{number:04}" for number in range(26, 38)):
        told.setdefault(shop.orders[key]["status"], set()).add(
            answer(programs, "cancel_order", order_id=key, reason="late") == Shop().cancel_order(key, "late")
        )
        if shop.orders[key]["status"] == "shipped":
            assert answer(programs, "cancel_order", order_id=key, reason="late") is None
    assert told["open"] == {True}
    assert "shipped" in told


def test_a_refusal_needs_a_known_fact_as_its_ground():
    wrong_keys = [[("cancel_order", {"order_id": f"o-9{n:03}", "reason": "late"})] for n in range(12)]
    unlisted = [one for one in recorded() if not any(step.tool == "list_orders" for step in one.steps)]
    unread = learn([*unlisted, *episodes(Shop, wrong_keys)], specs())
    assert [answer(unread, "cancel_order", order_id=key, reason="late") for key in UNREAD] == [None] * 3
    crawled = learn([*recorded(), *episodes(Shop, wrong_keys), planted_shop.crawl()], specs())
    shipped = next(key for key in UNREAD if Shop().orders[key]["status"] == "shipped")
    assert answer(crawled, "cancel_order", order_id=shipped, reason="late") == {
        "error": f"order {shipped} is shipped"
    }


def test_few_recordings_are_trusted_as_their_kind_until_measured_otherwise():
    trust, say = Trust(), "write{}|ok|done"
    for _ in range(20):
        trust.count("episode", "book", say.format(""), right=True)
    assert SURE < trust.confidence("cancel", say.format(FEW), 0.8) <= 0.8
    assert trust.confidence("cancel", say.format(":untried"), 0.8) < SURE  # stands otherwise than recordings
    for _ in range(3):
        trust.count("episode", "book", say.format(FEW), right=False)
    assert trust.confidence("cancel", say.format(FEW), 0.8) < SURE


class RepricedShop(Shop):
    """The shop later on: an order was shipped and a user moved up; nobody recorded how."""

    def __init__(self) -> None:
        super().__init__()
        self.orders["o-0030"]["status"], self.orders["o-0030"]["note"] = "returned", "by mail"
        self.users["u-003"]["tier"] = "silver"


def test_a_newer_recording_wins_over_an_older_one_of_the_same_question():
    asked = [[("get_order", {"order_id": "o-0030"}), ("get_user", {"user_id": "u-003"})]]
    older, newer = episodes(Shop, asked), episodes(RepricedShop, asked)
    for now, programs in (
        (RepricedShop(), learn([planted_shop.crawl(), *older, *recorded(), *newer], specs())),
        (Shop(), learn([*newer, *recorded(), *older, planted_shop.crawl()], specs())),
    ):
        for tool, args in asked[0]:
            assert answer(programs, tool, **args) == now.call(tool, args)
