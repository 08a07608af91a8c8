"""Keys and passwords are taken out of what is written down, and nothing else is."""

import pytest
from each_row import each_row

from dreamgym_kit.replay.masking import MASK, masked, masked_answer
from dreamgym_kit.types import Answer

KEY = "sk-planted-abcdefghijklmnop"


@each_row(
    ("text", "left"),
    [
        (f"401 for {KEY}, try again", f"401 for {MASK}, try again"),
        ("Authorization: Bearer abc.def-ghi_123", f"Authorization: Bearer {MASK}"),
        ("postgres://app:hunter2@db/shop?x=1", f"postgres://app:{MASK}@db/shop?x=1"),
        ("AKIAIOSFODNN7EXAMPLE ghp_abcdefghijklmnopqrstuvwxyz", f"{MASK} {MASK}"),
        ("eyJhbGciOi.eyJzdWIiOi.c2lnbmF0dXJl", MASK),
        ("-----BEGIN PRIVATE KEY-----\nabc\n-----END PRIVATE KEY-----", MASK),
    ],
)
def test_a_key_of_a_known_form_is_masked(text: str, left: str) -> None:
    assert masked(text) == left
    assert masked(left) == left


@each_row(
    "text",
    [
        "order A-1001 was shipped with tracking 1Z999AA10123456784",
        "see https://shop.example/orders/1?page=2 or mail ada@example.com",
        "a token is a word, the password was reset, the task-list-of-the-day is long",
        "3f2504e0-4f89-11d3-9a0c-0305e82c3301",
    ],
)
def test_what_a_task_needs_is_left(text: str) -> None:
    assert masked(text) is text


def test_what_stands_under_the_name_of_a_secret_is_masked_at_any_depth() -> None:
    given = {
        "user": "ada",
        "login": [{"password": "hunter2", "api_key": "x", "page_token": "p2"}],
        "new": {"password": {"value": "hunter2", "type": "text"}, "pin": "4711"},
        "map": {"token": "ETH", "pin": {"label": "Main Street"}},
        "secret": 7,
    }
    left = given | {
        "login": [{"password": MASK, "api_key": MASK, "page_token": "p2"}],
        "new": {"password": {"value": MASK, "type": "text"}, "pin": MASK},
    }
    assert masked(given) == left


def test_the_value_of_a_secret_variable_is_masked_wherever_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_TOKEN", "no-known-form-1234")
    monkeypatch.setenv("TINY_TOKEN", "order")
    answer = masked_answer(
        Answer(content={"seen": ["no-known-form-1234", "order"]}, error="no-known-form-1234!")
    )
    assert (answer.content, answer.error) == ({"seen": [MASK, "order"]}, f"{MASK}!")


@pytest.mark.timeout(300)  # it takes a second; were it quadratic, half an hour
@pytest.mark.parametrize(
    "text",
    [
        "-eyJaaaaa" * 440_000,
        "://a:b" * 640_000,
        "eyJ" + "aaaaaa." * 560_000,
        "-----BEGIN " * 360_000 + "PRIVATE KEY",
    ],
    ids=["tokens", "urls", "dots", "headers"],
)
def test_no_text_of_a_tool_holds_the_run_up(text: str) -> None:
    masked(text)
