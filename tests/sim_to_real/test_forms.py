"""What is read off recorded answers, how rarely an unchanged tool leaves it, and what a new word is worth."""

import random
from collections.abc import Sequence

import pytest

from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.supervision.divergence import WRITES_MOST, Divergence, Form, Forms, Likeness
from dreamgym_kit.types import Answer, Call, Effect, Environment, Source, ToolSpec, Transition

REFUND = ToolSpec("refund", Effect.DESTRUCTIVE)
ABSTAINED = Answer(source=Source.UNANSWERED, confidence=0.0)


def told(content: JsonValue) -> Answer:
    return Answer(content=content, source=Source.REAL)


def recorded(contents: Sequence[JsonValue], *, tool: str = "refund", worlds: int = 12) -> list[Transition]:
    """One answer a call, the calls dealt out to so many worlds."""
    return [
        Transition(
            Call(tool, {"payment": f"P{number}"}),
            told(content),
            Effect.DESTRUCTIVE,
            episode=f"e{number}",
            step=1,
            environment=Environment("shop", number % worlds),
        )
        for number, content in enumerate(contents)
    ]


def states(count: int, word: str = "refunded") -> list[JsonValue]:
    return [{"payment": f"P{number}", "amount": number, "state": word} for number in range(count)]


def form_of(rows: list[Transition]) -> Form:
    return Forms({REFUND.name: rows}).of(REFUND)


def test_a_word_that_nobody_recorded_at_a_closed_place_is_new() -> None:
    form = form_of(recorded(states(24)))
    assert form.closed == {"state": frozenset({"refunded"})}
    assert form.says_new(told({"payment": "P99", "amount": 3, "state": "queued"}))
    assert not form.says_new(told({"payment": "P99", "amount": 99_999, "state": "refunded"}))


def test_what_differs_from_call_to_call_is_no_closed_place() -> None:
    rows = recorded([{"note": f"thanks, {number}", "urgent": number % 2 == 0} for number in range(40)])
    form = form_of(rows)
    assert set(form.closed) == {"urgent"}
    assert not form.says_new(told({"note": "hello", "urgent": True}))


def test_items_of_a_list_share_a_place_and_failures_are_left_as_they_are() -> None:
    rows = recorded([[{"state": "new"}, {"state": "sent"}] for _ in range(30)])
    form = form_of(rows)
    assert form.closed == {"*.state": frozenset({"new", "sent"})}
    assert form.says_new(told([{"state": "new"}, {"state": "sent"}, {"state": "lost"}]))
    assert not form.says_new(Answer(error="timed out", error_type="TimeoutError"))


def test_another_schema_leaves_the_form_as_well() -> None:
    form = form_of(recorded(states(24)))
    assert form.left_by(told({"payment": "P1", "amount": 1}))
    assert form.left_by(told({"payment": "P1", "amount": 1, "state": "queued"}))
    assert not form.left_by(told({"payment": "P1", "amount": 1, "state": "refunded"}))


def test_words_that_one_world_alone_says_make_new_words_likelier() -> None:
    sure, unsure = recorded(states(120)), recorded(states(120))
    for number in (3, 4, 5):  # three worlds, each with a word of its own
        unsure[number] = recorded(states(120, f"odd {number}"))[number]
    assert form_of(sure).new == pytest.approx(0.02)  # the least
    assert form_of(unsure).new == pytest.approx(4 / 122)


def test_siblings_do_not_make_it_surer() -> None:
    once = recorded(states(12))
    assert form_of(once * 50).new == form_of(once).new == pytest.approx(1 / 14)
    assert form_of(once * 50).strange == pytest.approx(1 / 14)


def test_where_one_world_only_was_recorded_other_calls_speak_for_a_word() -> None:
    rows = recorded(states(60), worlds=1)
    rows[7] = recorded(states(60, "odd"), worlds=1)[7]
    assert form_of(rows).new == pytest.approx(2 / 62)


def test_a_tool_with_few_recordings_is_helped_by_the_others() -> None:
    few = recorded(states(12))
    many = recorded([{"tier": "gold" if number % 2 else "basic"} for number in range(200)], tool="find")
    assert Forms({"refund": few, "find": many}).of(REFUND).new == pytest.approx(0.02)


def test_nothing_is_known_of_a_tool_that_was_hardly_recorded() -> None:
    assert form_of(recorded(states(2))) == Form()
    assert Forms({}).of(REFUND) == Form()


def divergence(rows: list[Transition], tool: str = "refund") -> Divergence:
    known = Forms({tool: rows})
    return Divergence(lambda answer, _: str(answer.content), known.of)


def expecting(word: str, support: float) -> Answer:
    return Answer(
        content={"payment": "P1", "amount": 1, "state": word}, source=Source.DERIVED, confidence=support
    )


def test_two_writes_in_a_new_word_are_enough_where_the_dream_cannot_tell() -> None:
    looked = divergence(recorded(states(120)))
    real = told({"payment": "P1", "amount": 1, "state": "queued"})
    first = looked.take(REFUND, ABSTAINED, real, where="a")
    second = looked.take(REFUND, ABSTAINED, real, where="b")
    assert (first.likeness, first.parted) == (Likeness.FORM, "")
    assert "1 real" not in second.parted
    assert "2 of 2 real answers that could be compared differ" in second.parted
    assert "2 in words never recorded" in second.parted


def test_a_dream_that_is_unsure_and_errs_in_known_words_takes_more() -> None:
    rows = recorded([*states(60), *states(60, "rejected")])
    new, known = divergence(rows), divergence(rows)
    counts = []
    for looked, word in ((new, "queued"), (known, "rejected")):
        real = told({"payment": "P1", "amount": 1, "state": word})
        taken = (
            number
            for number in range(1, 200)
            if looked.take(REFUND, expecting("refunded", 0.6), real, where=str(number)).parted
        )
        counts.append(next(taken))
    assert counts == [2, 8]


def test_a_word_that_the_dream_expected_is_not_held_against_the_tool() -> None:
    looked = divergence(recorded(states(120)))
    real = told({"payment": "P1", "amount": 1, "state": "queued"})
    for number in range(50):
        compared = looked.take(REFUND, expecting("queued", 0.95), real, where=str(number))
        assert (compared.likeness, compared.parted) == (Likeness.SAME, "")


@pytest.mark.slow
def test_a_tool_that_is_as_it_was_is_seldom_taken_for_a_changed_one() -> None:
    """Its new words as likely as its form says, and the dream wrong no oftener than it owns."""
    drawn, runs = random.Random(0), []
    rows = recorded(states(120))
    new = told({"payment": "P1", "amount": 1, "state": "queued"})
    old = told({"payment": "P1", "amount": 1, "state": "refunded"})
    for _ in range(10):
        looked = divergence(rows)
        for number in range(1, 1501):
            real = new if drawn.random() < 0.02 else old
            if looked.take(REFUND, expecting("refunded", 0.8), real, where=str(number)).parted:
                break
        runs.append(number)
    assert sum(runs) / len(runs) > WRITES_MOST
