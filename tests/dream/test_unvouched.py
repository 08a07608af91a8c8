"""A write on a thing that nothing names is not presumed to go well: open world, in both directions.

A kennel: dogs are looked at, fed and let out by their id; notes are free text, and boxes are made by naming
them. Its recordings are of small worlds, and the dreamed world was never recorded.
"""

from dataclasses import replace

import pytest
from each_row import each_row

from dreamgym_kit.dream.state.dreaming import Knowledge, Told, consider, follow
from dreamgym_kit.dream.state.history import OFF_RECORD, HistoryStep, RecordedEpisode
from dreamgym_kit.dream.state.mining import mine, pooled, renamed
from dreamgym_kit.dream.state.observed import failed
from dreamgym_kit.dream.state.values import spell
from dreamgym_kit.dream.state.views import State, stands_in

WRITES = ("feed", "release", "make_box")


def step(tool, seen, **args):
    return HistoryStep(tool, args, spell(args), seen, tool in WRITES, failed(seen))


def look(dog):
    return step("look", {"dog": dog, "kind": "dog"}, dog=dog)


def fed(dog, note):
    return step("feed", {"fed": dog, "note": note}, dog=dog, note=note)


def released(dog):
    return step("release", {"released": dog}, dog_id=dog)


@pytest.fixture(scope="module")
def kennel() -> Knowledge:
    episodes = []
    for world in range(10):
        dog, name = f"d{world}", f"w{world}"
        episodes.append(RecordedEpisode(f"f{world}", name, (look(dog), fed(dog, f"note {world * 7}"))))
        episodes.append(RecordedEpisode(f"r{world}", name, (look(dog), released(dog))))
        made = step("make_box", {"box": f"b{world}", "made": True}, box=f"b{world}")
        episodes.append(RecordedEpisode(f"m{world}", name, (made,)))
    models = mine(episodes)
    return Knowledge(models, pooled([renamed(one, models) for one in episodes], models))


NEW = State({}, OFF_RECORD)


def best(kennel: Knowledge, state: State, tool: str, **args: object) -> Told:
    return consider(kennel, state, "never recorded", tool, args)[0][0]


def after(kennel: Knowledge, *steps: HistoryStep) -> State:
    state = NEW
    for one in steps:
        state = follow(kennel, state, one)
    return state


@pytest.mark.parametrize(
    ("tool", "args"), [("feed", {"dog": "d77", "note": "note 3"}), ("release", {"dog_id": "d77"})]
)
def test_nobody_vouches_for_a_thing_in_a_world_that_nobody_recorded(kennel, tool, args) -> None:
    told = best(kennel, NEW, tool, **args)
    assert told.support < 0.5
    assert told.why.endswith(f"but of calls with such a {next(iter(args))} nothing is known")


@pytest.mark.parametrize(
    "state",
    [
        replace(NEW, spoken=("Let out", "please see to dog D77.")),
        replace(NEW, spoken=('{"dogs": ["d77"]}',)),
    ],
    ids=["in a sentence", "in a list"],
)
def test_what_the_task_names_is_presumed_to_be_there(kennel: Knowledge, state: State) -> None:
    assert best(kennel, state, "release", dog_id="d77").support >= 0.5
    assert best(kennel, state, "release", dog_id="d7").support < 0.5


def test_a_thing_in_another_role_is_none_that_a_reference_is_to(kennel: Knowledge) -> None:
    """ "dog" is known in this world, as a kind: nobody was ever let out by that."""
    known = after(kennel, look("d77"))
    assert best(kennel, known, "release", dog_id="d77").support >= 0.5
    told = best(kennel, known, "release", dog_id="dog")
    assert told.support < 0.5
    assert told.why.endswith("but of calls with such a dog_id nothing is known")


def test_a_free_text_may_say_what_something_else_is(kennel: Knowledge) -> None:
    known = after(kennel, look("d77"))
    assert best(kennel, known, "feed", dog="d77", note="dog").support >= 0.5


