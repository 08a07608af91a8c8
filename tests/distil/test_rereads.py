"""What a write changed is what the reads around it say; where nobody read again, nobody knows."""

from distil.shop_recordings import episode

from dreamgym_kit.training.lessons import observed_changes
from dreamgym_kit.types import Answer, Call, Effect, Transition


def test_the_difference_of_the_reads_around_a_write_is_its_change() -> None:
    assert observed_changes(episode(3, 0)) == {
        2: ({"entity": "o30", "field": "status", "value": "cancelled"},)
    }


def test_a_write_that_nobody_read_after_is_not_known() -> None:
    assert observed_changes(episode(3, 0, again=False)) == {}


def test_a_refused_write_has_no_changes_to_be_known() -> None:
    assert observed_changes(episode(1, 0)) == {}


def step(number: int, tool: str, content: object, *, write: bool = False, **args: str) -> Transition:
    effect = Effect.WRITE if write else Effect.READ
    return Transition(Call(tool, args), Answer(content), effect, "e", number)


def order(number: int, **fields: object) -> Transition:
    return step(number, "get_order", {"order_id": "o1", **fields}, order_id="o1")


def test_a_read_that_says_the_same_again_shows_that_nothing_was_changed() -> None:
    noted = step(2, "note", "noted", write=True, order_id="o1")
    assert observed_changes([order(1, status="open"), noted, order(3, status="open")]) == {2: ()}


def test_that_something_else_is_as_it_was_says_nothing_of_a_write() -> None:
    noted = step(2, "note", "noted", write=True, order_id="o2")
    assert observed_changes([order(1, status="open"), noted, order(3, status="open")]) == {}


def test_another_read_of_the_same_thing_tells_as_well() -> None:
    listed = step(1, "list_orders", [{"order_id": "o1", "status": "open"}], customer_id="c1")
    cancelled = step(2, "cancel_order", "done", write=True, order_id="o1")
    told = observed_changes([listed, cancelled, order(3, status="cancelled")])
    assert told == {2: ({"entity": "o1", "field": "status", "value": "cancelled"},)}


def test_of_two_writes_between_two_reads_neither_is_known() -> None:
    writes = [step(number, "note", "noted", write=True) for number in (2, 3)]
    assert observed_changes([order(1, status="open"), *writes, order(4, status="new")]) == {}


def test_more_changes_than_a_decision_can_say_are_left_out() -> None:
    steps = [order(1, a=1, b=1, c=1), step(2, "note", "noted", write=True), order(3, a=2, b=2, c=2)]
    assert observed_changes(steps) == {}
    assert len(observed_changes([steps[0], steps[1], order(3, a=2, b=2, c=1)])[2]) == 2
