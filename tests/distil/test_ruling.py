"""Notes by mined rules: they name the facts that decide, as the episode had told them."""

import asyncio

from distil.shop_recordings import shop

from dreamgym_kit.adapters.distilling.material import trajectories
from dreamgym_kit.training.annotation import fits
from dreamgym_kit.training.annotators import MinedRules


def test_a_note_names_the_fact_that_decides_and_what_became_of_the_call() -> None:
    every = trajectories(shop(9, 3))
    rules = MinedRules(every)
    told = {}
    for one in every:
        annotation = asyncio.run(rules.annotate(one))
        assert (annotation.by, fits(annotation, one.steps)) == ("rules", True)
        status = one.steps[0].answer.content["status"]
        told.setdefault(status, set()).add(annotation.notes[1].reasoning)
    assert told == {
        "open": {"What decides: order_id<args.order_id>.status is open; so cancel_order does it."},
        "shipped": {"What decides: order_id<args.order_id>.status is shipped; so cancel_order refuses."},
    }


def test_a_trajectory_that_was_not_mined_from_is_noted_by_what_it_says_itself() -> None:
    every = trajectories(shop(9, 3))
    annotation = asyncio.run(MinedRules(every[:-3]).annotate(every[-1]))
    assert annotation.by == "rules"
    assert fits(annotation, every[-1].steps)
    assert annotation.notes[0].reasoning == "Nothing was told of it before. get_order answers."
