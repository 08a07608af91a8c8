"""Cleaning of text by itself; bar X3 holds every screen against texts that would steer a terminal."""

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from dreamgym_kit.report.sanitize import clean, cut_middle, one_line, shown


def test_a_whole_sequence_goes_not_only_its_first_character() -> None:
    assert clean("\x1b[31mred\x1b[0m \x1b]8;;http://evil\x1b\\click\x1b]8;;\x1b\\ \x9b1mx") == "red click x"
    assert clean("before\x1b]0;never ends, after").endswith("after")


def test_line_ends_become_blanks_and_blanks_stay() -> None:
    assert one_line(" a\n  b  c\td\r\ne ") == "a b  c d e"


@given(st.text())
def test_any_text_becomes_one_printable_ascii_line(text: str) -> None:
    line = one_line(text)
    assert line.isascii()
    assert line.isprintable()
    assert clean(clean(text)) == clean(text)
    kinds = {unicodedata.category(character) for character in clean(text) if character not in "\n\t"}
    assert not kinds & {"Cc", "Cf", "Zl", "Zp"}


@given(st.text(max_size=200), st.integers(1, 90))
def test_shown_text_fits_its_width(text: str, width: int) -> None:
    assert len(shown(text, width)) <= width


def test_text_is_cut_in_the_middle() -> None:
    assert cut_middle("refund of order A-1416 refused", 20) == "refund of... refused"
    assert len(cut_middle("x" * 10_000_000, 30)) == 30
