"""What writes do to a read is not told where recordings contradict it; the read is unknown."""

import pytest

from dreamgym_kit.dream.state.dreaming import Knowledge, consider, follow
from dreamgym_kit.dream.state.effects import EffectRule
from dreamgym_kit.dream.state.history import HistoryStep, RecordedEpisode
from dreamgym_kit.dream.state.mining import mine, pooled
from dreamgym_kit.dream.state.observed import failed
from dreamgym_kit.dream.state.values import spell
from dreamgym_kit.dream.state.worlds import start


def step(tool, seen, **args):
    return HistoryStep(tool, args, spell(args), seen, tool == "read_one", failed(seen))


def folder(unread):
    return step("unread", {"unread": unread}, folder="in")


def box(unread_ones: int) -> Knowledge:
    """Ten mailboxes where a message was read; in some of them it had been the folder's."""
    episodes = []
    for world in range(10):
        after = 2 if world < unread_ones else 3
        steps = (folder(3), step("read_one", {"ok": True}, message=40 + world), folder(after))
        episodes.append(RecordedEpisode(f"e{world}", f"w{world}", steps))
    seen = RecordedEpisode("seen", "asked", (folder(3),))
    models = mine([*episodes, seen])
    return Knowledge(models, pooled([*episodes, seen], models))


@pytest.mark.parametrize(("unread_ones", "known"), [(0, True), (4, False)])
def test_a_read_that_a_write_left_alone_too_seldom_is_unknown_after_it(unread_ones, known) -> None:
    knowledge = box(unread_ones)
    before = start(knowledge.pool, knowledge.models, "asked")
    after = follow(knowledge, before, step("read_one", {"ok": True}, message=99))
    assert (("unread", '{"folder":"in"}') in after.views) is known
    told = consider(knowledge, after, "asked", "unread", {"folder": "in"})[0]
    assert any(one.support >= 0.5 and one.basis.startswith("view") for one in told) is known


def test_contradictions_are_counted_for_what_a_rule_says_of_either_kind_of_view() -> None:
    assert not EffectRule(program=(), same=9, changed=2).contested
    assert EffectRule(program=(), same=7, changed=2).contested
    assert not EffectRule(program=(), same=1, changed=1).contested
    assert EffectRule(program=None, right=5, wrong=3, same=9).contested
    assert not EffectRule(program=None, right=5, wrong=1, changed=6).contested
    assert EffectRule(other=7, other_same=5).contested_elsewhere
    assert not EffectRule(other=7, other_same=6).contested_elsewhere
