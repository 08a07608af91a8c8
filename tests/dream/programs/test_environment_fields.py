"""Programs of tools that act on one kiln which no call names, asked in worlds that only a crawl has read."""

from collections import Counter
from typing import Any

import pytest

from dreamgym_kit.dream.programs.dreaming import ProgramEpisode
from dreamgym_kit.dream.programs.experience import Programs, learn
from dreamgym_kit.dream.programs.values import SeenStep
from tests.dream.programs.planted_kiln import HOTTEST, READS, Kiln, crawl, drawn_calls, recorded, specs, world

SURE = 0.5  # the threshold that runs have
NEW = range(100, 112)
"""Worlds that no recorded episode played in."""


@pytest.fixture(scope="module")
def programs() -> Programs:
    return learn([*recorded(), *map(crawl, NEW)], specs())


class Asked:
    """An episode dreamed beside the real kiln; what nobody can tell, the real kiln tells."""

    def __init__(self, programs: Programs, number: int) -> None:
        self.dream = ProgramEpisode(programs.model, world(number), programs.trust)
        self.kiln = Kiln(number)

    def __call__(self, tool: str, **args: Any) -> tuple[Any, Any]:
        real, writes = self.kiln.call(tool, args), tool not in READS
        told = self.dream.consider(tool, args)
        if told is None or told.confidence < SURE:
            seen = SeenStep(tool, args, "error" not in real, real, writes, lambda out: out)
            self.dream.observe(seen)
            return None, real
        seen = SeenStep(tool, args, told.ok, told.out, writes, told.wrap)
        self.dream.observe(seen, told.confidence)
        return told.wrap(told.out), real


def test_most_calls_are_answered_in_new_worlds_and_hardly_one_is_wrong(programs):
    wrong: list[tuple[str, Any, Any]] = []
    answered: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    for number in NEW:
        ask = Asked(programs, number)
        for tool, args in drawn_calls(number, 14):
            told, real = ask(tool, **args)
            calls[tool] += 1
            answered[tool] += told is not None
            wrong += [(tool, told, real)] * (told is not None and told != real)
    assert len(wrong) <= 0.02 * answered.total(), wrong
    assert answered.total() >= 0.7 * calls.total(), (answered, calls)


def test_a_write_is_answered_from_what_the_crawl_read_and_a_read_shows_the_write(programs):
    number = next(number for number in NEW if Kiln(number).door == "closed")
    ask = Asked(programs, number)
    for tool, args in [
        ("heat", {"degrees": 125}),
        ("read_gauge", {"gauge": "heat"}),
        ("vent", {"degrees": 30}),
        ("read_gauge", {"gauge": "heat"}),
        ("panel", {}),
    ]:
        told, real = ask(tool, **args)
        assert told == real


def test_a_refusal_rests_on_the_kiln_as_it_is_now(programs):
    number = next(number for number in NEW if Kiln(number).door == "closed")
    ask = Asked(programs, number)
    ask("open_door")
    told, real = ask("heat", degrees=125)
    assert told == real == {"error": "Close the door first."}


def test_nothing_is_said_beyond_a_limit_that_no_recording_reached(programs):
    ask = Asked(programs, next(number for number in NEW if Kiln(number).door == "closed"))
    told, real = ask("heat", degrees=HOTTEST * 4)
    assert "error" in real
    assert told in (None, real)


def test_what_depends_on_an_argument_is_no_field_of_the_environment(programs):
    names = programs.model.collections.environment.all()
    assert {"temperature", "pressure", "door", "pieces", "potter"} <= set(names)
    assert "price" not in names
    assert Asked(programs, NEW[0])("glaze_price", glaze="blue")[0] is None
