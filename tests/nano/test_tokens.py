from typing import Any

import pytest
from each_row import each_row
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("transformers", reason="the extra train is not installed")

from dreamgym_kit.recipes.nano.episodes import record
from dreamgym_kit.recipes.nano.tokens import added_tokens, build_tokenizer, ids_and_names

tokenizer: Any = build_tokenizer()


def ids_of(text: str) -> list[int]:
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False)
    return ids


@settings(max_examples=100, deadline=None)
@given(st.text())
def test_any_text_goes_there_and_back(text: str) -> None:
    assert tokenizer.decode(ids_of(text)) == text


@each_row("around", ["{}", "I am {}.", "{} here. You", 'order_id": "{}"}}\n', "no customer {}", "1{}2"])
def test_what_has_to_be_copied_is_one_token_wherever_it_stands(around: str) -> None:
    for value in ids_and_names():
        if around == "1{}2" and value[0].isdigit():
            continue  # an amount inside a longer number is another number
        assert tokenizer.convert_tokens_to_ids(value) in ids_of(around.format(value)), value


def test_no_token_stands_for_two_things_and_none_is_unreachable() -> None:
    assert len(set(added_tokens())) == len(added_tokens())
    assert all(len(ids_of(token)) == 1 for token in added_tokens())


def test_recorded_words_never_fall_back_to_bytes() -> None:
    letters = set()
    for worked in record(60, seed=5):
        for text in (
            worked.request,
            worked.last_word,
            *(told.text for each in worked.exchanges for told in each.answers),
        ):
            spelled = [tokenizer.convert_ids_to_tokens(place) for place in ids_of(text) if place < 256]
            letters |= {each for each in spelled if each.isalpha() and each.isascii()}
    assert letters <= {"I", "A", "a", "s"}  # words of one letter; "s" is the unit of seconds
