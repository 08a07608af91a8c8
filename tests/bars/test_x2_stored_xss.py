"""X2: 100 payloads in every text of a run: the page shows them and builds nothing from them.

The file's own markup is held by tests/pages/test_document.py; here a browser draws the page, opens all of
it, and every element and attribute in it is compared with those of a harmless run.
"""

from collections.abc import Iterable
from typing import Any

import pytest
from pages.conftest import Opener, Shown, chromium, open_page  # noqa: F401  fixtures
from pages.payloads import HIDDEN, PAYLOADS
from pages.runs import hostile
from pages.walking import walked

from dreamgym_kit.report.page import writing

pytestmark = pytest.mark.browser


def harmless() -> list[str]:
    return [f"word {number}" for number in range(len(PAYLOADS))]


def foreign(open_: Opener, texts: Iterable[str]) -> tuple[list[str], Shown, dict[str, Any]]:
    """What a run of these texts adds to the elements and attributes of a harmless one."""
    usual = set(walked(open_(hostile(harmless())).page)["found"])
    shown = open_(hostile(list(texts)))
    walk = walked(shown.page)
    return sorted(set(walk["found"]) - usual), shown, walk


def test_x2_no_payload_becomes_an_element_an_attribute_or_a_request(open_page: Opener) -> None:  # noqa: F811
    added, shown, walk = foreign(open_page, PAYLOADS)
    print(f"x2: {len(PAYLOADS)} payloads, {walk['opened']} episodes opened, {len(added)} foreign")
    assert len(PAYLOADS) == 100
    assert walk["opened"] == 100
    assert added == []
    assert not any(name.startswith("BAD") for name in walk["found"])
    assert walk["hurt"] == 0
    assert shown.text("#episode h1") == "No episode has that name"
    shown.quiet()


def test_x2_hidden_characters_are_made_visible(open_page: Opener) -> None:  # noqa: F811
    shown = open_page(hostile([HIDDEN]), hash_="#episodes")
    shown.page.click(".ep a")
    shown.settle()
    text = shown.text("body") + shown.page.title()
    assert not set(text) & {char for char in HIDDEN if not char.isascii() or not char.isprintable()}
    assert "\u27e8202e\u27e9" in text
    assert "\u27e8e0041\u27e9" in text
    shown.quiet()


@pytest.mark.nightly
def test_x2_a_planted_inner_html_is_found(open_page: Opener, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    honest = writing.script_text()
    planted = honest.replace(
        "node.append(child.nodeType ? child : plain(child));",
        "if (child.nodeType) node.append(child); else node.innerHTML += child;",
    )
    assert planted != honest
    monkeypatch.setattr(writing, "script_text", lambda: planted)
    added, shown, walk = foreign(open_page, PAYLOADS[:20])
    assert added
    assert any(name.startswith("BAD") for name in walk["found"])
    assert "http://127.0.0.1:9/" in shown.requests  # the page would have left for it
