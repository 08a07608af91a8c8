"""The page of a comparison: the figures of terminal and JSON, no markup of a run's, driven by hand."""

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from pages.blocks import blocks
from pages.conftest import Opener
from pages.payloads import PAYLOADS
from pages.runs import call, episode, run_directory
from pages.walking import walked

from dreamgym_kit.report.comparing import Comparison, compared, render_comparison
from dreamgym_kit.report.page.writing import comparison_block, comparison_page
from dreamgym_kit.report.summary import summarize
from dreamgym_kit.types import Effect, Episode, Finding, Verdict

LOOP = Finding("loop", "ran in circles", (1,), "critical")
MANIFEST = {"matters": {"mode": "dream", "seed": 0}}


def runs(names: Iterable[str]) -> tuple[list[Episode], list[Episode]]:
    """The first third of the tasks gets worse, the second better, the rest stays."""
    before, after = [], []
    for number, name in enumerate(names):
        good, bad = Verdict.PASSED, Verdict.FAILED
        old, new = [(good, bad), (bad, good), (good, good)][number % 3]
        steps = (call(1, f"send {name}", {"to": name}, name, effect=Effect.DESTRUCTIVE),)
        for repeat in (1, 2):
            before.append(episode(name, repeat, old, reason=name))
            found = (LOOP,) if new is bad else ()
            after.append(episode(name, repeat, new, reason=name, transitions=steps, findings=found))
    return before, after


def found(names: Iterable[str], **more: Any) -> Comparison:
    before, after = runs(names)
    sides = (summarize(before, MANIFEST), summarize(after, {"matters": {"mode": "dream", "seed": 3}}))
    return compared(*sides, names=("runs/before", "runs/after"))


NAMES = [f"refund-{number}" for number in range(1, 10)]


def test_page_terminal_and_json_tell_the_same() -> None:
    comparison = found(NAMES)
    screen = render_comparison(comparison, limit=99)
    assert all(len(line) <= 80 for line in screen.splitlines())
    told, text = comparison.to_json(), " ".join(screen.split())
    block = blocks(comparison_page(comparison))[0]
    page = block["compare"]
    assert block["report"] == json.loads(json.dumps(told))
    assert told["sentence"] in text
    assert page["stamp"] == comparison.word.label
    assert page["stamp"] in text
    rows = {row["name"]: row for row in [*page["figures"], *page["tools"], *page["findings"]]}
    said = {"pass rate": told["pass_rate"], "inconclusive": told["inconclusive"], "USD": told["cost_usd"]}
    said |= {**told["tools"], **told["findings"]}
    assert set(rows) == {name for name, one in said.items() if one["change"]} | {"pass rate", "inconclusive"}
    for name, row in rows.items():
        assert row["at"] == [said[name]["low"], said[name]["change"], said[name]["high"]]
        assert row["clear"] is said[name]["clear"]
        assert row["moved"] in text
    for row in page["figures"]:
        assert f"{row['before']} -> {row['after']}" in text.replace("->  ", "-> ")
    for one in told["tasks"]:
        if one["word"] != "same":
            assert f"{one['task']} {one['word']} {one['before_marks']} -> {one['after_marks']}" in text


def test_every_number_is_finite_and_nothing_in_common_is_a_page_too() -> None:
    nothing = compared(summarize([], MANIFEST), summarize([], MANIFEST), names=("a", "b"))
    page = comparison_block(nothing)
    assert (page["compare"]["figures"], page["report"]["tasks"]) == ([], [])
    assert "no task in common" in comparison_page(nothing)


@pytest.mark.slow
def test_the_command_writes_the_page_and_says_where(tmp_path: Path) -> None:
    before, after = runs(NAMES)
    one, two = run_directory(tmp_path / "1", before), run_directory(tmp_path / "2", after)
    said = _compare(str(one), str(two), "-o", str(tmp_path / "x.html"))
    assert (said.returncode, said.stderr) == (0, "")
    assert said.stdout.startswith("NO DIFFERENCE  No difference can be seen: the run after solves as many as")
    assert (tmp_path / "x.html").as_uri() in said.stdout
    told = json.loads(_compare(str(one), str(two), "--json").stdout)
    assert blocks((tmp_path / "x.html").read_text("utf-8"))[0]["report"] == told
    wrong = _compare(str(one), str(two), "-o", str(tmp_path / "nowhere" / "x.html"))
    assert wrong.returncode == 2
    assert "in a folder that is there" in wrong.stderr
    none = _compare(str(one), "nowhere")
    assert (none.returncode, none.stderr) == (
        2,
        "error: nowhere: is not a run directory (it has no manifest.json).\n",
    )


def _compare(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dreamgym_kit.cli.main", "compare", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


class TestInABrowser:
    """Drawn by Chromium."""

    pytestmark = pytest.mark.browser

    @pytest.fixture
    def shown(self, open_page: Opener, tmp_path: Path) -> Any:
        def shown(names: Iterable[str], **how: Any) -> Any:
            (tmp_path / "page.html").write_text(comparison_page(found(names)), "utf-8")
            return open_page(tmp_path / "page.html", **how)

        return shown

    def test_the_compared_tasks_are_walked_by_key_and_by_link(self, shown: Any) -> None:
        page = shown(NAMES)
        assert page.text("#verdict h1").startswith("No difference can be seen: ")
        assert "seed" in page.text(".note")
        changed = page.ask(
            "[...document.querySelectorAll('.cmp')[0].querySelectorAll('a')].map(a => a.textContent)"
        )
        assert changed == [f"refund-{number}" for number in (1, 4, 7, 2, 5, 8)]
        focused = "document.activeElement.textContent"
        for key, name in (("j", "refund-1"), ("j", "refund-4"), ("k", "refund-1")):
            page.press(key)
            assert page.ask(focused) == name
        page.go("#t=refund-9")
        assert page.ask("document.querySelector('#tasks details').open") is True
        assert page.ask(focused) == "refund-9"
        page.go("#t=nobody")
        assert page.text("#live") == "No task has the name nobody"
        page.press("?")
        assert page.ask("document.querySelector('dialog').open") is True
        assert page.page.title() == "NO DIFFERENCE runs/before and runs/after"
        page.quiet()

    @pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
    @pytest.mark.parametrize("width", [1280, 390])
    def test_no_view_of_a_comparison_has_a_violation(self, shown: Any, width: int, dark: bool) -> None:
        page = shown(NAMES, width=width, dark=dark)
        assert page.flaws() == []
        page.quiet()

    def test_no_payload_in_a_comparison_becomes_markup(self, shown: Any) -> None:
        harmless = walked(shown([f"word {number}" for number in range(len(PAYLOADS))]).page)
        page = shown(PAYLOADS)
        assert walked(page.page) == harmless
        assert page.text("#tasks").count("window.hurt=1") > 50
        page.quiet()

    @pytest.mark.nightly
    def test_a_thousand_tasks_are_drawn_at_once_and_shown_when_asked(self, shown: Any) -> None:
        page = shown([f"task-{number}" for number in range(1, 1001)])
        rows = "document.querySelectorAll('.cmp')[0].querySelectorAll('tbody tr').length"
        assert page.ask(rows) == 200
        page.page.click("#tasks button.more")
        assert page.ask(rows) == 667
        page.quiet()