@each_row("worlds", [12, 40])  # of many, the answers agree as a catalogue's do
def test_that_other_worlds_have_one_of_that_id_is_no_voucher_for_a_write(worlds: int) -> None:
    """A write that says what it was told answers alike in all worlds, and is no catalogue for that."""
    episodes = []
    for world in range(worlds):
        dog, name = f"d{world % 4}", f"w{world}"
        episodes.append(RecordedEpisode(f"r{world}", name, (look(dog), released(dog))))
        episodes.append(
            RecordedEpisode(f"l{world}", name, tuple(look(f"e{world}{place}") for place in range(5)))
        )
    models = mine(episodes)
    shelter = Knowledge(models, pooled([renamed(one, models) for one in episodes], models))
    other = after(shelter, *(look(f"k{place}") for place in range(6)))
    assert best(shelter, other, "release", dog_id="k3").support >= 0.5
    told = best(shelter, other, "release", dog_id="d2")
    assert told.support < 0.5, told


def test_what_was_only_presumed_vouches_for_nothing(kennel: Knowledge) -> None:
    guessed = follow(kennel, NEW, released("d77"), confidence=0.45)
    assert best(kennel, guessed, "feed", dog="d77", note="supper").support < 0.5
    told = follow(kennel, NEW, released("d77"))
    assert best(kennel, told, "feed", dog="d77", note="supper").support >= 0.5


def test_that_other_worlds_have_a_thing_of_that_id_does_not_say_that_this_one_has(kennel: Knowledge) -> None:
    episodes = []
    for world in range(12):
        dog = f"d{world % 3}"  # the same few ids everywhere, and not the same dogs
        kind = step("look", {"dog": dog, "kind": f"kind {world}"}, dog=dog)
        one = (kind, step("feed", {"fed": dog, "left": world == 11}, dog=dog))
        episodes.append(RecordedEpisode(f"e{world}", f"w{world}", one))
    models = mine(episodes)
    known = Knowledge(models, pooled([renamed(one, models) for one in episodes], models))
    assert models.everywhere["feed", spell({"dog": "d1"})].total() == 4
    found = consider(known, NEW, "never recorded", "feed", {"dog": "d1"})[0]
    assert all(one.support < 0.5 for one in found)


def test_what_a_read_told_is_there(kennel: Knowledge) -> None:
    assert best(kennel, after(kennel, look("d77")), "release", dog_id="d77").support >= 0.5


def test_a_thing_that_the_call_makes_and_a_free_text_need_nobody_to_name_them(kennel: Knowledge) -> None:
    assert best(kennel, NEW, "make_box", box="b99").support >= 0.5
    assert best(kennel, after(kennel, look("d77")), "feed", dog="d77", note="what nobody said").support >= 0.5


def test_a_write_that_said_there_is_no_such_thing_is_heard(kennel: Knowledge) -> None:
    named = replace(NEW, spoken=("Feed d77 and d78.",))
    refused = step("feed", {"error": "no dog called d77"}, dog="d77", note="supper")
    state = replace(after(kennel, refused), spoken=named.spoken)
    assert best(kennel, named, "release", dog_id="d77").support >= 0.5
    assert best(kennel, state, "release", dog_id="d77").support < 0.5
    assert best(kennel, state, "release", dog_id="d78").support >= 0.5


@pytest.mark.parametrize("error", ["d77 was fed already", "the gateway timed out"])
def test_a_failure_that_does_not_say_so_denies_nothing(kennel: Knowledge, error: str) -> None:
    refused = step("feed", {"error": error}, dog="d77", note="supper")
    state = replace(after(kennel, refused), spoken=("Feed d77.",))
    assert best(kennel, state, "release", dog_id="d77").support >= 0.5


@each_row(
    ("text", "said", "stands"),
    [
        ("O-1", "Cancel O-1, please", True),
        ("o-1", "Cancel O-1.", True),
        ("O-1", "Cancel O-12", False),
        ("O", "Cancel O-1", False),
        ("1", "Cancel O-1", False),
        ("ana@shop.com", "mail ana@shop.com", True),
        ("shop.com", "mail ana@shop.com", False),
        ("a.b", "axb", False),
    ],
)
def test_a_value_is_named_as_a_word_of_its_own(text: str, said: str, stands: bool) -> None:
    assert stands_in(text, said) == stands
