"""Accessibility, by axe-core: no violation in any view, light and dark, wide and on a phone."""

from typing import Any

import pytest
from pages.conftest import Opener
from pages.runs import call, double_refund, episode, many, small_run

from dreamgym_kit.types import Effect

axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed")

pytestmark = pytest.mark.browser


def violations(page: Any) -> list[str]:
    found = axe.Axe().run(page).response["violations"]
    return [
        f"{one['impact']} {one['id']}: {[node['html'][:160] for node in one['nodes'][:3]]}" for one in found
    ]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_no_view_has_a_violation(open_page: Opener, width: int, dark: bool) -> None:
    shown = open_page([*small_run(), *many(60)], width=width, dark=dark)
    shown.ask("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    assert violations(shown.page) == []
    for hash_ in ("#e=refund-1.1&s=3", "#e=where-2.1", "#e=nobody"):
        shown.go(hash_)
        shown.ask("document.querySelectorAll('details').forEach(one => { one.open = true; })")
        assert violations(shown.page) == [], hash_
    shown.go("#episodes")
    shown.press("?")
    assert violations(shown.page) == []


def test_a_picture_without_words_is_found(open_page: Opener) -> None:
    """The tool itself can go red here."""
    shown = open_page([double_refund(), episode("a", transitions=(call(1, "w", {}, effect=Effect.WRITE),))])
    shown.ask("document.querySelector('svg[role=img]').removeAttribute('aria-label')")
    shown.ask("document.querySelector('svg[role=img] title').remove()")
    assert any("svg-img-alt" in one for one in violations(shown.page))
