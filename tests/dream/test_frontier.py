"""Which reads a crawl makes: those without arguments, then those with ids; no guess where names tell."""

from each_row import each_row

from dreamgym_kit.dream.crawl_queue import Frontier, _likeness, _Origin, words_of
from dreamgym_kit.types import Call, Effect, ToolSpec


def read(name, **args):
    properties = {key: kind if isinstance(kind, dict) else {"type": kind} for key, kind in args.items()}
    return ToolSpec(name, Effect.READ, args_schema={"properties": properties, "required": list(args)})


def crawl(frontier, world, most=200):
    """Make all calls; `world` answers a call, or None where it fails."""
    calls = []
    while (call := frontier.next()) is not None and len(calls) < most:
        calls.append(call)
        seen = world(call)
        frontier.record_answer(call, {"error": "no"} if seen is None else seen)
    return [(call.tool, *call.args.values()) for call in calls]


SHOP = (read("list_shops"), read("get_shop", shop_id="integer"), read("get_item", item_id="string"))


def shop(call):
    match call.tool, *call.args.values():
        case ["list_shops"]:
            return {"shops": [{"id": 3, "town": "Graz"}, {"id": 4, "town": "Bonn"}]}
        case ["get_shop", 3]:
            return {"id": 3, "items": {"i7": {"price": 5}, "i8": {"price": 9}}}
        case ["get_shop", 4]:
            return {"id": 4, "items": {}}
        case ["get_item", "i7" | "i8"]:
            return {"price": 5}
    return None


def test_reads_without_arguments_come_first_and_every_id_found_is_followed() -> None:
    calls = crawl(Frontier(SHOP), shop)
    assert calls[0] == ("list_shops",)
    assert {("get_shop", 3), ("get_shop", 4), ("get_item", "i7"), ("get_item", "i8")} <= set(calls)
    assert ("get_item", "Graz") not in calls
    assert len(calls) == len(set(calls))


def test_where_names_tell_nothing_a_few_values_are_tried_and_what_works_is_gone_on_with() -> None:
    people = [{"who": f"p{number}", "colour": f"c{number}", "mood": f"m{number}"} for number in range(30)]

    def world(call):
        return people if call.tool == "all" else {"ok": 1} if str(call.args["ref"]).startswith("c") else None

    calls = crawl(Frontier([read("all"), read("look", ref="string")]), world)
    tried = [value for tool, *args in calls[1:] for value in args]
    assert sum(value.startswith("c") for value in tried) == 30
    assert sum(not value.startswith("c") for value in tried) <= 4


def test_the_types_and_choices_of_the_schema_are_kept_to() -> None:
    kind = {"enum": ["open", "closed"]}
    frontier = Frontier([read("all"), read("by_kind", kind=kind), read("get_order", order_id="integer")])
    calls = crawl(frontier, lambda call: [{"order_id": 7, "kind": "odd"}, {"order_id": "x"}])
    assert set(calls) == {("all",), ("by_kind", "open"), ("by_kind", "closed"), ("get_order", 7)}


@each_row(
    ("argument", "field"),
    [
        ("sku", "skus"),
        ("sku", "SKUs"),
        ("gpu", "gpus"),
        ("url", "URLs"),
        ("menu_id", "menus"),
        ("box", "boxes"),
    ],
)
def test_a_field_in_plural_is_like_the_argument(argument: str, field: str) -> None:
    assert _likeness(argument, _Origin(field), "look") >= 2


def test_several_arguments_come_from_one_record() -> None:
    rows = [{"user_id": "u1", "room_id": "r1"}, {"user_id": "u2", "room_id": "r2"}]
    frontier = Frontier([read("all"), read("get_seat", user_id="string", room_id="string")])
    calls = crawl(frontier, lambda call: rows if call.tool == "all" else {"seat": 4})
    assert calls == [("all",), ("get_seat", "u1", "r1"), ("get_seat", "u2", "r2")]


def test_words_are_tried_kind_by_kind_until_one_works() -> None:
    words = [*(f"Name{chr(65 + number)}" for number in range(20)), "C7", "C8"]

    def world(call):
        return {"balance": 3} if str(call.args["key"]).startswith("C") else None

    calls = crawl(Frontier([read("get_card", key="string")], words), world)
    assert {("get_card", "C7"), ("get_card", "C8")} <= set(calls)
    assert len(calls) <= 10


def test_what_an_earlier_crawl_was_told_is_not_asked_again() -> None:
    whole = crawl(Frontier(SHOP), shop)
    again = Frontier(SHOP)
    for tool, *args in whole[:3]:
        spec = next(spec for spec in SHOP if spec.name == tool)
        call = Call(tool, dict(zip(spec.args_schema["required"], args, strict=True)))
        again.record_answer(call, shop(call) or {"error": "no"})
    assert sorted(map(str, [*whole[:3], *crawl(again, shop)])) == sorted(map(str, whole))


def test_the_words_of_a_task_begin_with_those_that_look_like_ids() -> None:
    assert words_of("I am Ana. Please cancel order O12, not o-13!") == ["O12", "o-13", "I", "Ana", "Please"]
