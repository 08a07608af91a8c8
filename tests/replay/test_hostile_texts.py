"""Whatever reads a text of a tool, a model or a file ends on one that was made to hold it up."""

import re
from contextlib import suppress

import pytest
from bench.hostile import matchers, texts
from each_row import each_row

from dreamgym_kit.bounded_json import read_json
from dreamgym_kit.errors import NotSerializable
from dreamgym_kit.replay.redaction import PRESETS, Redactor, parse_rules


@pytest.mark.slow
@pytest.mark.timeout(120)  # the slowest takes four seconds for all its texts; were one quadratic, minutes
@pytest.mark.parametrize("name", matchers())
def test_a_matcher_ends_on_every_long_text(name: str) -> None:
    match = matchers()[name]
    for _, text in texts(20_000):
        with suppress(Exception):
            match(text)


@each_row(
    ("text", "found"),
    [
        ("write to anna.b+c@example.co.uk.", ["anna.b+c@example.co.uk"]),
        ("?to=anna%40example.com&x", ["anna%40example.com"]),
        ("a@b.c@d.e", ["a@b.c"]),
        ("anna@host, x@y", []),
        ("<anna@example.com>;bert@example.org", ["anna@example.com", "bert@example.org"]),
        ("a@b@c.de", ["b@c.de"]),
    ],
)
def test_addresses_are_found_as_before_they_were_looked_for_in_one_go(text: str, found: list[str]) -> None:
    """Held against the plain expression, which tries each letter of a long word."""
    plain = re.compile(r"[A-Za-z0-9._+-]+(?:@|%40)[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+")
    (email,) = PRESETS["email"]
    assert plain.findall(text) == email.regex.findall(text) == found


def test_values_that_begin_alike_are_all_found() -> None:
    redactor = Redactor(parse_rules(["field:name"]), key=b"k")
    redactor.learn({"name": ["Anna", "Anna Bell", "Anna Bell Cox"]})
    said = redactor.value("Anna Bell Cox and Anna Bell and Anna and Annalena")
    assert "Anna " not in str(said)
    assert str(said).endswith("and Annalena")
    assert redactor.counts == {"name": 3}


@each_row("text", ['["a\\\\"]', '["\\""]', '["]["]', '["' * 250, '["' * 250 + '\\"' * 40 + "\\", "[" * 201])
def test_brackets_in_texts_do_not_count_as_depth(text: str) -> None:
    padded = '["' + "[" * 300 + '", ' + text + "]"
    try:
        found = read_json(padded)
    except NotSerializable:
        return
    assert found[0] == "[" * 300
