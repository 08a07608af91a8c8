"""A decision in words: what is said is read back, and what is no decision is refused with the reason."""

import pytest
from each_row import each_row
from hypothesis import given
from hypothesis import strategies as st

from dreamgym_kit.dream.learned.vocabulary import CallDecision, UnreadableDecision, read_decision

names = st.text("abc._~", min_size=1, max_size=5).filter(lambda text: text != "=>")
pairs = st.tuples(names, names)


@given(st.lists(pairs, max_size=3), names)
def test_what_is_said_is_read_back(why: list[tuple[str, str]], outcome: str) -> None:
    said = CallDecision(tuple(why), outcome)
    assert read_decision(" ".join(said.words())) == said


@each_row(
    ("text", "wrong"),
    [
        ("", "a decision has '=>' once, not 0 times"),
        ("=> ok => ok", "not 2 times"),
        ("order.status => ok", "at most 3 pairs, not 1 words"),
        ("a b c d e f g h => ok", "at most 3 pairs, not 8 words"),
        ("a b =>", "stands one outcome, not 0 words"),
        ("=> ok set a b", "stands one outcome, not 4 words"),
    ],
)
def test_what_is_no_decision_is_named(text: str, wrong: str) -> None:
    with pytest.raises(UnreadableDecision, match=wrong.replace("(", r"\(")):
        read_decision(text)
