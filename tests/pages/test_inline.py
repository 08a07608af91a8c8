"""The page in a notebook: it works in its frame, reaches nothing outside, and its text stays without it."""

import base64
import shlex
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from each_row import each_row
from pages.conftest import PATIENCE_MS
from pages.payloads import PAYLOADS
from pages.runs import call, episode, run_directory

from dreamgym_kit.report.page import writing as inlining
from dreamgym_kit.report.page.writing import inline

ELEMENTS = {"details", "summary", "pre", "iframe", "p", "code"}


class Seen(HTMLParser):
    """The elements and attributes of a cell's output."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.frame: dict[str, str] = {}
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        if tag == "iframe":
            self.frame = {name: value or "" for name, value in attrs}
        else:
            assert attrs == []

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return run_directory(tmp_path, [episode("a", transitions=(call(1, "get_order", {"id": "o1"}),))])


def test_a_frame_holds_the_whole_page_and_may_run_its_script_and_nothing_else(run: Path) -> None:
    seen = Seen(inline(run, "as text"))
    assert set(seen.elements) == ELEMENTS
    assert seen.frame["sandbox"] == "allow-scripts"
    kind, _, data = seen.frame["src"].partition(",")
    page = base64.b64decode(data).decode()
    assert kind == "data:text/html;charset=utf-8;base64"
    assert page.startswith("<!doctype html>")
    assert "Content-Security-Policy" in page
    assert f"dreamgym-kit view {shlex.quote(str(run))}" in seen.text


@each_row("payload", PAYLOADS[:40])
def test_no_text_becomes_an_element(run: Path, payload: str) -> None:
    seen = Seen(inline(run, payload))
    assert set(seen.elements) == ELEMENTS
    assert seen.elements.count("iframe") == 1


def test_where_the_run_is_gone_or_large_the_text_is_left(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert inline(tmp_path / "gone", "<b>") == "<pre>&lt;b&gt;</pre>"
    monkeypatch.setattr(inlining, "MAX_BYTES", 10)
    seen = Seen(inline(run, "as text"))
    assert (set(seen.elements), seen.text[:7]) == ({"pre", "p", "code"}, "as text")


@pytest.mark.browser
def test_links_and_keys_work_within_the_frame_and_leave_the_notebook_alone(
    chromium: Any, tmp_path: Path, run: Path
) -> None:
    (notebook := tmp_path / "notebook.html").write_text(
        f"<!doctype html><title>a notebook</title><h1>cells</h1>{inline(run, 'as text')}"
    )
    url = notebook.as_uri()
    page = chromium.new_page()
    page.set_default_timeout(PATIENCE_MS)
    console: list[str] = []
    requests: list[str] = []
    page.on("console", lambda said: console.append(said.text))
    page.on("pageerror", lambda error: console.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(url)
    frame = page.wait_for_selector("iframe").content_frame()
    frame.click(".ep a")
    frame.wait_for_selector(".step")
    frame.press("body", "Escape")
    frame.wait_for_selector(".ep a")
    reached = frame.evaluate("(() => { try { return parent.document.title } catch (e) { return e.name } })()")
    assert reached == "SecurityError"
    assert (page.url, page.title()) == (url, "a notebook")
    assert requests == [url]
    assert console == []
    page.close()
