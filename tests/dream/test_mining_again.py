"""Mining again when rows were added: the models of mining all at once, without walking all worlds again."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dreamgym_kit.dream.state.audit import Learner, learn
from dreamgym_kit.dream.state.dreaming import Knowledge, replay
from dreamgym_kit.dream.state.history import HistoryStep, RecordedEpisode
from dreamgym_kit.dream.state.mining import Miner, mine, pooled, renamed
from dreamgym_kit.dream.state.models import ToolModels
from dreamgym_kit.dream.state.observed import failed
from dreamgym_kit.dream.state.values import spell
from dreamgym_kit.dream.state.worlds import start


def door(world: int, number: int, calls: str) -> RecordedEpisode:
    """A door that is looked at (l), opened (o) and closed (c); opening twice fails."""
    opened, uses, steps = False, world % 4, []
    for call in calls:
        tool = {"l": "look", "o": "open_door", "c": "close_door"}[call]
        args = {"door": f"d{world}"}
        seen: object = {"door": f"d{world}", "open": opened, "uses": uses}
        if call == "o" and opened:
            seen = {"error": f"d{world} is open already"}
        elif call != "l":
            opened, uses = call == "o", uses + 1
            seen = {"done": tool, "uses": uses}
        steps.append(HistoryStep(tool, args, spell(args), seen, call != "l", failed(seen)))
    return RecordedEpisode(f"e{number}", f"w{world}", tuple(steps))


WALKS = ("lollcl", "loool", "llclol", "ocl", "lol")
EPISODES = [door(world, number, calls) for world in range(18) for number, calls in enumerate(WALKS)]


def said(models: ToolModels) -> list[object]:
    """All that a model says, also of its own support."""
    known = Knowledge(models, pooled([renamed(one, models) for one in EPISODES[::2]], models))
    told = [replay(known, start(known.pool, models, one.world), one) for one in EPISODES[1:40:2]]
    return [
        *(models.left_alone, models.common, models.absences, models.usual, models.steady),
        *(models.everywhere, models.agreement, models.trees, models.transitions, told),
    ]


@pytest.mark.slow
@given(st.permutations(range(len(EPISODES))), st.lists(st.integers(1, len(EPISODES)), max_size=2))
@settings(max_examples=5, deadline=None)
def test_mining_in_steps_is_mining_at_once(order: list[int], cuts: list[int]) -> None:
    """Rows come in any order, new ones of old worlds too, and some are taken away again."""
    episodes = [EPISODES[place] for place in order]
    miner = Miner()
    for cut in cuts:
        miner.mine(episodes[:cut])
    assert said(miner.mine(episodes)) == said(mine(episodes))


def test_worlds_are_walked_again_when_the_rules_change_that_they_were_walked_by() -> None:
    """First nothing is read after a write. What it does is learned in early worlds and used in late ones."""
    before = [
        door(world, number, calls) for world in range(18) for number, calls in enumerate(("loo", "occ"))
    ]
    later = [
        door(world, 5 + number, calls) for world in range(8) for number, calls in enumerate(("lolcl", "lcl"))
    ]
    miner = Miner()
    assert said(miner.mine(before)) != said(mine([*before, *later]))
    assert said(miner.mine([*before, *later])) == said(mine([*before, *later]))
    assert miner.walked == 3 * 12 - 4 + 6, (
        "four of the first twelve have no new rows for the pass without rules"
    )


@pytest.mark.slow
@pytest.mark.parametrize("cut", [3, 64, 81])
def test_what_is_added_is_mined_as_if_it_had_been_there(cut: int) -> None:
    """Also episodes of the first worlds, by whose rules others were walked before."""
    episodes = sorted(EPISODES, key=lambda one: one.id)
    miner = Miner()
    miner.mine(episodes[:cut])
    assert said(miner.mine(episodes)) == said(mine(episodes))


def test_only_what_was_added_is_walked() -> None:
    miner = Miner()
    miner.mine(EPISODES[:-15])
    assert miner.walked == 3 * 12 + 3
    miner.mine(EPISODES)
    assert miner.walked == 3, "three worlds are new"
    miner.mine([*EPISODES, door(17, 9, "lcl")])
    assert miner.walked == 1, "one old world has a new episode"
    miner.mine([*EPISODES, door(17, 9, "lcl")])
    assert miner.walked == 0


@pytest.mark.slow
@pytest.mark.parametrize("cut", [40])
def test_learning_in_steps_calibrates_alike(cut: int) -> None:
    learner = Learner()
    learner.learn(EPISODES[:cut])
    assert learner.learn(EPISODES).calibration == learn(EPISODES).calibration
