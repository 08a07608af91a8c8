"""Where the dream has to doubt: contradicting recordings, failures by habit, calls unlike all that went well.

A vault that exists only here. Boxes can be looked at and paid into. Some boxes are slow, which nothing shows:
paying into them ends in a time-out. Keys open the vault; recorders only ever tried made-up ones.
"""

import pytest

from dreamgym_kit.dream.state.candidates import CONTESTED, PRESUMED
from dreamgym_kit.dream.state.dreaming import Knowledge, Told, consider
from dreamgym_kit.dream.state.history import HistoryStep, RecordedEpisode
from dreamgym_kit.dream.state.mining import mine, pooled, renamed
from dreamgym_kit.dream.state.observed import failed
from dreamgym_kit.dream.state.values import spell
from dreamgym_kit.dream.state.worlds import start

WRITES = ("pay", "open_vault", "name_box")


def step(tool, seen, **args):
    return HistoryStep(tool, args, spell(args), seen, tool in WRITES, failed(seen))


def worked(world):
    boxes = [f"b{world}{place}" for place in range(4)]
    look = [step("look", {"box": box, "sum": 10 * world + place}, box=box) for place, box in enumerate(boxes)]
    listed = step("list_boxes", [{"box": box} for box in boxes])
    pays = []
    for place, box in enumerate(boxes):
        slow = (world + place) % 3 == 0
        paid = {"error": "timeout"} if slow else {"paid": 1 + place}
        pays.append([*look, step("pay", paid, box=box, amount=1 + place)])
    strange = [
        step("pay", {"error": f"no box x{world}{number}"}, box=f"x{world}{number}", amount=2)
        for number in range(2)
    ]
    names = [step("name_box", {"box": box, "name": f"n{box}"}, box=box, name=f"n{box}") for box in boxes]
    keys = [step("open_vault", {"error": "wrong key"}, key=f"k{world}{number}") for number in range(3)]
    return [
        RecordedEpisode(f"e{world}-{number}", f"w{world}", tuple(steps))
        for number, steps in enumerate([[listed, *look], *pays, [*look, *strange], [*look, *names], keys])
    ]


@pytest.fixture(scope="module")
def vault() -> Knowledge:
    episodes = [one for world in range(10) for one in worked(world)]
    models = mine(episodes)
    crawled = [worked(world)[0] for world in (40, 41)]
    partly = worked(42)[0]  # two of its four boxes, and not their list
    crawled.append(RecordedEpisode(partly.id, partly.world, partly.steps[1:3]))
    return Knowledge(models, pooled([renamed(one, models) for one in [*episodes, *crawled]], models))


def best(vault: Knowledge, tool: str, world: str = "w40", **args: object) -> Told:
    return consider(vault, start(vault.pool, vault.models, world), world, tool, args)[0][0]


def test_recordings_that_contradict_each_other_are_no_answer(vault: Knowledge) -> None:
    told = best(vault, "pay", box="b401", amount=2)
    assert told.basis == CONTESTED
    assert told.support < 0.5
    assert "another one" in told.why


def test_a_failure_that_calls_always_had_is_only_presumed(vault: Knowledge) -> None:
    """Recorders had no right key. That says nothing about the key that the agent was given."""
    told = best(vault, "open_vault", key="the agent's own")
    assert (told.basis, told.seen) == (PRESUMED, {"error": "wrong key"})
    assert told.support < 0.5


def test_an_absence_is_claimed_where_the_read_that_shows_such_values_is_known(vault: Knowledge) -> None:
    told = best(vault, "pay", box="x99", amount=2)
    assert told.seen == {"error": "no box x99"}
    assert told.basis == "rule"


def test_an_absence_is_not_claimed_in_a_world_that_nobody_has_seen(vault: Knowledge) -> None:
    assert best(vault, "pay", "a new one", box="x99", amount=2).support < 0.5


def test_an_absence_is_not_claimed_in_a_world_that_is_known_in_part(vault: Knowledge) -> None:
    """The box is there: whoever read this world has not come to it."""
    assert best(vault, "pay", "w42", box="b423", amount=2).support < 0.5


@pytest.mark.parametrize("name", ["", "a new name"])
def test_a_text_of_any_kind_is_put_where_the_argument_goes(vault: Knowledge, name: str) -> None:
    told = best(vault, "name_box", box="b401", name=name)
    assert told.seen == {"box": "b401", "name": name}
    assert told.support > 0.5


@pytest.mark.parametrize(
    ("args", "strange"), [({"box": "b401", "name": 7}, "name"), ({"box": "zz", "name": "nz"}, "box")]
)
def test_a_call_unlike_all_that_went_well_is_not_presumed_to_go_well(
    vault: Knowledge, args: dict[str, object], strange: str
) -> None:
    """A number where texts were, and a box that a well-known world has never named."""
    told = best(vault, "name_box", **args)
    assert told.basis == CONTESTED
    assert told.support < 0.5
    assert told.why.endswith(f"but of calls with such a {strange} nothing is known")
