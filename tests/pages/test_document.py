"""The file itself: one file, the same bytes each time, a policy that holds exactly what is in it."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from pages.blocks import blocks, unpacked
from pages.payloads import PAYLOADS
from pages.runs import call, episode, hostile, many, run_directory, small_run

from dreamgym_kit.report.page.gathering import Steps, packed
from dreamgym_kit.report.page.writing import SCRIPTS, as_block, page_of, script_text, source
from dreamgym_kit.rollout.rundir import RunDirectory

FORBIDDEN = (
    *("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "DOMParser", "srcdoc", "javascript:"),
    *("eval(", "Function(", "createContextualFragment", "importScripts", "localStorage"),
    *("fetch(", "XMLHttpRequest", "WebSocket", "EventSource", "sendBeacon"),
)


def html_of(directory: Path) -> str:
    return page_of(RunDirectory.open(directory), place="runs/a-run").html


def test_the_same_run_gives_the_same_bytes(tmp_path: Path) -> None:
    directory = run_directory(tmp_path, many(130))
    one, other = html_of(directory), html_of(directory)
    assert one == other


def test_the_policy_names_exactly_the_style_and_the_script_that_are_there(tmp_path: Path) -> None:
    html = html_of(run_directory(tmp_path, hostile(PAYLOADS)))
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', html)
    style = re.findall(r"<style>(.*?)</style>", html, re.DOTALL)
    script = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    assert policy is not None
    assert (len(style), len(script)) == (1, 1)
    assert policy[1] == (
        f"default-src 'none'; script-src '{_hash(script[0])}'; style-src '{_hash(style[0])}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


class Elements(HTMLParser):
    """Every element and attribute of a file, as a parser finds them."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, tuple[tuple[str, str | None], ...]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, tuple(attrs)))


def elements(html: str) -> list[tuple[str, tuple[tuple[str, str | None], ...]]]:
    parser = Elements()
    parser.feed(html)
    return parser.found


def test_hostile_texts_add_no_element_and_no_attribute_to_the_file(tmp_path: Path) -> None:
    assert len(set(PAYLOADS)) == 100
    harmless = elements(html_of(run_directory(tmp_path / "one", small_run())))
    assert elements(html_of(run_directory(tmp_path / "two", hostile(PAYLOADS)))) == harmless


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(json_values)
def test_a_block_is_the_same_json_and_holds_no_markup(value: object) -> None:
    block = as_block(value)
    assert json.loads(block) == json.loads(json.dumps(value).encode().decode())
    assert not set(block) & set("<>&\u2028\u2029")


def test_a_mark_inside_the_data_stays_what_it_is(tmp_path: Path) -> None:
    html = html_of(run_directory(tmp_path, hostile(["@@script@@"])))
    assert html.count("'use strict';") == 1
    assert "@@script@@" in html


def test_the_package_holds_every_file_of_the_page() -> None:
    for name in ("report.html", "report.css", *(f"script/{part}.js" for part in SCRIPTS)):
        assert source(name)
    folder = Path(__file__).parents[2] / "toolkit" / "report" / "page" / "script"
    if folder.is_dir():
        assert sorted(path.stem for path in folder.glob("*.js")) == sorted(SCRIPTS)


def test_the_script_builds_no_markup_and_asks_nobody() -> None:
    text = script_text() + source("report.css") + source("report.html")
    assert [word for word in FORBIDDEN if word in text] == []
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)
    assert not re.search(r"set(Timeout|Interval)\(\s*['\"`]", text)
    assert "</script" not in script_text()


def test_what_is_long_is_cut_and_all_episodes_stay_in_their_order(tmp_path: Path) -> None:
    long = episode("x" * 300, transitions=(call(1, "read", {}, "y" * 10_000_000),))
    html = html_of(run_directory(tmp_path, [long, *reversed(list(many(170)))]))
    assert [one["id"] for one in unpacked(html)] == [one["id"] for one in blocks(html)[0]["report"]["list"]]
    assert len(html) < 1_500_000


def test_what_a_page_has_no_room_for_is_the_steps_of_dull_successes(tmp_path: Path) -> None:
    episodes = [Steps.of({"id": str(n), "x": str(n) * 50}, dull=n in (1, 3)) for n in range(5)]
    whole = sum(len(one.squeezed) for one in episodes) * 4 / 3
    assert packed(episodes).left_out == 0
    less = packed(episodes, most_bytes=int(whole * 0.7))
    assert less.left_out == 2
    assert packed(episodes, most_bytes=0).left_out == 5
