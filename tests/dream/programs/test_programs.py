"""Programs mined from recordings of a planted shop, asked about orders that no recording wrote to."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dreamgym_kit.dream.programs.dreaming import ProgramAnswer, ProgramEpisode
from dreamgym_kit.dream.programs.experience import Programs, learn
from dreamgym_kit.dream.programs.values import SeenStep, without_defaults
from dreamgym_kit.dream.recorded_episodes import HistoryStep, RecordedEpisode
from tests.dream.programs.planted_shop import WORLD, WRITES, Shop, crawl, recorded, specs

SURE = 0.5  # the threshold that runs have


@pytest.fixture(scope="module")
def crawled() -> Programs:
    return learn([*recorded(), crawl()], specs())


@pytest.fixture(scope="module")
def uncrawled() -> Programs:
    return learn(recorded(), specs())


class Asked:
    """An episode dreamed beside the real shop."""

    def __init__(self, programs: Programs) -> None:
        self.dream, self.shop = ProgramEpisode(programs.model, WORLD, programs.trust), Shop()
        self.parameters = programs.model.parameters

    def __call__(self, tool: str, **args: Any) -> tuple[Any, Any]:
        """What the dream says (None below the threshold) and what the shop says."""
        real = self.shop.call(tool, args)
        given = without_defaults(args, self.parameters[tool].defaults)
        told: ProgramAnswer | None = self.dream.consider(tool, given)
        if told is None or told.confidence < SURE:
            self.dream.unseen(tool, given)
            return None, real
        self.dream.observe(
            SeenStep(tool, given, told.ok, told.out, tool in WRITES, told.wrap), told.confidence
        )
        return told.wrap(told.out), real


UNRECORDED = [f"o-{n:04}" for n in range(26, 38)]
"""Orders that no recorded episode names."""


def test_writes_and_reads_after_them_are_exact_on_orders_that_only_a_crawl_has_seen(crawled):
    wrong, silent, calls = [], [], 0
    for key in UNRECORDED:
        ask = Asked(crawled)
        for told, real in (
            ask("get_order", order_id=key),
            ask("update_order", order_id=key, field="note", new_value="ring twice"),
            ask("get_order", order_id=key),
            ask("cancel_order", order_id=key, reason="late"),
            ask("get_order", order_id=key),
        ):
            calls += 1
            silent += [key] * (told is None)
            wrong += [(key, told, real)] * (told is not None and told != real)
    assert not wrong
    assert len(silent) <= 0.1 * calls


def test_a_refusal_is_told_with_its_reason(crawled):
    shop = Shop()
    shipped = [key for key in UNRECORDED if shop.orders[key]["status"] == "shipped"]
    assert shipped
    for key in shipped:
        told, real = Asked(crawled)("cancel_order", order_id=key, reason="late")
        assert told == real == {"error": f"order {key} is shipped"}


def test_a_list_holds_what_the_episode_made_and_how_it_changed_the_rest(crawled):
    ask = Asked(crawled)
    for told, real in (
        ask("create_order", user_id="u-003", item="desk", qty=2),
        ask("list_orders", status="open"),
        ask("list_orders"),
    ):
        assert told == real
    told, real = ask("create_order", user_id="u-003", item="desk", qty=2)
    assert told == real, "the same order a second time is another order"


def test_a_default_said_is_a_default_left_out(crawled):
    assert Asked(crawled)("list_orders", limit=50)[0] == Asked(crawled)("list_orders")[0]


def test_nobody_is_said_not_to_exist_because_nobody_asked(uncrawled, crawled):
    told, real = Asked(uncrawled)("get_user", user_id="u-777")
    assert told is None
    told, _ = Asked(uncrawled)("cancel_order", order_id="o-7777", reason="late")
    assert told is None
    told, real = Asked(crawled)("get_order", order_id="o-0030")
    assert told == real


def test_a_choice_that_was_never_heard_is_not_accepted(crawled):
    key = next(key for key in UNRECORDED if Shop().orders[key]["status"] == "open")
    assert Asked(crawled)("cancel_order", order_id=key, reason="late")[0] is not None
    assert Asked(crawled)("cancel_order", order_id=key, reason="because I say so")[0] is None


def test_after_a_write_that_nobody_answered_its_record_is_not_known_any_more(crawled):
    key = next(key for key in UNRECORDED if Shop().orders[key]["status"] == "open")
    ask = Asked(crawled)
    assert ask("cancel_order", order_id=key, reason="because I say so")[0] is None
    assert ask("get_order", order_id=key)[0] is None


def test_what_is_mined_does_not_depend_on_the_order_of_episodes_of_one_world(crawled):
    again = learn([crawl(), *recorded()], specs())
    for key in UNRECORDED[:4]:
        calls = [("cancel_order", {"order_id": key, "reason": "late"}), ("get_order", {"order_id": key})]
        first, second = Asked(crawled), Asked(again)
        assert [first(tool, **args) for tool, args in calls] == [second(tool, **args) for tool, args in calls]


def test_what_no_recording_accounts_for_is_not_answered(crawled):
    asked = [
        ("list_orders", {"limit": 2}),  # only ever the default
        ("list_orders", {"sort": "desc"}),
        ("cancel_order", {"order_id": UNRECORDED[0], "reason": "late", "dry_run": True}),
        ("update_order", {"order_id": UNRECORDED[0], "field": "note", "new_value": "x", "notify": False}),
    ]
    dreams = [(tool, args, ProgramEpisode(crawled.model, WORLD, crawled.trust)) for tool, args in asked]
    told = [(tool, dream.consider(tool, args)) for tool, args, dream in dreams]
    assert [tool for tool, answer in told if answer is not None and answer.confidence >= SURE] == []


def test_odd_answers_are_mined_without_an_error():
    big = 1780000000000000000
    odd = [
        ("post", {"pid": big + n}, {"pid": big + n, "": n, "*": [], "text": f"post {n}", "x": float("nan")})
        for n in range(0, 9, 3)
    ]
    odd += [("write", {"pid": big, "field": ["name"], "value": {"deep": [None, {}]}}, None)]
    odd += [("post", {"pid": big}, {"pid": big, "": 10**400, "*": {}, "text": "\ud800", "x": None})]
    steps = [
        HistoryStep(tool, args, "", seen, writes=tool == "write", failed=False) for tool, args, seen in odd
    ]
    programs = learn([RecordedEpisode(f"e{n}", WORLD, tuple(steps)) for n in range(5)], {})
    dream = ProgramEpisode(programs.model, WORLD, programs.trust)
    for tool, args, _ in odd:
        dream.consider(tool, dict(args))
        dream.unseen(tool, dict(args))
    neighbour = ProgramEpisode(programs.model, WORLD, programs.trust).consider("post", {"pid": big + 1})
    assert neighbour is None or neighbour.confidence < SURE


@pytest.mark.slow
def test_answers_do_not_depend_on_how_the_process_hashes():
    code = (
        "from tests.dream.programs import test_programs as t\n"
        "programs = t.learn([*t.recorded(), t.crawl()], t.specs())\n"
        "tools = sorted(programs.model.tools.items())\n"
        "print([(name, one.tree, sorted(map(repr, one.says.items())), sorted(map(repr, one.effects.items())),"
        " one.laws, one.query) for name, one in tools])\n"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parents[3])},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in "123"
    }
    assert len(said) == 1


def test_a_read_that_every_world_answers_alike_is_answered_in_a_new_one() -> None:
    def recorded(world: int, *cities: str, rate: Callable[[int], int] = lambda _: 7) -> RecordedEpisode:
        steps = [
            HistoryStep(tool, {"city": city}, city, {tool: of(world) + len(city)}, writes=False, failed=False)
            for city in cities
            for tool, of in (("zip", lambda _: 1000), ("rate", rate))
        ]
        return RecordedEpisode(f"e{world}", f"w{world}", tuple(steps))

    cities = ("Rome", "Berlin", "Paris", "Lissabon")
    episodes = [recorded(world, *cities, rate=lambda world: world) for world in range(6)]
    programs = learn([*episodes, recorded(7, "Oslo")], {})
    dream = ProgramEpisode(programs.model, "w99", programs.trust)
    told = dream.consider("zip", {"city": "Berlin"})
    assert told is not None
    assert (told.out, told.confidence >= 0.5) == ({"zip": 1006}, True)
    other = dream.consider("rate", {"city": "Berlin"})
    assert other is None or other.confidence < 0.5
    few = [recorded(world, "Rome", *["Oslo"][: world < 2]) for world in range(3)]  # Oslo in two worlds only
    programs = learn([*few, recorded(7, "Paris")], {})
    dream = ProgramEpisode(programs.model, "w99", programs.trust)
    answers = {city: dream.consider("zip", {"city": city}) for city in ("Rome", "Oslo", "Paris")}
    assert {city for city, answer in answers.items() if answer and answer.confidence >= 0.5} == {"Rome"}
