"""Bar X3: nothing that a tool, a task or a model says reaches the terminal as a command to it."""

import unicodedata

from each_row import each_row
from hypothesis import given
from hypothesis import strategies as st

from dreamgym_kit.report.sanitize import clean, cut_middle, one_line, shown

ATTACKS = {
    "colour": "\x1b[31mred\x1b[0m",
    "clear screen": "\x1b[2J\x1b[H",
    "window title": "\x1b]0;owned\x07",
    "link": "\x1b]8;;http://evil\x1b\\click\x1b]8;;\x1b\\",
    "clipboard": "\x1b]52;c;cm0gLXJm\x07",
    "C1 CSI": "\x9b31mred",
    "C1 OSC": "\x9d0;owned\x9c",
    "unended OSC": "\x1b]0;never ends",
    "bell and backspace": "a\x08\x07b\x00",
    "carriage return": "harmless\rrm -rf",
    "bidi": "\u202eevil\u202c \u2066x\u2069 \u200f",
    "zero width": "a\u200bb\u200d\ufeffc\u00ad",
    "tag characters": "hi\U000e0041\U000e007f",
    "line separators": "a\u2028b\u2029c\x85d\x0be\x0cf",
}


@each_row("attack", ATTACKS.values(), ids=ATTACKS)
def test_no_control_character_but_newline_and_tab_is_left(attack: str) -> None:
    left = clean(f"before{attack}after")
    assert left.startswith("before")
    assert left.endswith("after")
    for character in left:
        assert character in "\n\t" or unicodedata.category(character) not in ("Cc", "Cf", "Zl", "Zp"), ascii(
            left
        )


def test_a_whole_sequence_goes_not_only_its_first_character() -> None:
    assert clean("\x1b[31mred\x1b[0m \x1b]8;;http://evil\x1b\\click\x1b]8;;\x1b\\ \x9b1mx") == "red click x"


def test_line_ends_become_blanks_and_blanks_stay() -> None:
    assert one_line(" a\n  b  c\td\r\ne ") == "a b  c d e"


@given(st.text())
def test_any_text_becomes_one_printable_ascii_line(text: str) -> None:
    line = one_line(text)
    assert line.isascii()
    assert line.isprintable()
    assert clean(clean(text)) == clean(text)


@given(st.text(max_size=200), st.integers(1, 90))
def test_shown_text_fits_its_width(text: str, width: int) -> None:
    assert len(shown(text, width)) <= width


def test_text_is_cut_in_the_middle() -> None:
    assert cut_middle("refund of order A-1416 refused", 20) == "refund of... refused"
    assert len(cut_middle("x" * 10_000_000, 30)) == 30
