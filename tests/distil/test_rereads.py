"""What a write changed is what the reads around it say; where nobody read again, nobody knows."""

from distil.shop_recordings import episode
from each_row import each_row

from dreamgym_kit.training.lessons import observed_changes
from dreamgym_kit.types import Answer, Call, Effect, Transition


def step(number: int, tool: str, content: object, *, write: bool = False, **args: str) -> Transition:
    effect = Effect.WRITE if write else Effect.READ
    return Transition(Call(tool, args), Answer(content), effect, "e", number)


def order(number: int, **fields: object) -> Transition:
    return step(number, "get_order", {"order_id": "o1", **fields}, order_id="o1")


def note(number: int, **args: str) -> Transition:
    return step(number, "note", "noted", write=True, **args)


LISTED = step(1, "list_orders", [{"order_id": "o1", "status": "open"}], customer_id="c1")
CANCEL = step(2, "cancel_order", "done", write=True, order_id="o1")
DONE = {"entity": "o1", "field": "status", "value": "cancelled"}
MANY = [order(1, a=1, b=1, c=1), note(2)]


@each_row(
    ("steps", "changes"),
    [
        (episode(3, 0), {2: ({**DONE, "entity": "o30"},)}),
        (episode(3, 0, again=False), {}),  # nobody read after it
        (episode(1, 0), {}),  # it was refused
        ([order(1, status="open"), note(2, order_id="o1"), order(3, status="open")], {2: ()}),
        ([order(1, status="open"), note(2, order_id="o2"), order(3, status="open")], {}),
        ([LISTED, CANCEL, order(3, status="cancelled")], {2: (DONE,)}),  # another read of the same thing
        ([order(1, status="open"), note(2), note(3), order(4, status="new")], {}),
        ([*MANY, order(3, a=2, b=2, c=2)], {}),  # more than a decision can say
        (
            [*MANY, order(3, a=2, b=2, c=1)],
            {2: tuple({"entity": "o1", "field": name, "value": 2} for name in "ab")},
        ),
    ],
)
def test_what_a_write_changed_is_the_difference_of_the_reads_around_it(
    steps: list[Transition], changes: dict[int, tuple[dict[str, object], ...]]
) -> None:
    assert observed_changes(steps) == changes
