"""Which words a row is found by."""

from each_row import each_row

from dreamgym_kit.replay.retrieval import ASKED, MAX_TERM, MAX_TEXT, rarest, rarity, search_text, terms_of
from dreamgym_kit.types import Answer, Call, Effect, Transition


@each_row(
    ("text", "terms"),
    [
        ("Order ORD-001 arrived, damaged.", ["order", "ord-001", "arrived", "damaged"]),
        ("mail mia@example.com.", ["mail", "mia@example.com"]),
        ("Élan ÉLAN elan Straße", ["elan", "strasse"]),
        ("\ud800 \x00 § … -- @", []),
        ("a" * 500, ["a" * MAX_TERM]),
    ],
)
def test_text_becomes_terms(text: str, terms: list[str]) -> None:
    assert terms_of(text) == terms


def test_a_row_is_found_by_tool_task_arguments_and_answer() -> None:
    call = Call("get_order", {"id": "ORD-1", "deep": [{"note": "blue"}]})
    row = Transition(
        call, Answer({"total": 7.5, "paid": True}, error="late"), Effect.READ, "t.1", 1, task="t"
    )
    assert search_text(row) == "get_order get order t id ORD-1 deep note blue late total 7.5 paid"


def test_a_long_answer_is_cut() -> None:
    row = Transition(Call("a", {}), Answer(["word " * 100] * 1000), Effect.READ, "t.1", 1)
    assert len(search_text(row)) == MAX_TEXT


def test_a_question_is_asked_by_its_few_rarest_known_terms() -> None:
    rows_with = {"the": 90, "lamp": 3, "a": 80, "blue": 7, "ord-1": 1, "of": 70, "sent": 20}
    assert rarest(["the", "a", "of", "unknown", *rows_with], rows_with)[:3] == ["ord-1", "lamp", "blue"]
    assert len(rarest(list(rows_with), rows_with)) == ASKED


def test_a_term_counted_before_rows_left_still_has_a_weight() -> None:
    assert rarity(5, 9) == rarity(5, 5) > 0
    assert rarity(100, 1) > rarity(100, 50)
