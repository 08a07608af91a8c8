"""A write of which nobody is sure: its doubt counts once in the answers after it, and where it belongs.

A pantry: jars have a level, lids are open or not; pouring changes a jar, and never a lid.
"""

from dataclasses import replace

import pytest

from dreamgym_kit.dream.state.dreaming import Knowledge, consider, follow
from dreamgym_kit.dream.state.history import OFF_RECORD, HistoryStep, RecordedEpisode
from dreamgym_kit.dream.state.mining import mine, pooled, renamed
from dreamgym_kit.dream.state.observed import failed
from dreamgym_kit.dream.state.values import spell
from dreamgym_kit.dream.state.views import State

DOUBT = 0.45


def step(tool, seen, **args):
    return HistoryStep(tool, args, spell(args), seen, tool == "pour", failed(seen))


def jar(name, level):
    return step("look_jar", {"jar": name, "level": level}, jar=name)


def lid(name, is_open=True):
    return step("look_lid", {"lid": name, "open": is_open}, lid=name)


def poured(name, amount):
    return step("pour", {"poured": amount}, jar=name, amount=amount)


def refused(name, amount):
    return step("pour", {"error": "not so much in it"}, jar=name, amount=amount)


@pytest.fixture(scope="module")
def pantry() -> Knowledge:
    episodes = []
    for world in range(12):
        one, top, full = f"j{world}", f"l{world}", 10 + world
        looks = (jar(one, full), lid(top))
        episodes.append(
            RecordedEpisode(f"p{world}", f"w{world}", (*looks, poured(one, 3), jar(one, full - 3), lid(top)))
        )
        episodes.append(
            RecordedEpisode(f"r{world}", f"w{world}", (*looks, refused(one, 90), jar(one, full), lid(top)))
        )
    models = mine(episodes)
    return Knowledge(models, pooled([renamed(one, models) for one in episodes], models))


def support(pantry: Knowledge, state: State, tool: str, **args: object) -> float:
    return consider(pantry, state, "never recorded", tool, args)[0][0].support


def after_a_doubtful_pour(pantry: Knowledge, *looks: HistoryStep) -> State:
    state = replace(State({}, OFF_RECORD), spoken=("Pour 3 of j77, and see l77.",))
    for one in looks:
        state = follow(pantry, state, one)
    return follow(pantry, state, poured("j77", 3), confidence=DOUBT)


def test_what_a_doubtful_write_leaves_alone_in_any_case_is_as_sure_as_before(pantry: Knowledge) -> None:
    state = after_a_doubtful_pour(pantry, jar("j77", 20), lid("l77"))
    assert support(pantry, state, "look_lid", lid="l77") > 0.8
    assert support(pantry, state, "look_jar", jar="j77") < 0.5


def test_a_doubt_counts_once_for_what_was_told_under_it(pantry: Knowledge) -> None:
    state = follow(pantry, after_a_doubtful_pour(pantry), jar("j77", 17), confidence=DOUBT)
    assert support(pantry, state, "look_jar", jar="j77") == pytest.approx(DOUBT, abs=0.02)
