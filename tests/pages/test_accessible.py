"""Accessibility, by axe-core: no violation in any view, light and dark, wide and on a phone."""

import pytest
from pages.conftest import Opener
from pages.runs import call, double_refund, episode, many, small_run

from dreamgym_kit.types import Effect

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_no_view_has_a_violation(open_page: Opener, width: int, dark: bool) -> None:
    shown = open_page([*small_run(), *many(60)], width=width, dark=dark)
    assert shown.flaws() == []
    for hash_ in ("#e=refund-1.1&s=3", "#e=where-2.1", "#e=nobody", "#episodes"):
        shown.go(hash_)
        assert shown.flaws() == [], hash_
    shown.press("?")
    assert shown.flaws() == []


def test_a_picture_without_words_is_found(open_page: Opener) -> None:
    """The tool itself can go red here."""
    shown = open_page([double_refund(), episode("a", transitions=(call(1, "w", {}, effect=Effect.WRITE),))])
    shown.ask("document.querySelector('svg[role=img]').removeAttribute('aria-label')")
    shown.ask("document.querySelector('svg[role=img] title').remove()")
    assert any("svg-img-alt" in flaw for flaw in shown.flaws())
